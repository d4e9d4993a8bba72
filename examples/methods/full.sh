#!/bin/sh
# The whole cache: what every method is compared with. The rate means nothing here.
. "$(dirname "$0")/common.sh"

settings
shared prefill >"$out"
report
