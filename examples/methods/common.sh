# shellcheck shell=sh
# common.sh - what the scripts of this folder share; each of them sources it
#
#     sh examples/methods/METHOD.sh [-b BUDGET | -r RATE] [-c CACHE] [-C CONF] [-H FILE] [-i]
#         [-l LAYER] [-m MODEL] [-n TOKENS] [-o FILE] [-s NAME=VALUE] [-S STOP] [prompt]
#
#     -b BUDGET      rows of each KV head to keep, instead of a rate
#     -c CACHE       a folder for what `shared` commands write: it is taken from there when they
#                    have run before, with other rates or in other scripts, which may run at the
#                    same time; for one build of the programs, and large
#     -C CONF        settings for the model (MODEL/kvpipe-methods.conf, where there is one)
#     -h             say what the method is, what its settings are for this model, and do nothing
#     -H FILE        a head mask, the setting `heads`
#     -i             the prompt is a list of token ids, as kv-chat writes them
#     -l LAYER       the setting `layer`
#     -m MODEL       the model folder (the demo model)
#     -n TOKENS      the longest answer, the setting `answer` (32)
#     -o FILE        no answer: write the snapshot that it would begin with to FILE, and the words
#                    of kv-decode that belong to the method, one a line, to FILE.options
#     -r RATE        the share of the rows to keep (0.1)
#     -s NAME=VALUE  a setting of the method
#     -S STOP        text at which the answer ends, the setting `stop` (none: the answer ends with
#                    the model's end of text)
#
# prompt is a text file (the prompt of the quick start). It is run as it is: a model that was tuned
# for a chat template needs a file that has the template around the text, with the question at the
# end, or the ids that kv-chat makes of both.
#
# A script makes the snapshot $out from the text $prompt, with about the share $rate of its rows in
# the end (a method that keeps all rows reads that share of them at each step), and calls `report`,
# which lets the model answer and prints one line:
#
#     method, rows kept, KV footprint, memory, peak,
#     bytes of the cache read at each step (each in %), answer
#
# Every method has the settings `keys` and `values`: types of kv-quantize, q8_0 or q4_0-hadamard for
# instance, in which the answer begins with these rows (none: as they are), and `residual`: how many
# of the last rows stay full then. Bytes that are read are in % of the full cache's as it is.
#
# Settings are what depends on the model or on the length of the text. A script assigns the values
# of the paper, or of the authors' programs where the paper has none, and calls `settings` with
# their names; what is left empty it derives, by a rule in its head. FastKV's layer is half of the
# layers less one, GemFilter's 13/32 of them, counted from 0; config.json, or
# the GGUF file, has their number.
# A file CONF has others for a model, NAME=VALUE for every method or METHOD.NAME=VALUE for one, a
# line each; the last line that applies counts, \n in a value is a newline, # begins a line of
# comment. Options come after that. What cannot be known ends with a message and 2. Its lines
# allow-config=KEY and allow-tensor=NAME are for the programs, which read them of a model's own
# file; of another CONF they go to the programs as KV_ALLOW_CONFIG and KV_ALLOW_TENSOR have it.
#
# A model folder may be anybody's, and shells compute what they find in $(( )):
# no value is used that check() has not let through.
#
# Programs come from the PATH, or from build/ (or the folder that O names). A script somewhere else
# sources this file by the folder that KVPIPE_METHODS names, which experiments/ sets: .
# "$KVPIPE_METHODS/common.sh"
set -eu

# Numbers have a point, whatever the user's language writes, texts are bytes,
# and cd goes where it is told.
export LC_ALL=C CDPATH=

