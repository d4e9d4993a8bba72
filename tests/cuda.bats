#!/usr/bin/env bats
# bats file_tags=slow
# --device cuda: whole pipelines on the emulated GPU (tests/cuda) beside the CPU, and what is said where there is none
#
# Products on a GPU are of numbers rounded to 16 bits, so keys, scores and logits differ a little: kept rows may differ where scores are
# nearly the same (tests/oracle/kept.py says how nearly), texts may not.

load helper

setup_file() {
	load helper
	PATH=$O/emulated:$PATH
	cd "$BATS_FILE_TMPDIR" || return
	cat >doc.txt <<-'END'
		The quiet baker waited by the harbour. The access code of Marlow is K742. The old farmer carried the letter to the market after lunch.
		There was a green boat behind the mill. The secret word of Calton is falcon. Nobody waited near the quiet bridge on Monday.
		Question: what is the access code of Marlow?
	END
	printf 'Answer:' >>doc.txt
	for device in cpu cuda; do
		kv-prefill -m "$DEMO" --device $device --observe 16 --mass -o $device.kv doc.txt
	done
}

setup() {
	PATH=$O/emulated:$PATH
	cd "$BATS_TEST_TMPDIR" || exit 1
	doc=$BATS_FILE_TMPDIR/doc.txt
	cpu=$BATS_FILE_TMPDIR/cpu.kv
	cuda=$BATS_FILE_TMPDIR/cuda.kv
}

# say DEVICE SNAPSHOT [OPTION ...]: what the model says
say() {
	local device=$1 snapshot=$2
	shift 2
	kv-decode -m "$DEMO" --device "$device" -n 8 --stop . "$@" "$snapshot"
}

# all_positions FILE
all_positions() {
	see "$1" '[list(p) for l in s.layers for p in l.positions]'
}

# exchanged ONE TWO: rows that only the first has; both have the same number in each KV head
exchanged() {
	[ "$(see "$1" '[n for l in s.layers for n in l.rows]')" = "$(see "$2" '[n for l in s.layers for n in l.rows]')" ] || return
	"$PYTHON" -c 'import sys; a, b = (eval("[" + x.replace("] [", "], [") + "]") for x in sys.argv[1:])
print(sum(len(set(p) - set(q)) for p, q in zip(a, b)))' "$(all_positions "$1")" "$(all_positions "$2")"
}

@test "a prompt that is prefilled on the GPU has the rows of the CPU, and nearly its keys, values and attention" {
	kv-diff --json --device cpu "$cpu" "$cuda" >on-cpu
	[ "$(json on-cpu '(o["only_a"], o["only_b"], o["tokens"])')" = "(0, 0, 'same')" ]
	[ "$(json on-cpu 'o["output_error"] < 0.01 and 0.999 < o["mass"] < 1.001')" = True ]
	kv-diff --json --device cuda "$cpu" "$cuda" >on-cuda
	[ "$(json on-cuda 'o["output_error"] < 0.01 and 0.999 < o["mass"] < 1.001')" = True ]
	assert_equal "$(say cuda "$cuda")" ' K742'
}

@test "the order in which threads and blocks run changes no byte" {
	head -c 100 "$doc" >short.txt
	for n in 0 1 2; do
		kv-prefill -m "$DEMO" --device cuda:$n --observe 4 --mass -o $n.kv short.txt
		kv-score --method snapkv --device cuda:$n $n.kv | kv-evict --budget 8 | kv-quantize1b --device cuda:$n -o $n.kv
	done
	cmp 0.kv 1.kv
	cmp 0.kv 2.kv
}

@test "what is scored on the GPU is evicted as on the CPU, and the text is the same" {
	for method in snapkv tova h2o recent knorm keydiff; do
		for device in cpu cuda; do
			kv-score --method $method --device $device "${!device}" -o $device.scored
			kv-evict --budget 30 $device.scored -o $device.kv
			say $device $device.kv >$device.text
		done
		echo $method: "$("$PYTHON" "$ORACLE/kept.py" cpu.scored cpu.kv cuda.kv 0.01)" rows differ
		[ "$("$PYTHON" "$ORACLE/kept.py" cpu.scored cpu.kv cuda.kv 0.01)" -le 4 ]
		assert_equal "$(cat cuda.text)" "$(cat cpu.text)"
	done
}

