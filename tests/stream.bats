#!/usr/bin/env bats
# kv-decode --stream: all rows stay in the file, and each step reads them whole, a layer at a time; text, logits and snapshots are those of rows in memory

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || exit 1
	random_model four --heads 8 --kv-heads 2 --head-dim 12 --hidden 96 --seed 5 --layers 5 --dtype f32 --std 0.2
	random_model half --heads 6 --kv-heads 3 --head-dim 32 --hidden 96 --seed 6 --layers 3 --dtype bf16 --std 0.2
	window_model slid 40 fsfs --heads 4 --kv-heads 2 --head-dim 12 --hidden 48 --seed 5 --layers 4 --dtype f32 --std 0.2
	seq 3 2 240 >text.ids
	seq 7 5 200 >next.ids
	for m in four half slid; do
		kv-prefill -m $m --ids -w 8 --value-norms --query-stats -o $m.kv text.ids
		kv-score --method snapkv $m.kv | kv-evict -q --rate 0.2 -o $m-small.kv
	done
	kv-score --method keydiff four.kv | kv-evict -q --budget 60 --policy adakv -o ragged.kv
	kv-quantize --keys q8_0 --values q4_0 -o codes.kv half.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# same MODEL SNAPSHOT OPTION ...: the text, and the snapshot behind it, of rows in memory
same() {
	kv-decode -m "$1" --ids --ignore-eos -n 40 "${@:3}" -o memory.kv "$2" >memory.ids
	kv-decode -m "$1" --ids --ignore-eos -n 40 "${@:3}" -o file.kv --stream "$2" | cmp - memory.ids
	cmp memory.kv file.kv
	kv-check -q file.kv
}

@test "text and snapshot are byte for byte those of rows in memory" {
	local m
	for m in four half slid; do
		same $m $m.kv
	done
	same four ragged.kv
	same half codes.kv
	same four four.kv -t 0.8 --seed 5
	same four four.kv -w 8
	same four four.kv --query-stats
}

@test "logits of a given text are those of rows in memory" {
	local m stream
	for m in four half slid; do
		for stream in "" --stream; do
			# shellcheck disable=SC2086 # words
			kv-decode -m $m --ids --force next.ids --logits "all$stream.npy" $stream $m.kv >"all$stream.nll"
		done
		cmp all.npy all--stream.npy
		cmp all.nll all--stream.nll
	done
}

@test "with a draft, in memory or in the file, the text is that of all rows" {
	local m
	for m in four half slid; do
		same $m $m.kv --draft $m-small.kv
	done
	same four four.kv --draft four-small.kv -t 0.8
	same half codes.kv --draft half-small.kv
	kv-quantize1b -o bits.kv four.kv
	same four four.kv --draft bits.kv --retrieve "fier budget=20" --offload
	same four bits.kv --draft bits.kv --retrieve "fier budget=20" --offload
}

@test "indexes grow by rows of the file and new ones" {
	kv-quantize1b -g 16 four.kv | kv-index --pages --page 8 -o indexed.kv
	same four indexed.kv
	same four indexed.kv --draft four-small.kv
}

@test "questions: after each the cache goes back to the rows of the file" {
	head -c 900 "$ROOT/README.md" >text
	kv-prefill -m "$DEMO" -w 8 -o demo.kv text
	kv-score --method snapkv demo.kv | kv-evict -q --rate 0.2 -o small.kv
	printf '%s\n' "What is it?" " And who wrote all of this, and when?" "What is it?" >questions
	kv-decode -m "$DEMO" -n 20 --questions questions demo.kv >alone
	kv-decode -m "$DEMO" -n 20 --questions questions --stream demo.kv | cmp - alone
	kv-decode -m "$DEMO" -n 20 --questions questions --stream --draft small.kv demo.kv | cmp - alone
}

@test "several texts at once say what each says alone" {
	local f
	mkdir memory file
	kv-decode -m four --ids --ignore-eos -n 30 -o memory four.kv ragged.kv four-small.kv >memory.ids
	kv-decode -m four --ids --ignore-eos -n 30 -o file --stream four.kv ragged.kv four-small.kv | cmp - memory.ids
	for f in four ragged four-small; do
		cmp memory/$f.kv file/$f.kv
	done
}

