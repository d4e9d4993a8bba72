#!/bin/sh
# KVzip+ (kvpress, 2025): as KVzip, with the attention of repeated tokens weighed by what the row's
# value adds to the residual stream and by the token's hidden state. `instruction` as in kvzip.sh.
. "$(dirname "$0")/kvzip.sh"