@test "tokens that go on to later layers are chosen as on the CPU" {
	for how in 'tsp layer=1 window=8' 'pyramidinfer decay=0.5' 'gemfilter layer=2 rate=0.5'; do
		for device in cpu cuda; do
			kv-prefill -m "$DEMO" --device $device --select "$how" -o $device.kv "$doc"
			say $device $device.kv >$device.text
		done
		assert_equal "$(all_positions cuda.kv)" "$(all_positions cpu.kv)"
		assert_equal "$(cat cuda.text)" "$(cat cpu.text)"
	done
	assert_equal "$(kv-tsp-layer -m "$DEMO" --device cuda "$doc" | tail -n 1)" \
	    "$(kv-tsp-layer -m "$DEMO" --device cpu "$doc" | tail -n 1)"
}

@test "eviction in process, while a prompt comes and while text is generated" {
	for device in cpu cuda; do
		kv-prefill -m "$DEMO" --device $device --score 'snapkv window=8' --evict 'budget=40' -o $device.layers "$doc"
		kv-prefill -m "$DEMO" --device $device --chunk 40 --score 'keydiff' --evict 'budget=40' -o $device.chunks "$doc"
		kv-score --method h2o --device $device "${!device}" | kv-evict --budget 40 -o $device.h2o
		say $device $device.h2o --score h2o --evict 'budget=40 recent=10' -o $device.after >$device.text
	done
	for which in layers chunks after; do
		echo $which: "$(exchanged cpu.$which cuda.$which)" rows differ
		[ "$(exchanged cpu.$which cuda.$which)" -le 4 ]
	done
	assert_equal "$(cat cuda.text)" "$(cat cpu.text)"
}

# everything SNAPSHOT: what eviction in process and in a pipe must leave alike
everything() {
	logical "$1"
	see "$1" '[s.logits, [(l.mass, l.queries) for l in s.layers]]'
}

@test "a layer that is scored while the next one runs is the one that a pipe makes, in any order of threads and blocks" {
	for method in "snapkv window=8" "tova" "h2o reduce=max" meanmass "keydiff" "cur" "lagkv lag=9" "recent sink=2"; do
		in_sample 4 || continue
		# shellcheck disable=SC2046,SC2086 # words
		kv-score --device cuda --method ${method%% *} $(options "${method#"${method%% *}"}") "$cuda" | kv-evict --rate 0.3 --keep-queries -o pipe.kv
		kv-prefill -m "$DEMO" --device cuda --observe 16 --mass --score "$method" --evict rate=0.3 -o 0.kv "$doc"
		assert_equal "$(everything 0.kv)" "$(everything pipe.kv)"
		kv-prefill -m "$DEMO" --device cuda --observe 16 --mass --chunk 200 --score "$method" --evict rate=0.3 -o 1.kv "$doc"
		assert_equal "$(everything 1.kv)" "$(everything pipe.kv)"
	done
	assert_equal "$(see 0.kv '[(e.kind, e.l0) for e in s.events]')" "(1, 0) (1, 1) (3, 0) (1, 2) (3, 1) (1, 3) (3, 2) (3, 3)"
	for select in 'tsp layer=1' 'gemfilter layer=0 rate=0.5' 'pyramidinfer min=9'; do
		in_sample 4 || continue
		kv-prefill -m "$DEMO" --device cuda --observe 8 --mass --select "$select" "$doc" | kv-score --device cuda --method snapkv |
		    kv-evict --rate 0.6 --keep-queries -o pipe.kv
		kv-prefill -m "$DEMO" --device cuda --observe 8 --mass --select "$select" --score snapkv --evict rate=0.6 -o 1.kv "$doc"
		assert_equal "$(everything 1.kv)" "$(everything pipe.kv)"
	done
	for n in 0 1 2; do
		kv-prefill -m "$DEMO" --device cuda:$n --observe 4 --score "snapkv window=8" --evict rate=0.3 -o $n.kv "$doc"
	done
	cmp 0.kv 1.kv
	cmp 0.kv 2.kv
}