here=$(cd "${KVPIPE_METHODS:-$(dirname "$0")}" && pwd)
method=$(basename "$0" .sh)
usage="usage: $method.sh [-b BUDGET | -r RATE] [-c CACHE] [-C CONF] [-H FILE] [-i] [-l LAYER] \
[-m MODEL] [-n TOKENS] [-o FILE] [-s NAME=VALUE] [-S STOP] [prompt]"
model=$here/../demo-model
rate=0.1
budget=
cache=
conf=
help=
given=
as_ids=
save=
stats=
# KV heads of what a script keeps, for each of the model's
copies=1
answer=32
stop=
keys=
values=
residual=

die() {
	printf '%s\n' "$method.sh: $*" >&2
	exit 2
}

# among WORD LIST: whether WORD is one of the list's
among() {
	case " $2 " in
	*" $1 "*) ;;
	*) return 1 ;;
	esac
}

newline='
'

# ---- what values are ----

# kind_of NAME: sets $kind to the kind of a setting's values; fails where there is no such setting
kind_of() {
	case $1 in
	answer | keep | layer | local | outliers | recent | residual | sink | sketch)
		kind='a whole number'
		;;
	chunk | chunks | cluster | draft | future | group | kernel | lag | page | patch | rank | \
	spiky | window)
		kind='a whole number above 0'
		;;
	lambda | lazy | tsp_rate) kind='a share above 0, up to 1' ;;
	blend | epsilon | gamma | tau1 | tau2) kind='a number, 0 or above' ;;
	threshold) kind='a number' ;;
	keys | policy | pool | values) kind='a word of letters and digits' ;;
	adapter | budgets | draft_model | filters | gate | heads | query_stats | retriever)
		kind='a name of one line'
		;;
	instruction | stop) kind='a text' ;;
	*) return 1 ;;
	esac
}

# is_number TEXT: as programs and shells read it alike: no sign, no zeros in front,
# at most nine digits
is_number() {
	case $1 in
	0) ;;
	'' | 0* | *[!0-9]* | ??????????*) return 1 ;;
	esac
}

is_count() {
	[ "$1" != 0 ] && is_number "$1"
}

# is_share TEXT: 0.1, 1e-1 or 10%
is_share() {
	case $1 in
	'' | *[!0-9.eE%+-]*) return 1 ;;
	esac
	awk -v x="$1" 'BEGIN {
		most = sub(/%$/, "", x) ? 100 : 1
		number = x ~ /^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/
		exit !(number && x + 0 > 0 && x + 0 <= most)
	}'
}

# is_real TEXT: 0, 0.01 or 1e-2
is_real() {
	case $1 in
	'' | *[!0-9.eE+-]*) return 1 ;;
	esac
	awk -v x="$1" 'BEGIN { exit x !~ /^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }'
}

# check WHERE NAME VALUE: refuses a value that is not of the setting's kind.
# None stands for what a script derives itself.
check() {
	kind_of "$2" || die "$1: there is no such setting"
	[ -n "$3" ] || return 0
	case $kind in
	'a whole number') is_number "$3" ;;
	'a whole number above 0') is_count "$3" ;;
	'a share'*) is_share "$3" ;;
	'a number') is_real "${3#-}" ;;
	'a number'*) is_real "$3" ;;
	'a word'*) case $3 in -* | *[!A-Za-z0-9_-]*) false ;; esac ;;
	'a name'*) case $3 in *"$newline"*) false ;; esac ;;
	esac || die "$1: not $kind"
}

# plain_name OPTION NAME: sets $name to a file's name that no program takes for an option
plain_name() {
	case $2 in
	*"$newline"*) die "$1: a name with a line break" ;;
	-*) name=./$2 ;;
	*) name=$2 ;;
	esac
}

# give NAME VALUE: a setting from the command line; `settings` applies it
give() {
	check "-s $1" "$1" "$2"
	case $kind in
	'a name'*) plain_name "-s $1" "$2"; set -- "$1" "$name" ;;
	esac
	given="$given $1"
	eval "given_$1=\$2"
}

