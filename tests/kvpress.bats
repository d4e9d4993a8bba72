#!/usr/bin/env bats
# bats file_tags=slow,nosan
# Coming from kvpress: the command lines of kvpipe(7) keep the rows that the presses of kvpress keep
#
# The fixtures say which positions of prompt.txt each press has kept, and where scores are so close that rounding decides.
# oracle/kvpress_kept.py has recorded them from kvpress.

load helper

FIXTURES=$ROOT/tests/fixtures/kvpress

# displays: what stands in the section of the page, as lines of press, tab, line; the press is empty before the list
displays() {
	sed -n '/^\.Ss Coming from kvpress/,/^\.Sh/p' "$ROOT/man/kvpipe.7" | awk '
		/^\.It / { press = substr($0, length(".It Sy ") + 1) }
		/^\.Ed/ { inside = 0 }
		first { inside = /^kv-/; first = 0 }
		inside { print press "\t" $0 }
		/^\.Bd/ { first = 1 }' | sed 's/\\e/\\/g'
}

# command_line PRESS
command_line() {
	displays | awk -F '\t' -v press="$1" '$1 == press { print $2 }'
}

setup_file() {
	export KV_DEVICE=cpu # a GPU rounds otherwise
	cd "$BATS_FILE_TMPDIR" || exit 1
	ln -s "$DEMO" demo-model
	cp "$FIXTURES/prompt.txt" .
	cp "$ROOT/examples/demo-model/duoattention.tsv" heads.tsv
	bash -c "$(command_line '')"
}

setup() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	ratios='0.3 0.5 0.75 0.9 0.95' above_window='0.3 0.5 0.75 0.9' tokens=960 edit='' more=''
}

# same PRESS FIXTURE [OPTION ...]: for each compression ratio, puts the numbers of the page into the command line and runs it; its
# last program writes kept.kv. Options are those of kvpress_same.py.
same() {
	local line ratio N R press=$1 fixture=$FIXTURES/$2.json
	shift 2
	line=$(command_line "$press" | sed "$edit")
	[ -n "$line" ] || fail "kvpipe(7) has no command line for $press"
	for ratio in $ratios; do
		N=$(awk -v t="$tokens" -v r="$ratio" 'BEGIN { print int(t * (1 - r)) }')
		R=$(awk -v r="$ratio" 'BEGIN { print 1 - r }')
		bash -o pipefail -ec "$(sed "s/\<N\>/$N/g; s/\<R\>/$R/g; s/\<S\>/$ratio/g" <<<"$line") -o kept.kv $more"
		run "$PYTHON" "$ORACLE/kvpress_same.py" "$fixture" "$ratio" kept.kv "$@"
		assert_success
	done
}

@test "knorm keeps the rows of KnormPress" { same KnormPress KnormPress; }
@test "keydiff keeps the rows of KeyDiffPress" { same KeyDiffPress KeyDiffPress; }
@test "lagkv keeps the rows of LagKVPress, also with rows of all partitions competing" {
	same LagKVPress LagKVPress
	edit='s/lagkv/lagkv --cross/'
	same LagKVPress LagKVPress-cross
}

@test "cur keeps the rows of CURPress, also by mean norms over the whole text" {
	same CURPress CURPress
	edit='s/cur/cur --norms mean --local 0/'
	same CURPress CURPress-kv_avg
}

@test "--select chunk keeps the rows of ChunkKVPress, without a window and with one" {
	same 'ChunkKVPress(KeyDiffPress)' ChunkKVPress
	edit='s/keydiff/snapkv/; s/chunk=20/chunk=14/' ratios=$above_window
	same 'ChunkKVPress(KeyDiffPress)' ChunkKVPress-SnapKVPress
}

@test "--select chunk spiky keeps the rows of EntropyGatedChunkKVPress, without a window and with one" {
	same 'EntropyGatedChunkKVPress(KeyDiffPress)' EntropyGatedChunkKVPress
	edit='s/keydiff/snapkv/; s/chunk=10 spiky=4/chunk=14 spiky=3/' ratios=$above_window
	same 'EntropyGatedChunkKVPress(KeyDiffPress)' EntropyGatedChunkKVPress-SnapKVPress
}

# lukv_budgets RATIO: the budgets that a curve gives, as the page says
lukv_budgets() {
	"$PYTHON" -c '
import math, sys
ratio, tokens = float(sys.argv[1]), int(sys.argv[2])
for l in range(4):
    want = [(1 - ratio * (0.5 + 37 * (2 * l + g) % 100 / 200)) * tokens for g in range(2)]
    rows = [math.floor(w) for w in want]
    for g in sorted(range(2), key=lambda g: rows[g] - want[g])[:round(sum(want)) - sum(rows)]:
        rows[g] += 1
    print(*rows)' "$1" "$tokens" >budgets.tsv
}