@test "rows that the GPU chooses are those of the host, with every budget, and after others were dropped" {
	local method evict n=0
	printf '1 0\n0 1\n0 0\n1 1\n' >mask
	while IFS=: read -r method evict; do
		in_sample 4 || continue
		# shellcheck disable=SC2046,SC2086 # words
		kv-score --device cuda --method ${method%% *} $(options "${method#"${method%% *}"}") "$cuda" |
		    kv-evict -q $(options "$evict") --keep-queries -o pipe.kv
		kv-prefill -q -m "$DEMO" --device cuda:$((n++ % 3)) --observe 16 --mass --score "$method" --evict "$evict" -o once.kv "$doc"
		assert_equal "$(everything once.kv)" "$(everything pipe.kv)"
	done <<-'END'
		snapkv window=8:budget=20 sink=3 recent=12
		snapkv window=8 pool=max order=reduce-first:budget=4
		snapkv window=8 kernel=7 pool=max reduce=max over-queries=max:rate=0.3 policy=pyramid
		snapkv window=4:budget=30 head-mask=mask sink=4 recent=9
		snapkv window=4:budget=30 skip-layers=1
		snapkv window=8 weight=visible:budget=20
		tova keep-last:budget=20 policy=pyramid-exact
		tova:rate=0.2 select=layer
		h2o:rate=0.2 recent=5
		h2o reduce=mean:budget=20 policy=ada
		meanmass reduce=max:budget=25 sink=1
		knorm:rate=0.5 of=tokens
	END
	kv-score --method snapkv --device cuda "$cuda" | kv-evict --budget 60 --policy ada --keep-queries -o ragged.kv
	for method in h2o tova keydiff; do
		in_sample 4 || continue
		cp ragged.kv step.kv
		for n in 0 1 2; do
			kv-score --device cuda --method $method step.kv | kv-evict --budget 30 --keep-queries -o loop.kv
			[ $n = 2 ] || kv-decode -m "$DEMO" --device cuda -n 1 --ignore-eos --observe 4 --mass -o step.kv loop.kv
		done
		kv-decode -m "$DEMO" --device cuda -n 2 --ignore-eos --observe 4 --mass --score $method --evict budget=30 -o once.kv ragged.kv
		assert_equal "$(everything once.kv)" "$(everything loop.kv)"
	done
}

# down PROGRAM [OPTION ...]: how many bytes come from the GPU
down() {
	KV_EMULATED_TOTALS=1 "$1" -q -m "$DEMO" --device cuda -o out.kv "${@:2}" 2>&1 >out | sed -n 's/^emulator: .* down (\([0-9]*\) bytes).*/\1/p'
}

@test "of a choice the rows that stay come from the GPU, not what the rows are scored by" {
	local rows budget=8 method none chosen scored
	rows=$(see "$cuda" 's.layers[0].rows[0]')
	for method in "snapkv window=4" tova h2o meanmass; do
		none=$(down kv-prefill --mass --score recent --evict budget=$budget "$doc")
		chosen=$(($(down kv-prefill --mass --score "$method" --evict budget=$budget "$doc") - none))
		scored=$(($(down kv-prefill --mass --score "$method" --evict "budget=$budget policy=ada alpha=1" "$doc") - none))
		# 4 layers: for 2 KV heads the rows that stay, and whether a score is not a number; for 4 query heads a number for each row
		assert_equal "$method: $chosen $scored" "$method: $((4 * 2 * (budget + 1) * 4)) $((4 * 4 * rows * 4))"
	done
	none=$(down kv-decode -n 6 --mass --ignore-eos --score recent --evict budget=40 "$cuda")
	chosen=$(($(down kv-decode -n 6 --mass --ignore-eos --score h2o --evict budget=40 "$cuda") - none))
	assert_equal "$chosen" $((7 * 4 * 2 * (40 + 1) * 4))
}

@test "learned tokens look at what they look at on the CPU, and what they evict layer by layer a pipe evicts, in any order of threads" {
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" learned --model "$DEMO" --tokens 9 --rank 4 --dtype bf16 --std 0.1
	for device in cpu cuda; do
		kv-observe -m "$DEMO" --device $device --lookahead learned -o $device.seen "${!device}"
		kv-score --method lookahead --device $device -o $device.scored $device.seen
		kv-evict --rate 0.3 -o $device.kv $device.scored
	done
	errors_below 5e-3 "$PYTHON" "$ORACLE/learned_rows.py" "$DEMO" learned cuda.seen
	[ "$("$PYTHON" "$ORACLE/kept.py" cpu.scored cpu.kv cuda.kv 0.01)" -le 4 ]
	random_model f32 --layers 2 --hidden 48 --heads 8 --kv-heads 2 --head-dim 6 --ffn 72 --dtype f32 --std 0.15 --bias
	"$PYTHON" "$ROOT/tests/bin/mkadapter.py" wide --model f32
	head -c 100 "$doc" | kv-prefill -m f32 --device cuda | kv-observe -m f32 --device cuda --lookahead wide -o cuda.seen
	errors_below 2e-6 "$PYTHON" "$ORACLE/learned_rows.py" f32 wide cuda.seen
	for select in "" "'tsp layer=1'" "'gemfilter layer=0 rate=0.5'" "'pyramidinfer min=9'"; do
		in_sample 4 || continue
		eval "more=(${select:+--select $select})"
		# shellcheck disable=SC2154 # eval sets it
		kv-prefill -m "$DEMO" --device cuda --observe 8 --mass "${more[@]}" -o full.kv "$doc"
		kv-observe -m "$DEMO" --device cuda --lookahead learned full.kv | kv-score --device cuda --method lookahead |
		    kv-evict --rate 0.3 -o pipe.kv
		for n in 0 1 2; do
			kv-prefill -m "$DEMO" --device cuda:$n --observe 8 --mass "${more[@]}" --score lookahead=learned --evict rate=0.3 -o $n.kv "$doc"
		done
		assert_equal "$(logical 0.kv)" "$(logical pipe.kv)"
		assert_equal "$(see 0.kv '[s.logits, [l.mass for l in s.layers]]')" "$(see pipe.kv '[s.logits, [l.mass for l in s.layers]]')"
		cmp 0.kv 1.kv
		cmp 0.kv 2.kv
	done
	kv-prefill -m "$DEMO" --device cuda --chunk 40 --score lookahead=learned --evict budget=30 -o cuda.kv "$doc"
	kv-prefill -m "$DEMO" --device cpu --chunk 40 --score lookahead=learned --evict budget=30 -o cpu.kv "$doc"
	[ "$(exchanged cpu.kv cuda.kv)" -le 4 ]
}

