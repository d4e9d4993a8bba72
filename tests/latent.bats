#!/usr/bin/env bats
# bats file_tags=slow
# Latent attention (DeepSeek-V2 and V3): rows that are key and value at once, and what of the programs goes with them

load helper

CASES="deepseek_v2 deepseek_v2-lite deepseek_v2-64 deepseek_v3"

setup_file() {
	cd "$BATS_FILE_TMPDIR" || exit 1
	local name make=()
	for name in $CASES; do make+=("$name" "$name" "$DEMO/tokenizer.json"); done
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" "${make[@]}"
	"$PYTHON" -c 'import random
r = random.Random(7)
print(*[r.randrange(8, 1500) for _ in range(300)])' >ids
	cut -d ' ' -f 1-40 ids >short
	for name in $CASES; do
		kv-prefill -q -m "$name" --ids --dtype f32 --observe 40 --mass --query-stats -o "$name.kv" short
	done
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	F=$BATS_FILE_TMPDIR
}

# python CODE FILE ...: CODE with the snapshots in s, numpy as np and the folder of models in F
python() {
	"$PYTHON" -c "
import json, pathlib, struct, sys
sys.path.insert(0, sys.argv[1])
import kvread
import numpy as np
F, s = pathlib.Path(sys.argv[2]), [kvread.read(open(f, 'rb')) for f in sys.argv[3:]]
def tensor(model, name):
    raw = (F / model / 'model.safetensors').read_bytes()
    n = 8 + struct.unpack('<Q', raw[:8])[0]
    one = json.loads(raw[8:n])[name]
    at = one['data_offsets']
    return np.frombuffer(raw[n + at[0]:n + at[1]], '<f4').reshape(one['shape']).astype('f8')
$1" "$FORMAT" "$F" "${@:2}"
}

@test "a row is latent vector and rotated key, once: 2 (rank + width) bytes in bf16, and no values" {
	kv-prefill -q -m "$F/deepseek_v2" --ids --dtype bf16 -o x.kv "$F/short"
	python '
for l, layer in enumerate(s[0].layers):
    assert len(layer.keys) == 40 * 2 * (56 + 16) and len(layer.values) == 0
assert s[0].features == 2 and s[0].model["kv_heads"] == 1' x.kv
	run -0 kv-info x.kv
	assert_line --partial '56 channels and 16 rotated ones; values are the first 56, 3 query heads expand them to 40'
	assert_line --regexp '^keys \+ values +23040 bytes'
	kv-quantize -q --keys q4_0 -o q.kv "$F/deepseek_v2-64.kv"
	python '
assert all(len(layer.keys) == 40 * 2 * 18 and len(layer.values) == 0 for layer in s[0].layers)
assert s[0].features == 3 and s[0].head["row_types"]["values"] == ["q4_0"] * 4' q.kv
}

@test "chunks, layer by layer and token by token give the logits of one run" {
	local m name
	cut -d ' ' -f 1-39 "$F/short" >most && cut -d ' ' -f 40 "$F/short" >last
	for name in $CASES; do
		m=$F/$name
		kv-prefill -q -m "$m" --ids --dtype f32 --chunk 7 -o chunks.kv "$F/short"
		kv-prefill -q -m "$m" --ids --dtype f32 --score recent --evict rate=1 -o layers.kv "$F/short"
		kv-prefill -q -m "$m" --ids --dtype f32 -o most.kv most
		kv-prefill -q -m "$m" --ids --dtype f32 -r most.kv -o two.kv last
		python '
for one in s[1:]:
    a, b = np.array(s[0].logits), np.array(one.logits)
    assert np.abs(a - b).max() / np.abs(a).max() < 1e-5' "$F/$name.kv" chunks.kv layers.kv two.kv
	done
}

@test "texts that run together get the tokens that each gets alone" {
	local m=$F/deepseek_v3 i
	for i in 1 2 3; do
		cut -d ' ' -f "$i-$((i * 20))" "$F/short" >ids
		kv-prefill -q -m "$m" --ids -o $i.kv ids
		kv-decode -q -m "$m" --ids --ignore-eos -n 8 $i.kv >$i.alone
	done
	mkdir out
	kv-decode -q -m "$m" --ids --ignore-eos -n 8 -o out 1.kv 2.kv 3.kv >together
	diff <(cat 1.alone 2.alone 3.alone | tr -s ' \n' ' ') <(sed 's/^[^:]*: //' together | tr -s ' \n' ' ')
}

