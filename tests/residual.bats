#!/usr/bin/env bats
# bats file_tags=slow
# Full rows behind quantised ones, KIVI's and others: what is stored, computed and appended is what kv-snapshot(5), 4.20 and 4.21, defines, and every
# program works with them or refuses them. The table in kv-quantize(1), FULL ROWS, says the same.

load helper

# k.kv: kivi2 keys and kivi4 values, 32 rows full at least; l.kv: q4_0 and q5_0, both transformed, 24 full; full.kv: before. r.kv and n.kv: KV heads
# with different rows, of few.kv
setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	random_model m --heads 8 --kv-heads 2 --head-dim 32 --hidden 96 --seed 5 --layers 4 --dtype f32 --std 0.2
	window_model slid 40 fsfs --heads 4 --kv-heads 2 --head-dim 32 --hidden 48 --seed 5 --layers 4 --dtype f32 --std 0.2
	seq 3 2 480 >text.ids
	seq 700 3 900 >next.ids
	kv-prefill -m m --ids -w 12 -o full.kv text.ids
	kv-quantize --keys kivi2 --values kivi4 --residual 32 -o k.kv full.kv
	kv-score --method snapkv full.kv | kv-evict --policy adakv --rate 0.5 -o few.kv
	kv-quantize --keys kivi4 --values kivi2 --residual 64 -o r.kv few.kv
	kv-quantize --keys q4_0 --values q5_0 --rotate --residual 24 -o l.kv full.kv
	kv-quantize --keys int8 --values q8_0-hadamard --residual 5 -o n.kv few.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# rows FILE: how many rows each KV head of each layer has
rows() {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import kvsnapshot
s = kvsnapshot.read(sys.argv[2])
print(" ".join(str(len(k)) for l in s.layers for k in l.keys))' "$ROOT/python" "$1"
}

# forced FILE OUT IDS: the logits that predict given tokens behind a snapshot
forced() {
	kv-decode -m m --ids --force "$3" --logits "$2.npy" "$1" >/dev/null
}

@test "a snapshot has the bytes that the package kvsnapshot makes from the document" {
	local f
	for f in k:full:32 r:few:64 l:full:24 n:few:5; do
		kv-check -q "${f%%:*}.kv"
		PYTHONPATH=$ROOT/python "$PYTHON" - "${f%%:*}.kv" "$(cut -d: -f2 <<<"$f").kv" "${f##*:}" <<-'END'
			import sys
			import kvsnapshot
			small, full = (kvsnapshot.read(f) for f in sys.argv[1:3])
			R = int(sys.argv[3])
			assert any(len(k) != len(l.keys[0]) for l in small.layers for k in l.keys) == (sys.argv[1][0] in "rn")
			for a, b in zip(full.layers, small.layers):
			    assert b.key_store.residual == b.value_store.residual == R
			    for x, there in zip(a.keys, b.stored_keys):
			        assert b.key_store.stored(x).tobytes() == there.tobytes()
			    for x, there in zip(a.values, b.stored_values):
			        assert b.value_store.stored(x).tobytes() == there.tobytes()
		END
		kv-quantize --keys f32 --values f32 -o back.kv "${f%%:*}.kv"
		same_numbers back.kv "${f%%:*}.kv"
	done
}

@test "attention: one token after a snapshot has the logits of the numbers in f32" {
	local f
	head -n 2 next.ids >two.ids
	for f in k:full r:few l:full n:few; do
		kv-quantize --keys f32 --values f32 -o back.kv "${f%:*}.kv"
		forced "${f%:*}.kv" small two.ids
		forced back.kv back two.ids
		forced "${f#*:}.kv" full two.ids
		"$PYTHON" -c '
import numpy as np
small, back, full = (np.load(f + ".npy")[1] for f in ("small", "back", "full"))
near, far = np.abs(small - back).max(), np.abs(back - full).max()
assert near < far / 200, (near, far)'
	done
}