# blocking LAYERS OPTION ...: how many calls for memory wait for the GPU, in a prompt through so many layers
blocking() {
	KV_EMULATED_TOTALS=1 kv-prefill -m "m$1" --device cuda "${@:2}" -o out.kv "$doc" 2>&1 | sed -n 's/^emulator: .*, \([0-9]*\) blocking.*/\1/p'
}

@test "layers are allocated, evicted and moved without calls that wait for the GPU" {
	for layers in 3 9; do
		random_model m$layers --layers $layers --hidden 32 --heads 4 --kv-heads 2 --head-dim 16 --ffn 48
	done
	for how in "" "--score snapkv --evict rate=0.3" "--score snapkv --evict rate=0.3 --mass" "--chunk 60 --score keydiff --evict budget=40" \
		"--select 'tsp layer=1 window=8'"; do
		eval "more=($how)"
		[ "$(blocking 3 "${more[@]}")" -le 12 ]
		assert_equal "$(blocking 9 "${more[@]}")" "$(blocking 3 "${more[@]}")"
	done
	mv out.kv pooled.kv
	export KV_EMULATED_POOLS=0
	[ "$(blocking 9 "${more[@]}")" -gt "$(blocking 3 "${more[@]}")" ]
	kv-prefill -m m3 --device cuda "${more[@]}" -o out.kv "$doc"
	cmp out.kv pooled.kv
}

# did WHAT LAYERS OPTION ...: how many kernels or products of cuBLAS, in a prompt through so many layers
did() {
	KV_EMULATED_TOTALS=1 kv-prefill -m "m$2" --device cuda "${@:3}" -o out.kv "$doc" 2>&1 | sed -n "s/^emulator: \\(.*, \\)*\\([0-9]*\\) $1,.*/\\2/p"
}

@test "a layer of a prompt is six products, gate and up being one, and five kernels, none of which only converts" {
	local dtype
	for dtype in bf16 f16; do
		for layers in 1 3; do
			random_model m$layers --layers $layers --hidden 32 --heads 4 --kv-heads 2 --head-dim 32 --ffn 48 --dtype $dtype
		done
		assert_equal "$dtype: $(($(did products 3) - $(did products 1)))" "$dtype: $([ $dtype = bf16 ] && echo 12 || echo 14)"
		[ $dtype = f16 ] || assert_equal "$(($(did kernels 3) - $(did kernels 1)))" 10
	done
}

@test "chunks whose layers are scored while the next one runs leave what a loop in the shell leaves, and its log" {
	seq 5 74 >all.ids
	split -l 32 all.ids piece.
	for piece in piece.*; do
		# shellcheck disable=SC2046 # words
		kv-prefill -m "$DEMO" --device cuda --ids --observe 8 $([ ! -e loop.kv ] || echo -r loop.kv) "$piece" |
		    kv-score --device cuda --method snapkv | kv-evict -q --keep-queries --budget 20 -o next.kv
		mv next.kv loop.kv
	done
	kv-prefill -m "$DEMO" --device cuda --ids --chunk 32 --observe 8 --score snapkv --evict budget=20 -o chunked.kv all.ids
	assert_equal "$(everything chunked.kv)" "$(everything loop.kv)"
	assert_equal "$(see chunked.kv s.events)" "$(see loop.kv s.events)"
}