while getopts b:c:C:hH:il:m:n:o:r:s:S: option; do
	case $option in
	b)
		is_count "$OPTARG" || die "-b: not a whole number above 0"
		budget=$OPTARG
		;;
	c) plain_name -c "$OPTARG"; cache=$name ;;
	C) plain_name -C "$OPTARG"; conf=$name ;;
	h) help=1 ;;
	H) give heads "$OPTARG" ;;
	i) as_ids=--ids ;;
	l) give layer "$OPTARG" ;;
	m) plain_name -m "$OPTARG"; model=$name ;;
	n) give answer "$OPTARG" ;;
	o) plain_name -o "$OPTARG"; save=$name ;;
	r)
		is_share "$OPTARG" || die "-r: not a share above 0, up to 1"
		rate=$OPTARG
		;;
	s)
		case $OPTARG in
		*=*) give "${OPTARG%%=*}" "${OPTARG#*=}" ;;
		*) die "-s $OPTARG: not NAME=VALUE" ;;
		esac
		;;
	S) give stop "$OPTARG" ;;
	*) echo "$usage" >&2; exit 2 ;;
	esac
done
shift $((OPTIND - 1))
[ $# -le 1 ] || { echo "$usage" >&2; exit 2; }
plain_name prompt "${1:-$here/../prompts/harbour.txt}"
prompt=$name
[ -z "$cache" ] || [ -d "$cache" ] || die "-c $cache: there is no such folder"
command -v kv-prefill >/dev/null || PATH=$(cd "$here/../.." && cd "${O:-build}" && pwd):$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
out=$work/out.kv

# ---- settings ----

# allow WHERE NAME VALUE: what the programs are to pass over, from a file that they do not read
# themselves. (They have a blank between names.)
allow() {
	case $3 in
	'' | *[[:space:]]*) die "$1: $2: not a name" ;;
	esac
	[ "$conf" != "$model/kvpipe-methods.conf" ] || return 0
	shift
	case $1 in
	allow-config) export KV_ALLOW_CONFIG="${KV_ALLOW_CONFIG:-} $2" ;;
	allow-tensor) export KV_ALLOW_TENSOR="${KV_ALLOW_TENSOR:-} $2" ;;
	esac
}

# with_newlines TEXT: sets $value to it, with a newline for each \n
with_newlines() {
	value=
	set -- "$1" "$1"
	while [ "$1" != "${1#*\\n}" ]; do
		value=$value${1%%\\n*}$newline
		set -- "${1#*\\n}"
	done
	value=$value$1
}

# read_line WHERE LINE: assigns what a line of the file has for the settings $names of this method
read_line() {
	case $2 in
	'' | '#'*) return ;;
	*[[:cntrl:]]*) die "$1: a control character (\\n stands for a newline)" ;;
	*=*) name=${2%%=*} value=${2#*=} ;;
	*) die "$1 is not NAME=VALUE" ;;
	esac
	case $name in
	allow-config | allow-tensor) allow "$1" "$name" "$value"; return ;;
	*[!a-z0-9A-Z_.-]*) die "$1 is not NAME=VALUE" ;;
	esac
	scope=$method
	case $name in
	*.*) scope=${name%%.*} name=${name#*.} ;;
	esac
	[ "$scope" = "$method" ] || [ -e "$here/$scope.sh" ] || die "$1: there is no method $scope"
	check "$1: $name" "$name" "$value"
	{ [ "$scope" = "$method" ] && among "$name" "$names"; } || return 0
	case $kind in
	'a name'*) case $value in [!/]*) value=$folder/$value ;; esac ;;     # beside this file
	*) with_newlines "$value" ;;
	esac
	eval "$name=\$value"
}

# read_conf: the lines of $conf
read_conf() {
	number=0
	folder=$(dirname "$conf")
	[ ! -f "$conf" ] || [ "$(wc -c <"$conf")" -le 65536 ] || die "$conf: more than 64 KiB"
	cr=$(printf '\r')
	while IFS= read -r line || [ -n "$line" ]; do
		number=$((number + 1))
		read_line "$conf: line $number" "${line%"$cr"}"
	done <"$conf"
}