@test "a budget of its own for each KV head keeps the rows of LUKVPress" {
	local ratio
	for ratio in $ratios; do
		ratios=$ratio
		lukv_budgets $ratio
		same 'LUKVPress(KeyDiffPress)' LUKVPress
	done
}

@test "--threshold with recent rows keeps the rows of DMSPress" {
	local ratio
	for ratio in $ratios; do
		ratios=$ratio edit="s/\<X\>/$(awk -v r="$ratio" 'BEGIN { print 8 * r - 14 }')/"
		same 'DMSPress(KnormPress)' DMSPress
	done
}

@test "qfilter keeps the rows of QFilterPress" {
	"$PYTHON" "$ORACLE/sine_filters.py" 4 2 32 filters.safetensors
	same QFilterPress QFilterPress
}

@test "expected keeps the rows of ExpectedAttentionPress: as it is, with 64 positions, means alone and no values, and under AdaKV" {
	same ExpectedAttentionPress ExpectedAttentionPress
	same 'AdaKVPress(ExpectedAttentionPress)' AdaKVPress-ExpectedAttentionPress
	edit='s/expected/expected --future 64 --no-covariance --no-value-norm/'
	same ExpectedAttentionPress ExpectedAttentionPress-plain
}

@test "expected with statistics from a file keeps the rows of ExpectedAttentionStatsPress" {
	"$PYTHON" "$ORACLE/sine_filters.py" --query-stats 4 4 32 stats.safetensors
	same ExpectedAttentionStatsPress ExpectedAttentionStatsPress
}

@test "capkv keeps the rows of CapPress" { same CapPress CapPress; }

@test "simlayer keeps the rows of SimLayerKVPress" {
	for ratio in $ratios; do
		ratios=$ratio edit="s/\<X\>/$ratio/"
		same SimLayerKVPress SimLayerKVPress
	done
}

@test "leverage keeps the rows of LeverageScorePress with the same projection: none, one of half the width; and under AdaKV" {
	same LeverageScorePress LeverageScorePress
	same 'AdaKVPress(LeverageScorePress)' AdaKVPress-LeverageScorePress
	edit='s/leverage/leverage --sketch 16 --seed 3/'
	same LeverageScorePress LeverageScorePress-16
	edit='s/leverage/leverage --sketch 16 --seed 4/' ratios=0.5
	run ! same LeverageScorePress LeverageScorePress-16
}

@test "recent keeps the rows of StreamingLLMPress" { same StreamingLLMPress StreamingLLMPress; }
@test "snapkv keeps the rows of SnapKVPress" {
	ratios=$above_window
	same SnapKVPress SnapKVPress
}
@test "tova --keep-last keeps the rows of TOVAPress" { same TOVAPress TOVAPress; }
@test "meanmass keeps the rows of ObservedAttentionPress" { same ObservedAttentionPress ObservedAttentionPress; }
@test "pyramid-kvpress keeps the rows of PyramidKVPress" {
	ratios=$above_window
	same PyramidKVPress PyramidKVPress
}
@test "ada-kvpress keeps the rows of AdaKVPress" {
	ratios=$above_window
	same 'AdaKVPress(SnapKVPress)' AdaKVPress
}
@test "a head mask keeps the rows of DuoAttentionPress" { same DuoAttentionPress DuoAttentionPress; }

@test "pyramid-kvpress keeps the rows of PyramidKVPress where its layers differ at every ratio: with a window of 4" {
	edit='s/snapkv/snapkv --window 4/'
	same PyramidKVPress PyramidKVPress-window-4
}

@test "--first-stage keeps the rows of CriticalKVPress, for SnapKV and for ExpectedAttention, and with AdaKV of CriticalAdaKVPress" {
	local all=$ratios
	ratios=$above_window
	same 'CriticalKVPress(SnapKVPress)' CriticalKVPress
	same 'CriticalAdaKVPress(SnapKVPress)' CriticalAdaKVPress
	ratios=$all
	edit='s/snapkv/expected --no-value-norm/; s/stage 0.5 --epsilon 0.0064/stage 0.3/'
	same 'CriticalKVPress(SnapKVPress)' CriticalKVPress-ExpectedAttentionPress
}

@test "compact positions are the rows and keys of KeyRerotationPress" {
	ratios=$above_window
	same 'KeyRerotationPress(SnapKVPress)' KeyRerotationPress --turned full.kv
}

@test "the question's queries without pooling keep the rows and keys of FinchPress" {
	same 'FinchPress(normalize_scores=False)' FinchPress --turned full.kv
}

@test "with the weights of the question's queries these are those of FinchPress by default" {
	same FinchPress FinchPress-normalized --turned full.kv
	edit='s/--weight visible//' ratios=0.5
	run ! same FinchPress FinchPress-normalized --turned full.kv
}