@test "while text is generated, eviction after each token is a loop of the programs" {
	for method in "snapkv window=3" "h2o" "keydiff"; do
		cp "$cuda" step.kv
		for step in 0 1 2 3 4 5 6; do
			# shellcheck disable=SC2046,SC2086 # words
			kv-score --device cuda --method ${method%% *} $(options "${method#"${method%% *}"}") step.kv | kv-evict --budget 40 --keep-queries -o loop.kv
			[ $step = 6 ] || kv-decode -m "$DEMO" --device cuda -n 1 --ignore-eos --observe 4 --mass -o step.kv loop.kv
		done
		kv-decode -m "$DEMO" --device cuda -n 6 --ignore-eos --observe 4 --mass --score "$method" --evict budget=40 -o once.kv "$cuda"
		assert_equal "$(everything once.kv)" "$(everything loop.kv)"
	done
}

@test "tokens that are run without being stored pay the same attention" {
	for device in cpu cuda; do
		kv-observe -m "$DEMO" --device $device --repeat-context "$cpu" | kv-score --method kvzip -o $device.scored
		kv-evict --budget 30 $device.scored -o $device.kv
		echo 5 6 7 8 | kv-observe -m "$DEMO" --device $device --ids-from - "$cpu" | kv-score --device $device --method snapkv -o $device.own
		kv-evict --budget 30 $device.own -o $device.own.kv
	done
	[ "$("$PYTHON" "$ORACLE/kept.py" cpu.scored cpu.kv cuda.kv 0.01)" -le 4 ]
	[ "$("$PYTHON" "$ORACLE/kept.py" cpu.own cpu.own.kv cuda.own.kv 0.01)" -le 4 ]
}

@test "retrieval reads as much as on the CPU, and says the same, also where rows stay in the file" {
	for device in cpu cuda; do
		kv-quantize1b --device $device "$cpu" | kv-index --device $device --pages --clusters --cluster-count 8 \
		    --low-rank --rank 24 --outliers 2 --chunk-rows 4 -o $device.kv
	done
	for method in fier quest quest-eval cluster shadow; do
		in_sample 5 || continue
		for device in cpu cuda; do
			say $device $device.kv --retrieve "$method budget=32" --stats $device.json --audit >$device.text
			kv-decode -m "$DEMO" --device $device --retrieve "$method budget=32" -n 40 --ids --ignore-eos -o near.kv $device.kv >near.ids
			kv-decode -m "$DEMO" --device $device --retrieve "$method budget=32" -n 40 --ids --ignore-eos -o far.kv --offload $device.kv | cmp - near.ids
			cmp near.kv far.kv
		done
		assert_equal "$(cat cuda.text)" "$(cat cpu.text)"
		assert_equal "$(json cuda.json 'o["all"]["rows"]')" "$(json cpu.json 'o["all"]["rows"]')"
		for key in recall overlap; do
			[ "$(json cuda.json "abs(o['all']['$key'] - $(json cpu.json "o['all']['$key']")) < 0.02")" = True ]
		done
	done
	kv-diff --device cuda --json --retrieve 'fier budget=32' cuda.kv >cuda.json
	kv-diff --device cpu --json --retrieve 'fier budget=32' cuda.kv >cpu.json
	[ "$(json cuda.json "abs(o['all']['recall'] - $(json cpu.json 'o["all"]["recall"]')) < 0.02")" = True ]
}

@test "a retrieval head chooses as on the CPU, also of rows that stay in the file" {
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$DEMO" --layers 0,1,3 --heads 4 --kv-heads 2
	for device in cpu cuda; do
		kv-prefill -m "$DEMO" --device $device --retrieval-head head -o $device.kv "$doc"
		say $device $device.kv --retrieve 'specontext budget=32 head=head sink=4' --stats $device.json >$device.text
		say $device $device.kv --retrieve 'specontext budget=32 head=head sink=4' --offload >$device.offload
		cmp $device.text $device.offload
	done
	assert_equal "$(cat cuda.text)" "$(cat cpu.text)"
	assert_equal "$(json cuda.json 'o["all"]["rows"], o["all"]["index_bytes"]')" "$(json cpu.json 'o["all"]["rows"], o["all"]["index_bytes"]')"
}

@test "rows that stay in the file go to the GPU in as many copies, however many they are" {
	local budget up=()
	kv-prefill -m "$DEMO" "$doc" | kv-quantize1b -g 16 -o bits.kv
	for budget in 16 32 48; do
		up+=("$(KV_EMULATED_TOTALS=1 kv-decode -q -m "$DEMO" --device cuda -n 8 --ignore-eos --retrieve "fier budget=$budget" --offload bits.kv 2>&1 >/dev/null |
			sed -n 's/^emulator: .* copies: \([0-9]* up\).*/\1/p')")
	done
	assert_regex "${up[0]}" '^[1-9][0-9]* up$'
	assert_equal "${up[1]}" "${up[0]}"
	assert_equal "${up[2]}" "${up[0]}"
}