# settings NAME ...: the variables NAME, which have their defaults,
# become what the model's file and the command line say
settings() {
	names="answer stop keys values residual $*"
	for name in $names; do
		eval "default_$name=\$$name"
	done
	[ -z "$conf" ] || { [ -e "$conf" ] && [ ! -d "$conf" ]; } || die "there is no file $conf"
	if [ -n "$conf" ] || [ -f "$model/kvpipe-methods.conf" ]; then
		: "${conf:=$model/kvpipe-methods.conf}"
		read_conf
	fi
	for name in $given; do
		among "$name" "$names" || die "this method has no setting $name"
		eval "$name=\$given_$name"
	done
	for name in $names; do
		eval "value=\$$name default=\$default_$name"
		[ -n "$value" ] || [ -z "$default" ] || die "$name: no value"
	done
	[ -z "$help" ] || describe
}

describe() {
	echo "$usage"
	echo
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
	echo
	printf '%s\n' "settings for $model:"
	for name in $names; do
		eval "value=\$$name"
		printf '    %s=%s\n' "$name" \
			"$(printf '%s\n' "$value" | sed -e ':a' -e '$!N' -e 's/\n/\\n/' -e 'ta')"
	done
	exit 0
}

# describe_file: numbers of a model in a GGUF file under the names of config.json, as a snapshot of
# it has them
describe_file() {
	echo 1 | kv-prefill -q -m "$model" --ids --no-template - | kv-info --json - |
		sed -e 's/"layers": *\([0-9]\)/"num_hidden_layers": \1/' \
		    -e 's/"query_heads"/"num_attention_heads"/' \
		    -e 's/"kv_heads"/"num_key_value_heads"/' \
		    -e 's/"head_width"/"head_dim"/' -e 's/"hidden"/"hidden_size"/'
}

# config NAME [DEFAULT]: a number above 0 of the model's config.json, or of its GGUF file
config() {
	from=$model/config.json
	[ ! -f "$model" ] || from=$model
	value=$(if [ -f "$model" ]; then describe_file; else cat "$from"; fi |
		sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p" | head -n 1)
	value=${value:-${2:-}}
	[ -n "$value" ] || die "$from does not say $1"
	is_count "$value" || die "$from: $1 is not a whole number above 0"
	echo "$value"
}

# least A B: the smaller number
least() {
	if [ "$1" -lt "$2" ]; then echo "$1"; else echo "$2"; fi
}

# ---- the prompt ----

# ids: its tokens, one a line
ids() {
	if [ -n "$as_ids" ]; then
		tr -s '[:space:]' '\n' <"$prompt" | sed '/^$/d'
	else
		kv-tokenize -m "$model" "$prompt"
	fi
}

# tokens: how many they are
tokens() {
	if [ -n "$as_ids" ]; then
		wc -w <"$prompt"
	else
		kv-tokenize -m "$model" --count "$prompt"
	fi
}

# prefill [OPTION ...]: runs it; the snapshot goes to standard output
prefill() {
	kv-prefill -q -m "$model" ${as_ids:+"$as_ids"} "$@" "$prompt"
}

# A budget of rows is a rate of the prompt's tokens;
# all that a rate is rounded to further down is exact for it.
if [ -n "$budget" ] && [ -z "$help" ]; then
	rate=$(awk -v budget="$budget" -v n="$(tokens)" \
		'BEGIN { printf "%.17g", budget < n ? budget / n : 1 }')
fi

# share_of N [DIVISOR]: floor(N * rate / DIVISOR), the rows that the rate stands for
share_of() {
	awk -v n="$1" -v rate="$rate" -v divisor="${2:-1}" \
		'BEGIN {
			if (sub(/%$/, "", rate))
				rate /= 100
			print int(n * rate / divisor + 1e-9)
		}'
}

