# kvpipe - helpers for experiments that are written as bats files
#
#     bats_load_library kvpipe
#
# finds this file where BATS_LIB_PATH says; `make install` puts it under PREFIX/lib/bats/kvpipe. The
# programs are those of the PATH. An assertion that does not hold says what it found, returns 1.

# kv_run COMMAND: runs a pipeline given as one string. Every program in it must succeed.
kv_run() {
	local status=0
	bash -o pipefail -c "$1" || status=$?
	((status == 0)) || _kv_fail "exit status $status: $1"
}

# kv_fact FILE KEY: one number or text of kv-info --json (tokens, next_position, rows, kv_bytes,
# bytes, dtype ...)
kv_fact() {
	kv-info --json "$1" | sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p"
}

# kv_logical_digest FILE: equal for the compressed and the plain copy of a snapshot
kv_logical_digest() {
	kv-info --all --json "$1" | sed -n 's/^  "logical_digest": "\([0-9a-f]*\)".*/\1/p'
}

# kv_answer MODEL FILE [STOP]: what the model says next, up to STOP (a full stop)
kv_answer() {
	kv-decode -q -m "$1" -n 64 --stop "${3:-.}" "$2"
}

# kv_footprint FILE [memory|peak|kept]: the KV footprint so far, as a share of the full cache's; or
# memory, the rows that there were, added up over the time of the run (less, where layers ran one
# after the other); or the peak; or what is left
kv_footprint() {
	kv-footprint --json "$1" | sed -n "s/^  \"${2:-footprint}\": \([0-9.e+-]*\),\{0,1\}\$/\1/p"
}

# assert_kept FILE SHARE [TOLERANCE]: the share of rows left, 0.1 or 10%, within TOLERANCE (0.005)
assert_kept() {
	local have
	have=$(kv_fact "$1" share_kept)
	_kv_awk -v have="$have" -v want="$(_kv_share "$2")" -v tolerance="${3:-0.005}" \
		'BEGIN { d = have - want; exit !(d <= tolerance && -d <= tolerance) }' ||
		_kv_fail "$1: $have of the rows are kept, not $2"
}

