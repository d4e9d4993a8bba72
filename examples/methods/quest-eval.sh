#!/bin/sh
# Quest by the rule of its authors' evaluation program, with which the accuracy of the paper was measured: the last page competes with the
# others, and 3 pages at least are read. quest.sh has the rule of their kernels.
. "$(dirname "$0")/common.sh"

settings
shared prefill | kv-index --pages -o "$out"
retrieve quest-eval