@test "a snapshot larger than memory is decoded, where all rows in memory find no room" {
	not_under_sanitizers "it reserves more addresses than any limit"
	random_model wide --heads 8 --kv-heads 8 --head-dim 128 --hidden 64 --seed 6 --layers 8 --dtype f32 --std 0.2
	seq 1 1000 | kv-prefill -m wide --ids -w 8 -o wide.kv
	kv-score --method snapkv wide.kv | kv-evict -q --rate 0.1 -o small.kv
	[ "$(stat -c %s wide.kv)" -gt $((60 << 20)) ]
	read=(kv-decode -m wide -j 1 --ids --ignore-eos -n 20)
	"${read[@]}" wide.kv >want.ids
	run -1 bash -c "ulimit -d 61440; ${read[*]@Q} wide.kv"
	assert_output --partial 'no room for wide.kv'
	(ulimit -d 61440; "${read[@]}" --stream --draft small.kv wide.kv) | cmp - want.ids
}

@test "on a GPU the rows are in host memory, from a pipe and compressed too" {
	PATH=$O/emulated:$PATH
	export KV_DEVICE=cuda
	local m
	for m in four half; do
		kv-decode -m $m --ids --ignore-eos -n 12 -o memory.kv $m.kv >memory.ids
		kv-decode -v -m $m --ids --ignore-eos -n 12 -o file.kv --stream $m.kv 2>err | cmp - memory.ids
		grep -q 'layers 0 to [0-9] are in host memory$' err
		cmp memory.kv file.kv
		kv-prefill -m $m --ids -w 8 --value-norms --query-stats -z text.ids | kv-decode -m $m --ids --ignore-eos -n 12 --stream | cmp - memory.ids
		kv-decode -m $m --ids --ignore-eos -n 12 --stream --draft $m-small.kv $m.kv | cmp - memory.ids
		# no more of this memory: the other layers are read from the file
		KV_EMULATED_FAILURE=cudaHostRegister:2 kv-decode -v -m $m --ids --ignore-eos -n 12 --stream $m.kv 2>err | cmp - memory.ids
		grep -q 'are in host memory, and some in the file$' err
	done
}

@test "what cannot go with rows that stay in the file is refused with the reason" {
	refused() {
		run -"$1" --separate-stderr kv-decode -m four --ids -n 3 "${@:3}"
		assert_regex "$stderr" "$2"
		assert_equal "$output" ""
	}
	refused 2 '--stream does not go with --retrieve, which reads some of the rows: use --offload' --stream --retrieve 'fier budget=20' four.kv
	refused 2 '--evict does not go with --stream: the rows stay in the file' --stream --evict budget=50 --score knorm four.kv
	refused 2 '--mass does not go with --stream: the rows stay in the file' --stream --mass -o x.kv four.kv
	kv-prefill -m four --ids -z -o packed.kv text.ids
	refused 1 'packed.kv: KEYS of layer 0 is compressed \(-z\), or not in a file' --stream packed.kv
	run -1 --separate-stderr kv-decode -m four --ids -n 3 --stream - < <(cat four.kv)
	assert_regex "$stderr" 'is compressed \(-z\), or not in a file'
	kv-quantize --keys kivi2 --values kivi2 --residual 32 -o kivi.kv half.kv
	run ! --separate-stderr kv-decode -m half --ids -n 3 --stream kivi.kv
	assert_regex "$stderr" 'they cannot stay in the file: decode without --stream'
}

@test "a file that changes or is cut short while its rows are read ends the program, before a snapshot of it is there" {
	local change
	for change in "touch x.kv" "truncate -s 20000 x.kv"; do
		rm -f x.kv out.ids
		cp four.kv x.kv
		kv-decode -m four --ids --ignore-eos -n 200000 --stream -o out.kv x.kv >out.ids 2>err &
		for _ in $(seq 300); do
			[ ! -s out.ids ] || break
			sleep 0.1
		done
		$change
		wait $! && return 1
		assert_regex "$(cat err)" 'x.kv(: byte [0-9]+|:? ends at| has changed)'
		[ ! -e out.kv ]
	done
}