@test "fused eviction keeps what the pipeline keeps" {
	local m=$F/deepseek_v2-lite
	kv-prefill -q -m "$m" --ids --observe 4 "$F/ids" | kv-score --method snapkv --kernel 5 | kv-evict -q --rate 0.3 -o pipe.kv
	kv-prefill -q -m "$m" --ids --score 'snapkv window=4 kernel=5' --evict rate=0.3 -o fused.kv "$F/ids"
	python '
for a, b in zip(s[0].layers, s[1].layers):
    assert list(a.positions[0]) == list(b.positions[0]) and bytes(a.keys) == bytes(b.keys)' pipe.kv fused.kv
}

@test "only the last channels of a key move to another position" {
	kv-score --method h2o "$F/deepseek_v2.kv" >x.kv
	kv-evict -q --rate 0.4 x.kv -o a.kv
	kv-evict -q --rate 0.4 --positions compact x.kv -o b.kv
	python '
f = 10000.0 ** (-np.arange(0, 16, 2) / 16)
for l, (a, b) in enumerate(zip(s[0].layers, s[1].layers)):
    x, y = (one.array(l, "keys", 0).astype("f8") for one in s)
    angle = np.outer(np.array(b.positions[0], "f8") - np.array(a.positions[0], "f8"), f)
    p, q = x[:, 56:64], x[:, 64:]
    want = np.hstack([x[:, :56], p * np.cos(angle) - q * np.sin(angle), p * np.sin(angle) + q * np.cos(angle)])
    assert (x[:, :56] == y[:, :56]).all() and (x[:, 56:] != y[:, 56:]).any() and np.abs(y - want).max() < 1e-5' a.kv b.kv
}

@test "query statistics are of the rotated channels, and keys without rotation do not depend on positions" {
	python '
for layer in s[0].layers:
    q = np.array(kvread.widen(layer.queries.data, "f32")).reshape(3, 40, 72).astype("f8")
    q = q[:, layer.query_stats.first:]
    want = np.sqrt(q[..., 56:64] ** 2 + q[..., 64:] ** 2).sum(1)
    got = np.array([list(head) for head in layer.query_stats.moduli])
    assert np.abs(got / want - 1).max() < 1e-5' "$F/deepseek_v2.kv"
	kv-score --method recent "$F/deepseek_v2.kv" | kv-evict -q --budget 20 -o a.kv
	kv-score --method recent "$F/deepseek_v2.kv" | kv-evict -q --budget 20 --positions compact -o b.kv
	for f in a b; do kv-score --method leverage -o $f.scored.kv $f.kv; done
	python '
for a, b in zip(s[0].layers, s[1].layers):
    x, y = (np.array(one.scores.values[0]) for one in (a, b))
    assert np.abs(x - y).max() < 1e-4 * np.abs(x).max()' a.scored.kv b.scored.kv
}

@test "methods that read values read the first channels of keys, and norms of values are of what heads expand" {
	kv-score --method cur --norms values --local 0 --sink 0 -o cur.kv "$F/deepseek_v2.kv"
	kv-prefill -q -m "$F/deepseek_v2" --ids --dtype f32 --value-norms -o norms.kv "$F/short"
	python '
for l, layer in enumerate(s[0].layers):
    c = s[0].array(l, "keys", 0).astype("f8")[:, :56]
    want = (c ** 2).sum(1) / (c ** 2).sum()
    assert np.abs(np.array(layer.scores.values[0]) / want - 1).max() < 1e-5
    wo = tensor("deepseek_v2", f"model.layers.{l}.self_attn.o_proj.weight")
    wkv = tensor("deepseek_v2", f"model.layers.{l}.self_attn.kv_b_proj.weight").reshape(3, 64, 56)
    for h in range(3):
        want = np.abs(c @ wkv[h, 24:].T @ wo[:, 40 * h:40 * h + 40].T).sum(1)
        got = np.array(s[1].layers[l].value_norms.values[0][h])
        assert np.abs(got / want - 1).max() < 1e-4' cur.kv norms.kv
}