@test "decoding quantises rows when they are old enough, and no row twice" {
	local f
	for f in k:32 r:64 l:24 n:5; do
		kv-decode -m m --ids --ignore-eos -n 70 -o after.kv "${f%:*}.kv" >after.ids
		kv-check -q after.kv
		kv-quantize --keys f32 --values f32 -o before.f32.kv "${f%:*}.kv"
		kv-quantize --keys f32 --values f32 -o after.f32.kv after.kv
		PYTHONPATH=$ROOT/python "$PYTHON" - "${f#*:}" <<-'END'
			import sys
			import numpy as np
			import kvsnapshot
			R = int(sys.argv[1])
			kivi = R % 32 == 0
			a, b = (kvsnapshot.read(f) for f in ("before.f32.kv", "after.f32.kv"))
			for x, y in zip(a.layers, b.layers):
			    for k, l, v, w in zip(x.keys, y.keys, x.values, y.values):
			        n = len(k)
			        coded, values = n - n % R if kivi else max(n - R, 0), max(n - R, 0)
			        assert np.array_equal(k[:coded], l[:coded]) and np.array_equal(v[:values], w[:values])
			        # those that were full and are codes now differ, by less than a step
			        now, old = len(l) - len(l) % R if kivi else len(l) - R, len(w) - R
			        assert now > coded and not np.array_equal(k[coded:n], l[coded:n])
			        assert old > values and not np.array_equal(v[values:old], w[values:old])
			        assert np.array_equal(v[old:], w[old:n])
			        step = np.ptp(np.concatenate([k, l[n:]])[coded:now], axis=0).max()
			        assert np.abs(k[coded:] - l[coded:n]).max() < step
		END
	done
}

@test "a text in parts is the text in one piece, whatever the number of threads" {
	local f
	for f in k r l n; do
		kv-decode -m m --ids --ignore-eos -n 75 -o whole.kv $f.kv >whole.ids
		kv-decode -j 1 -m m --ids --ignore-eos -n 9 $f.kv -o a.kv >parts.ids
		kv-decode -m m --ids --ignore-eos -n 1 -o b.kv a.kv >>parts.ids
		kv-decode -m m --ids --ignore-eos -n 65 -o parts.kv b.kv >>parts.ids
		cmp whole.ids parts.ids
		same_values parts.kv whole.kv s.logical_digest
		# and the rows that a prompt gets that goes on with the same tokens
		kv-prefill -m m --ids -r $f.kv -o resumed.kv whole.ids
		same_values resumed.kv whole.kv '[l.positions for l in s.layers]' '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
	done
}

@test "a batch, and several questions, are each as alone; a question leaves nothing to the next" {
	local f k
	mkdir one all
	for f in k r full l n; do
		kv-decode -q -m m --ids --ignore-eos -n 70 -o one/$f.kv $f.kv | paste -sd ' '
	done >want
	kv-decode -q -m m --ids --ignore-eos -n 70 --batch 4 -o all k.kv r.kv full.kv l.kv n.kv >got
	cmp want got
	for f in k r full l n; do
		same_values one/$f.kv all/$f.kv s.logical_digest
	done
	# 70 tokens go over two boundaries of 32 rows, which the next question must find as they were
	printf '{"question": "", "ids": [%s]}\n' '7, 9, 11' '500, 2' '7, 9, 11' >questions
	printf '7\n9\n11\n' >first.ids
	printf '500\n2\n' >second.ids
	for k in k l; do
		kv-decode -q -m m --ids --ignore-eos -n 70 --questions questions $k.kv >answers
		for f in first second first; do
			kv-prefill -q -m m --ids -r $k.kv $f.ids | kv-decode -q -m m --ids --ignore-eos -n 70 | paste -sd ' '
		done >alone
		cmp answers alone
	done
}

# decode N ...: the same random text for every N
decode() {
	kv-decode -q -m "$DEMO" -t 1.5 -s 7 --ignore-eos -n "$@" dk.kv
}

