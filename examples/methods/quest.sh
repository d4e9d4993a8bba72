#!/bin/sh
# Quest (Tang et al. 2024): all rows stay, and each step reads the pages of `page` rows (16) whose
# bounds allow the greatest scores. Of a budget smaller than a page the last page is read.
. "$(dirname "$0")/common.sh"

page=16
settings page
shared prefill | quantised | kv-index --pages --page "$page" -o "$out"
retrieve quest