@test "documents that are merged and run again have the rows of one text" {
	local m=$F/deepseek_v2-lite text
	seq 10 30 >a && seq 40 75 >b && cat a b >ab
	for text in a b ab; do kv-prefill -q -m "$m" --ids --dtype f32 -o $text.kv $text; done
	kv-merge -q -o merged.kv a.kv b.kv
	kv-recompute -q -m "$m" --rate 1 -o again.kv merged.kv
	python '
def differ(a, l):
    x, y = (one.array(l, "keys", 0) for one in (s[0], a))
    return np.abs(x - y).max() / np.abs(x).max()
assert differ(s[1], 0) < 1e-6 and differ(s[1], 3) > 0.1
assert all(differ(s[2], l) < 1e-5 for l in range(4))' ab.kv merged.kv again.kv
}

@test "rows are reused, stored and converted" {
	local m=$F/deepseek_v3
	cut -d ' ' -f 1-280 "$F/ids" >begin
	kv-prefill -q -m "$m" --ids --dtype f32 -o cold.kv "$F/ids"
	kv-prefill -q -m "$m" --ids --dtype f32 -o begin.kv begin
	kv-prefill -q -m "$m" --ids --dtype f32 --reuse begin.kv -o reused.kv "$F/ids"
	kv-prefill -q -m "$m" --ids --dtype f32 --store store -o /dev/null begin
	run -0 --separate-stderr kv-prefill -v -m "$m" --ids --dtype f32 --store store -o stored.kv "$F/ids"
	[[ "$stderr" == *"256 of 300 tokens from store"* ]]
	kv-convert cold.kv >cold.safetensors
	kv-convert cold.safetensors >back.kv
	python '
for other in s[1:]:
    for l in range(4):
        x, y = s[0].array(l, "keys", 0), other.array(l, "keys", 0)
        assert np.abs(x - y).max() < 1e-4 * np.abs(x).max(), np.abs(x - y).max() / np.abs(x).max()
assert all(bytes(a.keys) == bytes(b.keys) for a, b in zip(s[0].layers, s[3].layers))
raw = open("cold.safetensors", "rb").read()
assert "layers.0.values" not in json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])' cold.kv reused.kv stored.kv back.kv
}

@test "retrieval reads chosen rows of latent vectors, from a file, too, and a stream reads all" {
	local m=$F/deepseek_v2 name
	kv-prefill -q -m "$m" --ids -o full.kv "$F/ids"
	kv-quantize1b -g 16 -o fier.kv full.kv
	kv-index --pages --page 8 -o quest.kv full.kv
	kv-index --clusters -o cluster.kv full.kv
	kv-decode -q -m "$m" --ids --ignore-eos -n 6 full.kv >full
	for name in fier quest cluster; do
		kv-decode -q -m "$m" --ids --ignore-eos -n 6 --retrieve "$name budget=1000" $name.kv | diff full -
		kv-decode -q -m "$m" --ids --ignore-eos -n 6 --retrieve "$name budget=32" $name.kv >few
		kv-decode -q -m "$m" --ids --ignore-eos -n 6 --offload --retrieve "$name budget=32" -o grown.kv $name.kv | diff few -
		run -0 kv-check grown.kv
	done
	kv-decode -q -m "$m" --ids --ignore-eos -n 6 --stream full.kv | diff full -
	kv-score --method snapkv "$F/deepseek_v2.kv" 2>/dev/null | kv-evict -q --rate 0.5 -o small.kv
	kv-decode -q -m "$m" --ids --ignore-eos -n 6 "$F/deepseek_v2.kv" >alone
	kv-decode -q -m "$m" --ids --ignore-eos -n 6 --draft small.kv "$F/deepseek_v2.kv" | diff alone -
}