@test "a stop text is cut off with its rows, also behind rows that were quantised meanwhile" {
	local tokens
	kv-prefill -m "$DEMO" -o d.kv "$ROOT/examples/prompts/harbour.txt"
	tokens=$(kv-info --json d.kv | json - 'o["tokens"]')
	kv-quantize --keys q4_0 --values q8_0 --residual 7 -o dk.kv d.kv
	decode 90 >all
	cut_at 3 20 33 61
	kv-quantize --keys kivi4 --values kivi4 --residual 32 -o dk.kv d.kv
	decode 90 >all
	# 992 and 1024 rows are 10 and 42 tokens on; memory for full rows ends somewhere from 60 on
	cut_at 8 9 10 11 40 41 42 43 $(seq 58 74)
	[ "$(sort -u ends | wc -l)" -ge 20 ]
}

# cut_at N ...: the text of dk.kv ends with a stop text behind N tokens, and its rows are those of that many tokens
cut_at() {
	local n stop
	for n; do
		decode "$n" >text
		# of several tokens, which all run before it is known
		stop=$(tail -c +$(($(wc -c <text) + 1)) all | head -c 24)
		decode 90 --stop "$stop" -o cut.kv >cut.txt
		kv-check -q cut.kv
		decode $(($(kv-info --json cut.kv | json - 'o["tokens"]') - tokens)) -o same.kv >same
		same_values cut.kv same.kv '[l.positions for l in s.layers]' '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
		kv-info --json cut.kv | json - 'o["tokens"]' >>ends
	done
}

# refused COMMAND ... : exit code 2 or 4, one line with the way on, and no output
refused() {
	rm -f x.kv
	run --separate-stderr "$@"
	[ "$status" -ne 0 ] && [ ! -e x.kv ] && [ -z "$output" ]
	[[ "$stderr" == *"kv-quantize"* || "$stderr" == *"--skip-layers"* ]]
}