# parts N: cuts the prompt into pieces of N tokens, the files "$work"/part.*
parts() {
	ids | split -l "$1" - "$work/part."
}

# word FILE: the name as it stands in words of kv-prefill's and kv-decode's --score and --evict
word() {
	printf %s "$1" | sed "s/'/'\\\\''/g; s/^/'/; s/\$/'/"
}

# tell FILE: appends records of programs to those of this script, where KV_REPORT asks for them
tell() {
	[ -z "${KV_REPORT:-}" ] || cat "$1" >>"$KV_REPORT"
}

# shared COMMAND [WORD ...]: runs `prefill`, a program, or a function of the script, that writes to
# standard output what depends on the words, the prompt, the model and the device only. With -c it
# runs once for all scripts, so that the name of a function must be its own: one that comes while it
# runs waits for it. What it runs may call `shared` itself. The records of its programs (KV_REPORT)
# are kept beside its output, and are told by every script that takes it: what a method has cost
# alone. An entry is there when its records are.
shared() (
	[ -n "$cache" ] || { "$@"; exit; }
	environment="${KV_DEVICE:-} ${KV_PRODUCTS:-} ${KV_ALLOW_CONFIG:-} ${KV_ALLOW_TENSOR:-}"
	entry=$cache/$({
		printf '%s\n' "$@" "$as_ids" "$environment"
		stat -L -c '%n %s %Y' "$model"/*
		cat "$prompt"
	} | sha256sum | cut -d ' ' -f 1)
	records=$entry.stages
	if [ ! -e "$records" ]; then
		exec 9>"$entry.lock"
		flock 9
		if [ ! -e "$records" ]; then
			trap 'tell "$records.part"; rm -f "$entry.part" "$records.part"' EXIT
			: >"$records.part"
			(
				KV_REPORT=$records.part
				export KV_REPORT
				"$@"
			) >"$entry.part"
			mv "$entry.part" "$entry"
			trap - EXIT
			mv "$records.part" "$records"
		fi
		exec 9>&-
	fi
	tell "$records"
	cat "$entry"
)

# ---- head masks ----

# count_heads: how many numbers the mask $heads has, in which # begins a comment,
# and how many of them are 0.5 or more
count_heads() {
	awk -F '[ \t,]+' '
		{ sub(/#.*/, "") }
		{
			for (i = 1; i <= NF; i++) {
				n += $i != ""
				full += $i != "" && $i >= 0.5
			}
		}
		END { print n + 0, full + 0 }' <"$heads"
}

# mask_options SINK RECENT: what of kv-evict makes the whole cache as large as the rate asks for
mask_options() {
	awk -v counts="$(count_heads)" -v sink="$1" -v recent="$2" -v tokens="$(tokens)" \
	    -v share="$(share_of "$(tokens)")" '
		function ceil(x) { return int(x) + (x > int(x)) }
		BEGIN {
			split(counts, a, " ")
			n = a[1]
			full = a[2]
			if (recent != "") {
				short = sink + recent < tokens ? sink + recent : tokens
				streams = n
				if (short < tokens)
					streams = ceil((tokens - share) * n / (tokens - short) - \
					    1e-9)
				streams = streams < n ? streams : n
				printf "--sparsity %.17g --recent %d", streams / n, recent
			} else {
				rows = tokens
				if (full < n) {
					left = share - int(tokens * full / n)
					rows = int(left * n / (n - full)) - sink
				}
				printf "--recent %d", rows < 16 ? 16 : rows
			}
		}'
}