@test "each method of kv-score and each policy of kv-evict goes with latent attention, or says what it needs" {
	local m=$F/deepseek_v2-64 f=$F/deepseek_v2-64.kv method policy
	kv-prefill -q -m "$m" --ids --dtype f32 --noncausal 0 -o noncausal.kv "$F/short"
	kv-observe -q -m "$m" --repeat-context -o probe.kv "$f"
	while read -r method _; do
		case $method in
		kvzip|kvcompose) kv-score --method "$method" -o x.kv probe.kv ;;
		noncausal|compactor) kv-score --method "$method" -o x.kv noncausal.kv ;;
		lookahead|kvzap|fastkvzip|qfilter)      # what was trained for another model
			run ! kv-score --method "$method" -o x.kv "$f"
			continue ;;
		*) kv-score --method "$method" -o x.kv "$f" ;;
		esac
		kv-evict -q --rate 0.5 -o small.kv x.kv || fail "$method"
		kv-decode -q -m "$m" --ids --ignore-eos -n 2 small.kv >/dev/null || fail "$method"
	done < <(kv-score --list)
	kv-score --method cake -o cake.kv "$f"
	while read -r policy _; do
		kv-evict --policy "$policy" --rate 0.5 -o small.kv cake.kv 2>said || fail "$policy"
		case $policy in
		ada*) grep -q "policy $policy: a layer has one KV head, which has all of its budget" said ;;
		*) ! grep -q 'one KV head' said ;;
		esac
	done < <(kv-evict --list)
}

@test "a head mask and a table of budgets have one number for each layer" {
	printf '1\n0\n0\n1\n' >mask
	kv-evict -q --head-mask mask --sink 2 --recent 4 -o masked.kv "$F/deepseek_v2.kv"
	python 'assert [len(layer.positions[0]) for layer in s[0].layers] == [40, 6, 6, 40]' masked.kv
	printf '10\n20\n5\n40\n' >budgets
	kv-score --method knorm -o scored.kv "$F/deepseek_v2-64.kv"
	kv-evict -q --budgets budgets -o few.kv scored.kv
	python 'assert [len(layer.positions[0]) for layer in s[0].layers] == [10, 20, 5, 40]' few.kv
}

@test "rows in 8, 5 and 4 bits are read as key and value" {
	local m=$F/deepseek_v2-64 type
	echo 77 >one
	for type in q8_0 q5_0 q4_1 q4_0 int8 fp8 q8_0-hadamard int8-hadamard; do
		kv-quantize -q --keys $type -o q.kv "$F/deepseek_v2-64.kv"
		kv-quantize -q --keys f32 -o numbers.kv q.kv
		kv-prefill -q -m "$m" --ids -r q.kv -o a.kv one
		kv-prefill -q -m "$m" --ids -r numbers.kv -o b.kv one
		python '
a, b = (np.array(one.logits) for one in s)
assert np.abs(a - b).max() / np.abs(b).max() < 0.02, np.abs(a - b).max() / np.abs(b).max()' a.kv b.kv
	done
}

@test "weights in FP8 blocks, as DeepSeek-V3 is published, give the logits of the same numbers in bf16" {
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" deepseek_v3-experts experts "$DEMO/tokenizer.json"
	"$PYTHON" "$ROOT/tests/bin/mkquantised.py" experts fp8-blocks fp8 bf16
	kv-prefill -q -m fp8 --ids --logits one.npy -o one.kv "$F/short"
	kv-prefill -q -m bf16 --ids --logits other.npy -o other.kv "$F/short"
	cmp one.npy other.npy
	python 'assert all(bytes(a.keys) == bytes(b.keys) for a, b in zip(s[0].layers, s[1].layers))' one.kv other.kv
}

# refused STATUS WORDS COMMAND ...: ends so, saying these words, and writes nothing
refused() {
	run "-$1" --separate-stderr "${@:3}"
	[[ "$stderr" == *"$2"* ]] || fail "$stderr"
	[ ! -e x.kv ]
}

@test "what does not go with latent attention is refused with the reason" {
	local f=$F/deepseek_v2-64.kv m=$F/deepseek_v2-64
	refused 5 'KIVI quantises keys by channel and values by token, and the values of this model are channels of its keys' kv-quantize --keys kivi2 -o x.kv "$f"
	refused 5 'the values of this model are channels of its keys (latent attention), which --keys is for' kv-quantize --values int8 -o x.kv "$f"
	refused 5 'the values of this model are channels of its keys (latent attention)' kv-quantize --keys q8_0 --values q4_0 -o x.kv "$f"
	refused 5 'no rows stay full with latent attention' kv-quantize --keys q8_0 --residual 32 -o x.kv "$f"
	refused 5 'have 72 channels, which is no multiple of 32: use int8 or fp8' kv-quantize --keys q8_0 -o x.kv "$F/deepseek_v2.kv"
	refused 5 'with latent attention a row is that of all query heads' kv-convert --per-query-head -o x.kv "$f"
	refused 5 'rotary embedding rotates only some of the channels' kv-index --low-rank -o x.kv "$f"
	refused 5 'lookahead adapters are not supported for models of type deepseek_v2' kv-observe -m "$m" --lookahead "$DEMO/lookahead" -o x.kv "$f"
	refused 3 'but the model has 4 layers of 1 KV heads' kv-evict --head-mask "$DEMO/duoattention.tsv" -o x.kv "$f"
	refused 3 'filters of 4 layers, 2 KV heads and a head width of 32, and the model has 4, 1 and 64' kv-score --method qfilter --filters "$DEMO/q-filters" -o x.kv "$f"
	refused 4 'trained for weights' kv-prefill -m "$m" --ids --gate "$DEMO/kvzap" -o x.kv "$F/short"
	refused 4 'trained for weights' kv-prefill -m "$m" --ids --retrieval-head "$DEMO/retrieval-head" -o x.kv "$F/short"
}