@test "what drops, moves or reads single rows is refused with the way on" {
	local f why="k.kv has full rows behind quantised ones (residual 32)" back="or dequantise it: kv-quantize --keys f32 --values f32"
	refused kv-evict --rate 0.5 -o x.kv k.kv
	assert_equal "$stderr" "kv-evict: $why: no single row can be dropped: evict before kv-quantize; $back"
	refused kv-score --method knorm -o x.kv k.kv
	assert_equal "$stderr" "kv-score: $why: no single row can be dropped: score and evict before kv-quantize; $back"
	refused kv-observe -m m --ids-from next.ids -o x.kv k.kv
	refused kv-index --pages -o x.kv k.kv
	refused kv-quantize1b -o x.kv k.kv
	assert_equal "$stderr" "kv-quantize1b: $why: no index finds single rows: retrieve from q4_0, q5_0 or q8_0 rows without residual; $back"
	refused kv-decode -m m --ids -n 5 --retrieve 'quest budget=64' k.kv
	assert_equal "$stderr" "kv-decode: $why: no single row can be read: retrieve from q4_0, q5_0 or q8_0 rows without residual; $back"
	refused kv-decode -m m --ids -n 5 --score keydiff --evict budget=100 k.kv
	assert_equal "$stderr" "kv-decode: $why: no single row can be dropped: evict before kv-quantize; $back"
	refused kv-prefill -m m --ids -r k.kv --score snapkv --evict rate=0.5 -o x.kv next.ids
	refused kv-prefill -m m --ids -r k.kv --mass -o x.kv next.ids
	refused kv-prefill -m m --ids --keys kivi2 -o x.kv text.ids
	assert_equal "$stderr" "kv-prefill: --keys, --values: as in the KIVI paper, a prompt runs with full rows, which are quantised afterwards: kv-prefill | kv-quantize --keys kivi2 --values kivi2"
	# with a sliding window, too, which has options of kv-quantize to name
	window_model windows 9 sf --head-dim 32 --layers 2
	refused kv-prefill -m windows --ids --keys kivi4 -o x.kv text.ids
	assert_equal "$stderr" "kv-prefill: --keys, --values: as in the KIVI paper, a prompt runs with full rows, which are quantised afterwards: kv-prefill | kv-quantize --keys kivi4 --values kivi4"
	refused kv-plan --offload 'memory=3m weights=1m budget=64' k.kv
	assert_equal "$stderr" "kv-plan: $why: layers of such rows are not offloaded: use q4_0, q5_0 or q8_0 rows without residual; $back"
	refused kv-decode -m m --ids -n 5 --retrieve 'fier budget=64' --offload k.kv
	refused kv-decode -m m --ids -n 5 --mass -o x.kv k.kv
	refused kv-prefill -m m --ids --reuse k.kv -o x.kv text.ids
	# the same of rows that are stored each by itself
	refused kv-evict --rate 0.5 -o x.kv l.kv
	refused kv-score --method knorm -o x.kv l.kv
	refused kv-observe -m m --ids-from next.ids -o x.kv l.kv
	refused kv-index --pages -o x.kv l.kv
	refused kv-quantize1b -o x.kv l.kv
	refused kv-decode -m m --ids -n 5 --retrieve 'quest budget=64' l.kv
	refused kv-decode -m m --ids -n 5 --score keydiff --evict budget=100 l.kv
	refused kv-prefill -m m --ids -r l.kv --score snapkv --evict rate=0.5 -o x.kv next.ids
	refused kv-plan --offload 'memory=3m weights=1m budget=64' l.kv
	refused kv-decode -m m --ids -n 5 --mass -o x.kv l.kv
	refused kv-prefill -m m --ids --reuse l.kv -o x.kv text.ids
	kv-prefill -m slid --ids -o s.kv text.ids
	refused kv-quantize --keys kivi2 -o x.kv s.kv
	assert_equal "$stderr" "kv-quantize: --residual 128: layer 1 has a sliding window, whose rows are dropped one by one: --skip-layers leaves it as it is"
	kv-quantize --keys kivi2 --values kivi2 --residual 32 --skip-layers 1,3 s.kv | kv-decode -m slid --ids --ignore-eos -n 40 -o after.kv >ids
	kv-check -q after.kv
	refused kv-quantize --keys q4_0 --residual 8 -o x.kv s.kv
	if [ -e "$ROOT/build/emulated/kv-decode" ]; then
		run --separate-stderr "$ROOT/build/emulated/kv-decode" -m m --ids -n 5 --device cuda k.kv
		assert_equal "$stderr" "kv-decode: $why: this device does not compute on them: use --device cpu; $back"
	fi
}

