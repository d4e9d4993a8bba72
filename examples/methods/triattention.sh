#!/bin/sh
# TriAttention (2026): the rows that a mean query attends to from later distances, after the prompt
# and after every 128 tokens of the answer. `query_stats` is a file of statistics of other texts,
# as the authors take, which train/query_stats.py makes (none: those of the text).
. "$(dirname "$0")/common.sh"

query_stats=''
settings query_stats
[ -z "$query_stats" ] || [ -e "$query_stats" ] || die "there is no file or folder $query_stats"
budget=$(share_of "$(tokens)")
set --
words=triattention
if [ -n "$query_stats" ]; then
	set -- --query-stats "$query_stats"
	words="triattention query-stats='$query_stats'"
fi
shared prefill --query-stats | kv-score --method triattention "$@" |
	kv-evict --budget "$budget" -o "$out"
report --every 128 --score "$words" --evict "budget=$budget"