@test "indexes of the same keys are the same: bits and pages to the byte" {
	for device in cpu cuda; do
		kv-quantize1b --device $device "$cpu" | kv-index --device $device --pages -o $device.kv
	done
	cmp cpu.kv cuda.kv
}

@test "with a budget for all rows the text is that of full attention" {
	full=$(say cuda "$cuda")
	kv-score --method snapkv --device cuda "$cuda" | kv-evict --budget 1000 -o kept.kv
	assert_equal "$(say cuda kept.kv)" "$full"
	kv-quantize1b --device cuda "$cuda" -o bits.kv
	assert_equal "$(say cuda bits.kv --retrieve 'fier budget=1000')" "$full"
}

@test "questions to one snapshot on the GPU are answered as by programs of their own" {
	local q
	printf '%s\n' "Question: what is the access code of Marlow?" "Nobody waited." "Question: what is the access code of Marlow?" >asked
	kv-decode -m "$DEMO" --device cuda -n 6 --ids --questions asked "$cuda" >got
	while IFS= read -r q; do
		printf %s "$q" >one
		kv-prefill -m "$DEMO" --device cuda -r "$cuda" one | kv-decode -m "$DEMO" --device cuda -n 6 --ids | as_line --ids
	done <asked | cmp got -
}

@test "rows that are reused on the GPU, its own and those of the CPU, give what it prefills" {
	local from
	{ sed -e 's/Marlow?/Calton?/' -e 's/access code of Calton/secret word of Calton/' "$doc"; } >other.txt
	kv-prefill -m "$DEMO" --device cuda --observe 8 -o cold.kv other.txt
	for from in "$cuda" "$cpu"; do
		kv-prefill -m "$DEMO" --device cuda --observe 8 --reuse "$from" -o warm.kv other.txt
		less 50 "$(kv-info --json warm.kv | json - 'o["provenance"][-1]["options"]["reused"]')"
		kv-diff --json --device cpu cold.kv warm.kv >said
		[ "$(json said '(o["only_a"], o["only_b"], o["tokens"])')" = "(0, 0, 'same')" ]
		[ "$(json said 'o["output_error"] < 0.01 and 0.999 < o["mass"] < 1.001')" = True ]
		assert_equal "$(say cuda warm.kv)" "$(say cuda cold.kv)"
		kv-prefill -m "$DEMO" --device cuda --reuse "$from" --score knorm --evict rate=0.5 -o half.kv other.txt
		assert_equal "$(see half.kv 's.layers[3].rows')" "$(kv-prefill -m "$DEMO" --device cuda --score knorm --evict rate=0.5 -o want.kv other.txt; see want.kv 's.layers[3].rows')"
	done
}

@test "a snapshot made on one device is used on the other" {
	assert_equal "$(say cpu "$cuda")" "$(say cuda "$cpu")"
	printf ' K742.\nQuestion: what is the secret word of Calton?\nAnswer:' >more.txt
	kv-prefill -m "$DEMO" --device cuda --resume "$cpu" -o more.kv more.txt
	assert_equal "$(say cpu more.kv)" ' falcon'
	kv-prefill -m "$DEMO" --device cpu --resume "$cuda" -o more.kv more.txt
	assert_equal "$(say cuda more.kv)" ' falcon'
}

@test "steps that are launched from a captured graph give the text and the snapshot of steps that are not, with ragged heads too" {
	kv-score --method snapkv --device cuda "$cuda" | kv-evict --budget 20 --policy ada -o ragged.kv
	ln -s "$cuda" even.kv
	for which in even.kv "-t 0.9 even.kv" ragged.kv; do
		# shellcheck disable=SC2086
		run --separate-stderr kv-decode -v -m "$DEMO" --device cuda -n 6 --ignore-eos -o captured.kv $which
		assert_regex "$stderr" ': 5 steps launched'
		text=$output
		export KV_EMULATED_FAILURE=cudaStreamBeginCapture:1
		# shellcheck disable=SC2086
		run --separate-stderr kv-decode -v -m "$DEMO" --device cuda -n 6 --ignore-eos -o plain.kv $which
		unset KV_EMULATED_FAILURE
		assert_regex "$stderr" 'no step is launched from a captured graph: .*; steps are not captured: cudaStreamBeginCapture: cudaErrorUnknown'
		assert_equal "$output" "$text"
		cmp captured.kv plain.kv
	done
}