# first_tokens COUNT: has the command lines run so many of the prompt's tokens
first_tokens() {
	tokens=$1
	kv-tokenize -m demo-model prompt.txt | tr ' ' '\n' | grep . | head -n "$tokens" >first.ids
	edit='s/prompt.txt/--ids first.ids/'
}

@test "noncausal keeps the rows of NonCausalAttnPress" {
	first_tokens 768
	same NonCausalAttnPress NonCausalAttnPress
}

@test "compactor keeps the rows of CompactorPress with exact leverage, and under AdaKV" {
	first_tokens 780
	same CompactorPress CompactorPress
	same 'AdaKVPress(CompactorPress)' AdaKVPress-CompactorPress
}

@test "kvzap keeps the rows of KVzapPress, by both kinds of gates, and of DMSPress over it" {
	local ratio
	for kind in linear mlp; do
		"$PYTHON" "$ROOT/tests/bin/mkgate.py" $kind demo-model kvzap
		[ $kind = mlp ] || same KVzapPress KVzapPress-linear
	done
	same KVzapPress KVzapPress
	for ratio in $ratios; do
		ratios=$ratio edit="s/\<X\>/$(awk -v r="$ratio" 'BEGIN { print 0.8 * r - 0.5 }')/"
		same 'DMSPress(KVzapPress)' DMSPress-KVzapPress
	done
}

@test "fastkvzip keeps the rows of FastKVzipPress, over all layers and in each" {
	"$PYTHON" "$ROOT/tests/bin/mkgate.py" fastkvzip demo-model fastkvzip
	same FastKVzipPress FastKVzipPress
	same 'FastKVzipPress(layerwise=True)' FastKVzipPress-layerwise
}

@test "the repeated context keeps the rows of KVzipPress, over all layers and in each" {
	same KVzipPress KVzipPress
	same 'KVzipPress(layerwise=True)' KVzipPress-layerwise
	same 'KVzipPress(kvzip_plus_normalization=True)' KVzipPress-plus
}

@test "composite budgets keep the rows of KVComposePress, a global one those of its unstructured variant" {
	# at 0.9 the last place goes to one of two equal means
	ratios='0.5 0.75'
	same KVComposePress KVComposePress
	same 'KVComposePress(structured=False)' KVComposePress-unstructured
	ratios=0.9 edit='s/\<R\>/0.0999/' # 767 of 7680 rows
	same 'KVComposePress(structured=False)' KVComposePress-unstructured
}

@test "two evictions keep the rows of ComposedPress" {
	tokens=720
	same 'ComposedPress([KeyDiffPress, KnormPress])' ComposedPress
}

@test "an eviction for each ratio keeps the rows of PerLayerCompressionPress" {
	same 'PerLayerCompressionPress(KeyDiffPress)' PerLayerCompressionPress
}

@test "eviction during prefill keeps the rows of BlockPress and ChunkPress in the first layer" {
	ratios='0.5 0.75'
	same 'BlockPress(KeyDiffPress)' BlockPress --layers 1
	same 'ChunkPress(KeyDiffPress)' ChunkPress --layers 1
}

@test "eviction while decoding keeps the rows of DecodingPress, and generates the same tokens" {
	more='-n 8 --ignore-eos --ids >ids'
	same 'PrefillDecodingPress(TOVAPress, DecodingPress(TOVAPress))' PrefillDecodingPress --ids ids
	edit='s/tova keep-last/keydiff/'
	same 'PrefillDecodingPress(TOVAPress, DecodingPress(TOVAPress))' PrefillDecodingPress-KeyDiffPress --ids ids
}

@test "eviction after every three tokens keeps the rows of DecodingPress with that interval" {
	more='--every 3 -n 8 --ignore-eos --ids >ids' edit='s/tova keep-last/keydiff/'
	same 'PrefillDecodingPress(TOVAPress, DecodingPress(TOVAPress))' PrefillDecodingPress-3 --ids ids
}

@test "a rate of all tokens keeps the rows of CompressionRatioDecodingPress, and generates the same tokens" {
	ratios='0.5 0.75' more='-n 8 --ignore-eos --ids >ids'
	same 'CompressionRatioDecodingPress(KeyDiffPress)' CompressionRatioDecodingPress --ids ids
}

@test "every command line of the page is compared here" {
	local press
	while read -r press; do
		grep -qF "same $press " "$BATS_TEST_FILENAME" || grep -qF "same '$press' " "$BATS_TEST_FILENAME" ||
			fail "$press is not compared"
	done < <(displays | cut -f 1 | grep . | sort -u)
}

@test "a row or two more or less, or others, are noticed" {
	edit='s/keydiff/knorm/' ratios=0.5
	run ! same KeyDiffPress KeyDiffPress
	edit='s/N/479/'
	run ! same KeyDiffPress KeyDiffPress
	edit='s/snapkv/snapkv --kernel 7/'
	run ! same 'KeyRerotationPress(SnapKVPress)' KeyRerotationPress --turned full.kv
}