# both COMMAND ...: COMMAND prints the same on the CPU and on the GPU, where the emulated programs are
both() {
	local device
	for device in cpu cuda; do
		PATH=$O/emulated:$PATH KV_DEVICE=$device "$@" >$device.out
	done
	cmp cpu.out cuda.out
}

@test "a GPU gives the rows of the CPU, but for rounding, and the same text in every family" {
	local name device
	cut -d ' ' -f 1-70 "$F/ids" >ids
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" minicpm3 minicpm3 "$DEMO/tokenizer.json" kimi_k2 kimi_k2 "$DEMO/tokenizer.json" \
		glm4_moe_lite glm4_moe_lite "$DEMO/tokenizer.json"
	for name in "$F"/{deepseek_v2,deepseek_v2-lite,deepseek_v2-64,deepseek_v3} minicpm3 kimi_k2 glm4_moe_lite; do
		for device in cpu cuda; do
			PATH=$O/emulated:$PATH kv-prefill -q -m "$name" --device $device --ids --observe 16 --mass --query-stats -o $device.kv ids
			PATH=$O/emulated:$PATH kv-decode -q -m "$name" --device $device --ids --ignore-eos -n 10 $device.kv >$device.out
		done
		cmp cpu.out cuda.out
		python '
import itertools
for a, b in zip(s[0].layers, s[1].layers):
    x, y = (np.frombuffer(k.keys, "<f4").astype("f8") for k in (a, b))
    assert np.abs(x - y).max() < 1e-4 * np.abs(x).max() and len(b.values) == 0' cpu.kv cuda.kv
	done
}

@test "rows of 576 channels in bf16, which tensor cores take, give on a GPU the text of the CPU, in graphs too, with chosen rows" {
	local device
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" deepseek_v3-wide wide "$DEMO/tokenizer.json"
	cut -d ' ' -f 1-60 "$F/ids" >ids
	for device in cpu cuda; do
		PATH=$O/emulated:$PATH kv-prefill -q -m wide --device $device --dtype bf16 --ids -o $device.kv ids
	done
	both kv-decode -q -m wide --ids --ignore-eos -n 4 cpu.kv
	both kv-decode -q -m wide --ids --ignore-eos -n 4 cuda.kv
	kv-quantize1b -q -o bits.kv cpu.kv
	both kv-decode -q -m wide --ids --ignore-eos -n 4 --retrieve 'fier budget=24' bits.kv
	# the same bytes step by step
	PATH=$O/emulated:$PATH KV_EMULATED_TOTALS=1 kv-decode -m wide --device cuda --ids --ignore-eos -n 12 -o graph.kv cuda.kv 2>err >graph.out
	grep -E ' [1-9][0-9]* graphs' err
	PATH=$O/emulated:$PATH KV_EMULATED_FAILURE=cudaStreamBeginCapture:1 kv-decode -q -m wide --device cuda --ids --ignore-eos -n 12 -o steps.kv cuda.kv >steps.out
	cmp graph.out steps.out
	cmp graph.kv steps.kv
	# where they are wrong, the check finds it
	PATH=$O/emulated:$PATH KV_KERNELS=check XDG_CACHE_HOME=$PWD KV_EMULATED_WRONG=attend_latent kv-decode -m wide --device cuda --ids --ignore-eos -n 12 \
		cuda.kv 2>err >checked.out
	grep -q 'GPU kernels give wrong results and are not used: attend,.*,latent,' err
	cmp graph.out checked.out
}