@test "steps are launched from a captured graph where an eviction follows each, too" {
	local method
	for method in recent keydiff h2o; do
		run --separate-stderr kv-decode -v -m "$DEMO" --device cuda -n 6 --ignore-eos --score $method --evict budget=40 -o captured.kv "$cuda"
		assert_regex "$stderr" ': 5 steps launched'
		text=$output
		KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 kv-decode -m "$DEMO" --device cuda -n 6 --ignore-eos --score $method --evict budget=40 \
			-o plain.kv "$cuda" >plain
		assert_equal "$(cat plain)" "$text"
		cmp captured.kv plain.kv
	done
}

@test "steps that retrieve by keys in one bit are launched from a captured graph, and read as much as steps that are not" {
	local f options words times text share
	kv-score --method snapkv --device cuda "$cuda" | kv-evict --budget 40 --policy ada | kv-quantize1b -o ragged.kv
	kv-quantize1b -g 16 -o bits.kv "$cuda"
	mkdir captured plain
	# no step is launched from a captured graph while KV heads have less than the budget and others more
	while read -r times words options; do
		in_sample 4 || continue
		# shellcheck disable=SC2086 # words
		KV_REPORT=captured.report run --separate-stderr kv-decode -v -m "$DEMO" --device cuda --retrieve "fier ${words/,/ }" --ignore-eos -o captured $options
		assert_success
		assert_regex "$stderr" ": $times steps launched"
		text=$output
		share=$(grep 'fier: read' <<<"$stderr")
		# shellcheck disable=SC2086
		KV_REPORT=plain.report KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 run --separate-stderr kv-decode -v -m "$DEMO" --device cuda \
			--retrieve "fier ${words/,/ }" --ignore-eos -o plain $options
		assert_equal "$output" "$text"
		assert_equal "$(grep 'fier: read' <<<"$stderr")" "$share"
		diff -r captured plain
		for f in captured plain; do
			json $f.report 'o["flops"], o["traffic"]' >$f.work
			rm $f.report
		done
		cmp captured.work plain.work
	done <<-'END'
		39 budget=20 -n 40 bits.kv
		[1-9] budget=45,dense=0 -n 16 ragged.kv bits.kv
	END
	run --separate-stderr kv-decode -v -m "$DEMO" --device cuda --retrieve 'fier budget=20' --ignore-eos -n 3 --stats stats.json bits.kv
	refute_regex "$stderr" 'steps launched'
}

@test "models of other families say on the GPU what they say on the CPU" {
	local device name
	"$PYTHON" -c 'import random
r = random.Random(3)
print(*[r.randrange(8, 1500) for _ in range(40)])' >ids
	for name in qwen2 mixtral qwen3-yarn phi3-partial smollm3-biases granite qwen2_moe olmo2 mistral-window gemma2 gemma3 glm4_moe ministral3 glm4 starcoder2 granitemoe phi nemotron cohere2 gpt_neox phimoe falcon-40b stablelm-12b olmo-clip cohere-normed internlm2 minimax_m2 apertus minicpm cwm; do
		in_sample 4 || continue
		"$PYTHON" "$ROOT/tests/bin/mkfamily.py" $name m "$DEMO/tokenizer.json"
		for device in cpu cuda; do
			kv-prefill -m m --device $device --ids --dtype f32 --observe 8 --mass -o $device.kv ids
			kv-decode -m m --device $device --ids --ignore-eos -n 12 $device.kv >$device.ids
		done
		diff cpu.ids cuda.ids
		[ "$(kv-diff --json --device cpu cpu.kv cuda.kv | json - 'o["output_error"] < 1e-4')" = True ]
	done
}

@test "a GPU that is not there" {
	run -1 kv-prefill -m "$DEMO" --device cuda:3 "$doc"
	assert_output 'kv-prefill: no CUDA device: there is no GPU number 3, only 0 to 2'
	export CUDA_VISIBLE_DEVICES=
	run -1 "$O/kv-prefill" -m "$DEMO" --device cuda "$doc"
	assert_regex "$output" '^kv-prefill: no CUDA device: .+$'
	run --separate-stderr "$O/kv-prefill" -v -m "$DEMO" --device auto -o auto.kv "$doc"
	assert_regex "$stderr" 'device: cpu, '
}

@test "what does not fit is refused before the weights are loaded, with the sum" {
	export KV_EMULATED_MEMORY=20
	run -1 kv-prefill -m "$DEMO" --device cuda "$doc"
	assert_regex "$output" "^kv-prefill: cuda: needs 6[0-9]\.. MiB: weights 1\.9, cache of [0-9]+ tokens 0\.1, \
activations .*, scratch 64\..; 20\.0 MiB are free$"
	run -1 kv-decode -m "$DEMO" --device cuda "$cpu"
	assert_regex "$output" '^kv-decode: cuda: needs .* MiB are free$'
	KV_EMULATED_MEMORY=100 kv-prefill -m "$DEMO" --device cuda -o fits.kv "$doc"
}