# stream_heads SINK RECENT: $out from the whole cache and the head mask $heads. Streaming heads keep
# SINK rows and recent ones. With a number for RECENT as many heads stream as the rate asks for,
# those with the smallest numbers, and more is kept when all of them are not enough. Without, heads
# below 0.5 stream, and recent rows are as many as the rate leaves; with k of n heads in the mask
# the least share is k/n: below it there are 16 recent rows, and more is kept than was asked for.
# With `chunk` rows go after every so many tokens of the prompt.
stream_heads() {
	[ -n "$heads" ] || die "$model has no head mask: name one with -H"
	[ -f "$heads" ] || die "there is no head mask $heads"
	if [ -n "$chunk" ]; then
		# "--sparsity S --recent N" as words of kv-prefill --evict
		words=$(mask_options "$1" "$2" | sed 's/--\([a-z]*\) /\1=/g')
		prefill --chunk "$chunk" --evict "head-mask=$(word "$heads") sink=$1 $words" \
			-o "$out"
		return
	fi
	# shellcheck disable=SC2046 # words
	shared prefill |
		kv-evict --head-mask "$heads" --sink "$1" $(mask_options "$1" "$2") -o "$out"
}

# quantised: a snapshot on standard input, in the types that the settings name. Indexes are made
# after it.
quantised() {
	if [ -n "$keys$values" ]; then
		kv-quantize ${keys:+--keys "$keys"} ${values:+--values "$values"} \
			${residual:+--residual "$residual"}
	else
		cat
	fi
}

# ---- the answer ----

# percent KEY: a share in a JSON object on standard input
percent() {
	sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" | awk 'NR == 1 { printf "%.2f", 100 * $1 }'
}

# multiplied N: N times the percentage on standard input
multiplied() {
	awk -v n="$1" 'NR == 1 { printf "%.2f", n * $1 }'
}

# query_heads SNAPSHOT: of each KV head
query_heads() {
	kv-info --json "$1" | awk '/"query_heads":/ { heads = $2 } /"kv_heads":/ { each = $2 }
		END { print heads / each }'
}

# one_line TERMINAL: a text on standard input in one line; with a 1,
# what would do something to a terminal is a ?
one_line() {
	tr '\n' ' ' |
		if [ -n "$1" ]; then
			tr '\000-\037\177' '?' | sed 's/\xc2[\x80-\x9f]/?/g'
		else
			cat
		fi
}

# report [OPTION ...]: $out is as it should be when the answer begins; options are kv-decode's.
# Footprint, memory and peak are those of the whole run, the answer included, and what was run to
# score rows and not stored. Rows that are kept are read, unless the method says otherwise.
report() {
	if [ -n "$keys$values" ]; then
		quantised <"$out" >"$work/quantised.kv"
		mv "$work/quantised.kv" "$out"
	fi
	if [ -n "$save" ]; then
		for word; do
			printf '%s\n' "$word"
		done >"$save.options"
		mv "$out" "$save"
		return
	fi
	[ -z "$stop" ] || set -- --stop "$stop" "$@"
	[ -z "$stats" ] || set -- --stats "$stats" "$@"
	said=$(kv-decode -q -m "$model" -n "$answer" "$@" -o "$work/after.kv" "$out")
	kv-footprint --json "$work/after.kv" >"$work/footprint"
	kv-info --json "$out" >"$work/info"
	kept=$(percent share_kept <"$work/info" | multiplied "$copies")
	read=$(percent share_bytes <"$work/info" | multiplied "$copies") terminal=''
	[ ! -t 1 ] || terminal=1
	# a share of the bytes of all rows of $out
	[ ! -e "$stats" ] || read=$(awk -v all="$read" -v kept="$kept" \
		-v share="$(percent share <"$stats")" \
		'BEGIN { printf("%.2f", kept ? share * all / kept : 0) }')
	printf '%-20s %6s %6s %6s %6s %6s  %s\n' "$method" "$kept" \
		"$(percent footprint <"$work/footprint")" "$(percent memory <"$work/footprint")" \
		"$(percent peak <"$work/footprint")" "$read" \
		"$(printf %s "${said# }" | one_line "$terminal")"
}

# retrieve WORDS: reports with all rows kept, and the share of them read that the rate stands for
retrieve() {
	stats=$work/stats
	report --retrieve "$1 budget=$(share_of "$(tokens)")"
}