@test "methods, quantised rows, retrieval, offloading, drafts and batches give on a GPU the text that they give on the CPU" {
	local m=$F/deepseek_v2 f=$F/deepseek_v2.kv i
	kv-score --method snapkv "$f" | kv-evict -q --rate 0.5 -o half.kv
	cmp <(PATH=$O/emulated:$PATH kv-score --device cuda --method keydiff "$f" | kv-evict --rate 0.3 | kv-info --all - | grep -A 3 '^layer') \
		<(kv-score --device cpu --method keydiff "$f" | kv-evict --rate 0.3 | kv-info --all - | grep -A 3 '^layer')
	both kv-decode -q -m "$m" --ids --ignore-eos -n 8 half.kv
	both kv-decode -q -m "$m" --ids --ignore-eos -n 8 --draft half.kv "$f"
	both kv-decode -q -m "$m" --ids --ignore-eos -n 8 --stream "$f"
	both kv-decode -q -m "$m" --ids --ignore-eos -n 8 --score h2o --evict budget=24 "$f"
	kv-quantize1b -q -o bits.kv "$f"
	kv-index --pages -q -o pages.kv "$f"
	for i in fier:bits quest:pages; do
		both kv-decode -q -m "$m" --ids --ignore-eos -n 8 --retrieve "${i%:*} budget=16" "${i#*:}.kv"
		both kv-decode -q -m "$m" --ids --ignore-eos -n 8 --retrieve "${i%:*} budget=16" --offload "${i#*:}.kv"
	done
	kv-quantize -q --keys int8 -o int8.kv "$f"
	both kv-decode -q -m "$m" --ids --ignore-eos -n 8 int8.kv
	kv-quantize -q --keys q8_0 -o q8.kv "$F/deepseek_v2-64.kv"
	both kv-decode -q -m "$F/deepseek_v2-64" --ids --ignore-eos -n 8 q8.kv
	mkdir cpu cuda
	for i in cpu cuda; do
		PATH=$O/emulated:$PATH kv-decode -q -m "$m" --device $i --ids --ignore-eos -n 8 -o $i/ "$f" half.kv int8.kv >$i.out
	done
	cmp cpu.out cuda.out
}

@test "what retrieval fetches from host memory on a GPU is counted once, as a row is key and value" {
	local m=$F/deepseek_v2 device
	kv-quantize1b -q -o bits.kv "$F/deepseek_v2.kv"
	for device in cpu cuda; do
		PATH=$O/emulated:$PATH kv-decode -q -m "$m" --device $device --ids --ignore-eos -n 6 --retrieve 'fier budget=16' --offload \
			--stats $device.json bits.kv >$device.out
	done
	run -0 diff <(grep -o '"fetched_bytes": [0-9.]*' cpu.json) <(grep -o '"fetched_bytes": [0-9.]*' cuda.json)
	grep -q '"fetched_bytes": [1-9]' cuda.json
}

@test "a folder whose ranks do not fit its tensors, and a snapshot of other widths, are refused" {
	local key
	for key in kv_lora_rank:48:'self_attn.kv_a_proj_with_mqa.weight' qk_nope_head_dim:8:'self_attn.q_b_proj.weight' \
		v_head_dim:8:'self_attn.kv_b_proj.weight' q_lora_rank:64:'self_attn.q_a_proj.weight' \
		qk_rope_head_dim:8:'self_attn.q_b_proj.weight'; do
		rm -rf other && cp -r "$F/deepseek_v2" other
		sed -i "s/\"${key%%:*}\": [0-9]*/\"${key%%:*}\": $(cut -d : -f 2 <<<"$key")/" other/config.json
		refused 3 "${key##*:}" kv-prefill -m other --ids -o x.kv "$F/short"
	done
	refused 4 'latent_rank: 56 snapshot, 48 model' kv-decode -m "$F/deepseek_v2-64" -n 1 "$F/deepseek_v2.kv"
	python '
import shutil
raw = open(sys.argv[3], "rb").read()
at = raw.index(b"\"latent_rank\":56")
open("bad.kv", "wb").write(raw[:at] + b"\"latent_rank\":55" + raw[at + 16:])' "$F/deepseek_v2.kv"
	run -3 kv-check bad.kv
}