@test "several at once on the GPU answer as each alone, and leave the same rows but for rounding" {
	local f options
	kv-score --method knorm "$cuda" | kv-evict --policy ada --alpha 0 --rate 0.5 | kv-quantize1b -g 16 -o less.kv
	kv-quantize1b -g 16 -o all.kv "$cuda"
	kv-prefill -m "$DEMO" --device cuda --observe 16 --mass <(head -n 1 "$doc") | kv-quantize1b -g 16 -o short.kv
	mkdir one all
	while read -r options; do
		in_sample 4 || continue
		eval "more=($options)"
		for f in all less short; do
			kv-decode -q -m "$DEMO" --device cuda -n 8 "${more[@]}" -o one/$f.kv $f.kv | as_line "${more[@]}"
		done >want
		kv-decode -q -m "$DEMO" --device cuda -n 8 "${more[@]}" -o all all.kv less.kv short.kv >got
		cmp want got
		for f in all less short; do
			errors_below 1e-2 "$PYTHON" "$ORACLE/same.py" one/$f.kv all/$f.kv
		done
	done <<-'END'
		--stop .
		--ids --ignore-eos
		--retrieve 'fier budget=20' --ignore-eos
		--score recent --evict budget=30 --ignore-eos
	END
	kv-decode -m "$DEMO" --device cuda --stop . all.kv short.kv all.kv | grep -c K742 | grep -qx 2
}

@test "steps of many are launched from a captured graph, while the same texts take part, and give what steps that are not give" {
	local f options times
	head -n 1 "$doc" >short.txt
	kv-prefill -m "$DEMO" --device cuda --mass -o short.kv short.txt
	kv-score --method snapkv --device cuda "$cuda" | kv-evict --budget 20 --policy ada -o ragged.kv
	mkdir captured plain
	# three until one says a period; with a budget all of them are in the same state at once
	while read -r times options; do
		in_sample 4 || continue
		# shellcheck disable=SC2086 # words
		run --separate-stderr kv-decode -v -m "$DEMO" --device cuda $options -o captured "$cuda" short.kv ragged.kv
		assert_success
		assert_regex "$stderr" ": $times steps launched"
		# shellcheck disable=SC2086
		KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 kv-decode -q -m "$DEMO" --device cuda $options -o plain "$cuda" short.kv ragged.kv >said
		assert_equal "$(cat said)" "$output"
		for f in cuda short ragged; do
			cmp captured/$f.kv plain/$f.kv
		done
	done <<-'END'
		7 -n 8 --ignore-eos
		7 -t 0.7 -n 8 --ignore-eos
		[1-9][0-9]* -n 12 --stop .
		7 -n 8 --ignore-eos --score recent --evict budget=15
		7 -n 8 --ignore-eos --score h2o --evict budget=15
	END
}

@test "9, 12 and 33 texts at once, whose products are cuBLAS', are launched from captured graphs, and the number makes no difference" {
	local files=() i n
	for i in {1..33}; do
		seq $((i * 7)) 3 $((i * 13 + 20)) | kv-prefill -q -m "$DEMO" --ids -o $i.kv
		files+=("$i.kv")
	done
	for n in 9 12 33; do
		kv-decode -v -m "$DEMO" --device cuda -n 4 --ids --ignore-eos --batch $n "${files[@]:0:n}" >got.$n 2>said
		grep -q ': [1-9][0-9]* steps launched from a captured graph' said
		KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 kv-decode -q -m "$DEMO" --device cuda -n 4 --ids --ignore-eos \
			--batch $n "${files[@]:0:n}" >plain
		cmp got.$n plain
	done
	head -n 9 got.12 | cmp got.9
	head -n 12 got.33 | cmp got.12
}

@test "a step of many on the GPU is as many kernels as one of two" {
	local n kernels=()
	ln -s "$cuda" some.kv
	for n in 2 3 8; do
		# shellcheck disable=SC2046 # words
		kernels+=("$(KV_EMULATED_TOTALS=1 kv-decode -q -m "$DEMO" --device cuda -n 4 --ignore-eos \
			$(yes some.kv | head -n $n) 2>&1 >/dev/null | sed -n 's/^emulator: \([0-9]* kernels\).*/\1/p')")
	done
	assert_regex "${kernels[0]}" '^[1-9][0-9]* kernels$'
	assert_equal "${kernels[1]}" "${kernels[0]}"
	assert_equal "${kernels[2]}" "${kernels[0]}"
}