@test "kv-quantize: what its options refuse, and what a type cannot store" {
	local f
	refused kv-quantize --keys kivi2 --rotate -o x.kv full.kv || true
	assert_equal "$stderr" "kv-quantize: --rotate: kivi2 has a scale for each channel of keys, which the transform would mix"
	run -2 --separate-stderr kv-quantize --keys f32 --residual 32 -o x.kv full.kv
	assert_equal "$stderr" "kv-quantize: --residual: no type is quantised (--keys, --values)"
	run -2 --separate-stderr kv-quantize --keys q4_0 --residual 4097 -o x.kv full.kv
	assert_equal "$stderr" "kv-quantize: --residual 4097: want at most 4096"
	for f in 0 48; do
		run -2 --separate-stderr kv-quantize --keys kivi2 --residual $f -o x.kv full.kv
		assert_equal "$stderr" "kv-quantize: --residual $f: kivi2 and kivi4 want a multiple of 32"
	done
	run -2 --separate-stderr kv-quantize --values kivi2 -o x.kv l.kv
	assert_equal "$stderr" "kv-quantize: --residual 24: kivi2 and kivi4 want a multiple of 32"
	run -5 --separate-stderr kv-quantize --keys kivi2 --residual 64 -o x.kv k.kv
	assert_equal "$stderr" "kv-quantize: --residual 64: rows that stay quantised as they are have 32 full ones behind them; dequantise the snapshot first (--keys f32 --values f32)"
	# rows that are all quantised get no full ones behind them, nor when others do
	kv-quantize --keys q8_0 -o q8.kv full.kv
	for f in '--values q8_0 --residual 16' '--values kivi2'; do
		# shellcheck disable=SC2086 # words
		run -5 --separate-stderr kv-quantize $f -o x.kv q8.kv
		[[ "$stderr" == *": rows that stay quantised as they are have 0 full ones behind them; dequantise the snapshot first (--keys f32 --values f32)" ]]
	done
	# a residual of 0 is none, and one that is there holds for what is quantised later
	kv-quantize --keys q8_0 --residual 0 -o none.kv full.kv
	same_values none.kv q8.kv s.logical_digest
	kv-quantize --keys q4_0-hadamard --residual 24 full.kv | kv-quantize --values q5_0 --rotate -o two.kv
	same_values two.kv l.kv s.logical_digest
	# one side, then the other; back, and no residual is left
	kv-quantize --keys kivi2 --residual 32 full.kv | kv-quantize --values kivi4 -o two.kv
	same_values two.kv k.kv s.logical_digest
	kv-quantize --keys q8_0 --values q8_0 -o other.kv two.kv
	assert_equal "$(kv-info --json other.kv | json - 'o.get("residual")')" None
	kv-quantize --keys q8_0 two.kv | kv-quantize --values q8_0 -o other.kv
	assert_equal "$(kv-info --json other.kv | json - 'o.get("residual")')" 32
	kv-convert -q -o full.safetensors full.kv
	"$PYTHON" - <<-'END'
		import json, struct
		data = bytearray(open("full.safetensors", "rb").read())
		n, = struct.unpack("<Q", data[:8])
		t = json.loads(data[8:8 + n])["layers.2.keys"]
		S, E = t["shape"][2:]
		struct.pack_into("<f", data, 8 + n + t["data_offsets"][0] + 4 * (S * E + 40 * E + 7), 7e4)
		open("full.safetensors", "wb").write(data)
	END
	kv-convert -q --like full.kv -o large.kv full.safetensors
	run -1 --separate-stderr kv-quantize --keys kivi2 --residual 32 -o x.kv large.kv
	assert_equal "$stderr" "kv-quantize: KEYS layer 2 head 1 row 32-63: kivi2 cannot store it: a number is not finite, or too large"
	[ ! -e x.kv ]
}

@test "kv-info, kv-diff and kv-convert read the numbers, kv-footprint counts bytes as they are stored" {
	local f
	for f in k r l n; do
		assert_equal "$(kv-footprint --json $f.kv | json - 'o["kv_bytes"]')" "$(kv-info --json $f.kv | json - 'o["kv_bytes"]')"
	done
	assert_equal "$(kv-info k.kv | grep -A1 'row types' | paste -sd '|')" "row types      kivi2 keys and kivi4 values|residual       the last 32 rows of a KV head are f32"
	assert_equal "$(kv-info --json k.kv | json - '(o["residual"], o["key_types"][0], o["value_types"][3])')" "(32, 'kivi2', 'kivi4')"
	for f in k l; do
		kv-quantize --keys f32 --values f32 -o back.kv $f.kv
		kv-diff back.kv $f.kv >table
		grep -q ' same  *same .* 0  *all$' table
		kv-convert -q -o k.safetensors $f.kv
		kv-convert -q --like full.kv -o converted.kv k.safetensors
		same_values converted.kv back.kv '[l.keys for l in s.layers]' '[l.values for l in s.layers]'
	done
	run --separate-stderr kv-convert --as-stored -o x.safetensors k.kv
	assert_equal "$stderr" "kv-convert: k.kv has full rows behind quantised ones (residual 32), so no tensor has their bytes: convert it without --as-stored"
	[ ! -e x.safetensors ]
}
