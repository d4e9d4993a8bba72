#!/bin/sh
# Quest by the rule of its authors' evaluation program, with which the accuracy of the paper was
# measured: the last page competes with the others, and 3 pages of `page` rows (16) at least are
# read. quest.sh has the rule of their kernels.
. "$(dirname "$0")/common.sh"

page=16
settings page
shared prefill | quantised | kv-index --pages --page "$page" -o "$out"
retrieve quest-eval