# assert_rows FILE N: every KV head of every layer has N rows
assert_rows() {
	local other
	other=$(kv-info --positions "$1" | _kv_awk -v n="$2" '
		NF != n + 2 { print "layer " $1 " KV head " $2 ": " NF - 2; exit }')
	[ -z "$other" ] || _kv_fail "$1: $other rows, not $2"
}

# assert_footprint_below FILE SHARE: the KV footprint so far is less than this share (0.5, 50%) of
# the full cache's
assert_footprint_below() {
	_kv_below "$1" footprint "$2"
}

# assert_memory_below FILE SHARE: the rows that there were, added up over the time of the run,
# are fewer
assert_memory_below() {
	_kv_below "$1" memory "$2"
}

# assert_peak_below FILE SHARE: never were there as many rows at once
assert_peak_below() {
	_kv_below "$1" peak "$2"
}

# assert_keeps FILE FIRST [LAST]: every KV head of every layer has the positions FIRST to LAST
assert_keeps() {
	local missing
	missing=$(kv-info --positions "$1" | _kv_awk -v first="$2" -v last="${3:-$2}" '{
		split("", has)
		for (i = 3; i <= NF; i++) has[$i]
		for (p = first; p <= last; p++) if (!(p in has)) {
			print "layer " $1 " KV head " $2 " lacks position " p; exit } }')
	[ -z "$missing" ] || _kv_fail "$1: $missing"
}

# assert_overlap A B SHARE: at least this share of the rows of A is in B, too
assert_overlap() {
	local share
	share=$(_kv_awk 'NR == FNR { for (i = 3; i <= NF; i++) has[$1, $2, $i]; next }
		{ for (i = 3; i <= NF; i++) { n++; both += ($1, $2, $i) in has } }
		END { print n ? both / n : 1 }' \
		<(kv-info --positions "$2") <(kv-info --positions "$1"))
	_kv_awk -v have="$share" -v want="$(_kv_share "$3")" 'BEGIN { exit !(have >= want) }' ||
		_kv_fail "$2 has $share of the rows of $1, not $3"
}

# assert_answer MODEL FILE TEXT: TEXT stands in what the model says next
assert_answer() {
	local said
	said=$(kv_answer "$1" "$2" "$(printf '\n')") || return
	[[ $said == *"$3"* ]] || _kv_fail "$2: the answer is \"$said\", without \"$3\""
}

# refute_answer MODEL FILE TEXT
refute_answer() {
	local said
	said=$(kv_answer "$1" "$2" "$(printf '\n')") || return
	[[ $said != *"$3"* ]] || _kv_fail "$2: the answer is \"$said\", with \"$3\""
}

# assert_same_snapshot A B: tokens, rows, keys, values and logits are the same, bit for bit;
# compression, scores and provenance may differ
assert_same_snapshot() {
	[ "$(kv_logical_digest "$1")" = "$(kv_logical_digest "$2")" ] || _kv_fail "$1 and $2 differ"
}

# assert_same_rows A B: the same positions are kept in every KV head of every layer
assert_same_rows() {
	local where
	where=$(cmp -s <(kv-info --positions "$1") <(kv-info --positions "$2") ||
		paste -d '\n' <(kv-info --positions "$1") <(kv-info --positions "$2") |
		_kv_awk '
			NR % 2 { line = $0; next }
			line != $0 { print "layer " $1 " KV head " $2; exit }')
	[ -z "$where" ] || _kv_fail "$1 and $2 keep other rows: first in $where"
}

# assert_subset SMALL LARGE: every row of SMALL is in LARGE
assert_subset() {
	local missing
	missing=$(_kv_awk 'NR == FNR { for (i = 3; i <= NF; i++) has[$1, $2, $i]; next }
		{ for (i = 3; i <= NF; i++) if (!(($1, $2, $i) in has)) {
			print "layer " $1 " KV head " $2 " position " $i; exit } }' \
		<(kv-info --positions "$2") <(kv-info --positions "$1"))
	[ -z "$missing" ] || _kv_fail "$2 lacks $missing of $1"
}

# assert_better A B RATE [OPTION OF compare.sh ...]: method A of examples/methods answers questions
# that B does not, more than the reverse, with RATE of the rows, and the exact sign test over the
# documents has p of at most KV_P (0.05, two-sided). Options name the documents, their number and
# the model: -d FOLDER -n 40 -m MODEL; without them documents are made for the demo model.
assert_better() {
	local a=$1 b=$2 rate=$3 said line
	shift 3
	said=$(sh "$_kv_examples/compare.sh" -c "$@" -r "$rate" -M "$a $b" -P "$b") || return
	line=$(_kv_awk -F ' *[|] *' -v a="$a" '
		compares && $2 == a { print $4, $5, $6, $7 }
		/^compared with/ { compares = 1 }' <<<"$said")
	[ -n "$line" ] || _kv_fail "compare.sh does not compare $a with $b: $said" || return
	_kv_awk -v most="${KV_P:-0.05}" '{ exit !($2 > $3 && $4 <= most) }' <<<"$line" ||
		_kv_fail "$a at $rate: $(_kv_awk -v b="$b" '{
			print $2 " right that " b " has not, and " $3 " the reverse, of " $1 \
			    ": p " $4 }' <<<"$line")"
}

# Of the tree, or of an installation
_kv_examples=$(cd "$(dirname "${BASH_SOURCE[0]}")" || exit
	for place in ../../examples ../../../share/kvpipe; do
		[ ! -e "$place/compare.sh" ] || { cd "$place" && pwd && break; }
	done)

_kv_fail() {
	printf '%s\n' "$1" >&2
	return 1
}

_kv_below() {
	local have
	have=$(kv_footprint "$1" "$2")
	_kv_awk -v have="$have" -v limit="$(_kv_share "$3")" \
		'BEGIN { exit !(have != "" && have < limit) }' ||
		_kv_fail "$1: the $2 is $have of the full cache's, not below $3"
}

# "10%" is 0.1
_kv_share() {
	case $1 in
	*%) _kv_awk -v p="${1%\%}" 'BEGIN { print p / 100 }' ;;
	*) echo "$1" ;;
	esac
}

# Numbers have a point, whatever the user's language writes.
_kv_awk() {
	LC_ALL=C awk "$@"
}
