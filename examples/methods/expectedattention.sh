#!/bin/sh
# ExpectedAttention (Devoto et al. 2025): the rows that queries of the next `future` positions are
# expected to attend to, by the length of their values. Setting as on the leaderboard of its
# authors' kvpress: KV heads share their budget as in AdaKV, and `epsilon` is added to the
# attention. `query_stats` is a file of statistics of other texts, which train/query_stats.py makes
# (none: those of the text).
. "$(dirname "$0")/common.sh"

sink=4 future=512 epsilon=0.01 policy=ada-kvpress query_stats=''
settings sink future epsilon policy query_stats
[ -z "$query_stats" ] || [ -e "$query_stats" ] || die "there is no file or folder $query_stats"
set --
[ -z "$query_stats" ] || set -- --query-stats "$query_stats"
shared prefill --query-stats |
	kv-score --method expected --sink "$sink" --future "$future" --epsilon "$epsilon" "$@" |
	kv-evict --policy "$policy" --rate "$rate" -o "$out"
report
