#!/usr/bin/env bats
# bats file_tags=nosan
# Rows in Python: types of rows (quantised or not), and stages of pipes that drop rows or store them otherwise

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export PYTHONPATH=$ROOT/python VECTORS=$ROOT/formats/vectors/passed
	cat >third.py <<-'END'
		import kvsnapshot
		kvsnapshot.row_stage(lambda layer: [p % 3 != 1 for p in layer.positions], label="third")
	END
}

# python CODE [ARGUMENT ...]: with the package, NumPy, and read() and change() of bytes
python() {
	"$PYTHON" -c "import glob, io, os, sys, numpy as np, kvsnapshot
from kvsnapshot import rowtypes
def read(data):
    return kvsnapshot.read(io.BytesIO(data))
def change(data, **what):
    out = io.BytesIO()
    kvsnapshot.change_rows(io.BytesIO(data), out, **what)
    return out.getvalue()
def refuses(data, words, **what):
    try:
        change(data, **what)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
def stored(data, kind):
    'The headers and the blocks of the sections of that kind.'
    sections = kvsnapshot.container.read(io.BytesIO(data)).sections
    return [(s.layer, s.hash, s.table_hash, s.blocks) for s in sections if s.type == kind]
def vectors(pattern):
    for path in sorted(glob.glob(os.path.join(os.environ['VECTORS'], pattern + '.kv'))):
        with open(path, 'rb') as file:
            yield os.path.basename(path)[:-3], file.read()
$1" "${@:2}"
}

@test "a stage in Python that drops rows writes what kv-evict --rows writes of these rows, and keeps scores" {
	mksnapshot -L 3 -H 8 -G 4 -N 90,12,5,0 -T 200 -w 5 --query-stats --mass --paid --value-norms l2 --gate-scores kvzap --noncausal chunk=256 --scores random --logits -o ragged.kv
	mksnapshot -L 2 -G 2 -N 9000 --scores random -z -o long.kv
	kv-prefill -m "$DEMO" --observe 16 -o real.kv "$ROOT/examples/prompts/harbour.txt"
	kv-score --method snapkv real.kv | kv-evict --rate 0.5 --keep-queries -o again.kv
	for name in ragged long real again; do
		kv-info --positions $name.kv |
		    awk '{ printf "%s %s", $1, $2; for (i = 3; i <= NF; i++) if ($i % 3 != 1) printf " %s", $i; print "" }' >rows
		kv-evict --rows rows --keep-queries -o want.kv $name.kv
		"$PYTHON" third.py <$name.kv >got.kv
		kv-check got.kv
		strip sCOR got.kv bare.kv
		same_but_provenance bare.kv want.kv
	done
	assert_equal "$(see got.kv 's.provenance[-1]["options"]')" "{'method': 'third'}"
	python '
for x, y in zip(kvsnapshot.read("ragged.kv").layers, read(change(open("ragged.kv", "rb").read(), keep=lambda l: [p % 3 != 1 for p in l.positions])).layers):
    for g, p in enumerate(x.positions):
        assert (y.scores[g] == x.scores[g][p % 3 != 1]).all() and y.score_label == x.score_label'
}

@test "rows that stay are the bytes that they were, of every vector, and so is what belongs to them" {
	python '
types, with_stats, with_norms, with_gates, with_noncausal = set(), 0, 0, 0, 0
for name, data in vectors("*"):
    if name.startswith(("kivi-", "residual-")):     # do not store each row by itself
        continue
    new = read(change(data, keep=lambda l: [np.arange(0, len(p), 2) for p in l.positions]))
    for x, y in zip(read(data).layers, new.layers):
        assert (x.key_type, x.value_type) == (y.key_type, y.value_type)
        types |= {x.key_type, x.value_type}
        for what in "positions", "stored_keys", "stored_values", "keys", "values", "scores", "gate_scores", "noncausal":
            a, b = getattr(x, what), getattr(y, what)
            assert (a is None) == (b is None), (name, what)
            for old, kept in zip(a or (), b or ()):
                assert old[::2].tobytes() == kept.tobytes(), (name, what)
        with_gates += x.gate_scores is not None and x.gate_scores_label == y.gate_scores_label
        with_noncausal += x.noncausal is not None and x.noncausal_label == y.noncausal_label
        with_norms += x.value_norms is not None and x.value_norms_label == y.value_norms_label
        for what in "mass", "probe_mass", "value_norms":
            a, b = getattr(x, what), getattr(y, what)
            assert (a is None) == (b is None), (name, what)
            for old, kept in zip(a or (), b or ()):
                assert old[:, ::2].tobytes() == kept.tobytes(), (name, what)
        stats = [(q.first, q.n, *(getattr(q, part).tobytes() for part in ("sums", "moduli", "products")))
                 for q in (x.query_stats, y.query_stats) if q is not None]
        assert stats == 2 * stats[:1], name
        with_stats += bool(stats)
assert with_stats > 30 and with_norms > 20 and with_gates > 20 and with_noncausal > 15
assert types == {"bf16", "f16", "f32", *rowtypes.QUANTISED}'
}

@test "a stage that changes nothing leaves rows, indexes and unknown sections as they are" {
	python '
from kvsnapshot import container
def sections(data):
    return [(s.type, s.layer, s.hash, s.blocks) for s in container.read(io.BytesIO(data)).sections
            if s.type not in ("pADD", "pROv", "iNDX", "ENDS")]
for name, data in vectors("*"):
    assert sections(change(data)) == sections(data), name
    assert sections(change(data, keep=lambda l: [p >= 0 for p in l.positions]))[1:3] == sections(data)[1:3], name
for name, data in vectors("unknown-ancillary"):
    scored = io.BytesIO()
    kvsnapshot.score_stream(lambda l: [0 * p for p in l.positions], io.BytesIO(data), scored)
    assert read(scored.getvalue()).layers[0].scores[0].tolist() == [0, 0, 0]'
}

@test "rows are stored in another type, read as its numbers, and stored as elements again" {
	python '
for name, data in (*vectors("ragged*"), *vectors("rows-*")):
    old, E = read(data), read(data).model["head_width"]
    for kind in rowtypes.QUANTISED:
        if rowtypes.misfit(kind, E) or "extremes" in name or name == "rows-blocks":
            continue
        stored = change(data, keys=kind)
        new = read(stored)
        assert stored[16] == 1 and new.head["row_types"]["keys"] == [kind] * len(old.layers)
        for x, y in zip(old.layers, new.layers):
            assert y.key_type == kind and y.value_type == x.value_type
            for a, b, c, d in zip(x.keys, y.keys, x.values, y.values):
                length = np.linalg.norm(a, axis=1, keepdims=True)
                assert b.dtype == np.float32 and (abs(a - b) <= length / 4).all() and (c == d).all(), (name, kind)
            assert b"".join(h.tobytes() for h in y.stored_keys) == b"".join(
                h.tobytes() if x.key_type == kind else rowtypes.stored(k, kind).tobytes()
                for h, k in zip(x.stored_keys, x.keys))
        plain = change(stored, keys=old.head["dtype"], values=old.head["dtype"])
        assert plain[16] == 0 and "row_types" not in read(plain).head and change(data, keys=kind) == stored
for name, data in vectors("rows-mixed"):
    new = read(change(data, values=["q4_0", "f16", "q4_1", "f16", "fp8"]))
    assert [l.value_type for l in new.layers] == ["q4_0", "f16", "q4_1", "f16", "fp8"]
    assert new.head["row_types"]["keys"] == read(data).head["row_types"]["keys"]
    assert new.provenance[-1]["options"] == {"values": ["q4_0", "f16", "q4_1", "f16", "fp8"]}'
}

@test "rows with full ones behind are stored as kv-quantize stores them, read as its numbers, and stored as elements again" {
	for dtype in bf16 f16 f32; do
		mksnapshot -L 2 -H 4 -G 4 -E 64 -N 300,128,40,0 -T 400 -d $dtype -o full.kv
		for types in kivi2,kivi4,32 q8_0,fp8-hadamard,5 kivi4,q8_0,64 int8,$dtype,1 $dtype,kivi2,128 \
		    q4_0-hadamard,q5_0,299 q4_1,kivi2,4096 kivi2,kivi2,usual; do
			IFS=, read -r keys values residual <<<"$types"
			in_sample 2 || continue
			[ "$residual" != usual ] || residual=
			kv-quantize --keys "$keys" --values "$values" ${residual:+--residual "$residual"} -o want.kv full.kv
			kv-quantize --keys $dtype --values $dtype -o plain.kv want.kv
			python '
dtype, keys, values, residual = sys.argv[1:]
full, want, plain = (open(name, "rb").read() for name in ("full.kv", "want.kv", "plain.kv"))
got = change(full, keys=keys, values=values, residual=int(residual) if residual else None)
back = change(want, keys=dtype, values=dtype)
assert got[16] == 1 and read(got).head["row_types"]["residual"] == int(residual or 128) and back[16] == 0
for a, b in (got, want), (back, plain):
    assert read(a).head == read(b).head
    for x, y in zip(read(a).layers, read(b).layers):
        for what in "stored_keys", "stored_values", "keys", "values":
            for p, q in zip(getattr(x, what), getattr(y, what)):
                assert p.tobytes() == q.tobytes(), what
few = read(change(want, keys=dtype, values=dtype, keep=lambda l: [p % 3 == 1 for p in l.positions]))
for x, y in zip(read(plain).layers, few.layers):
    for p, a, b in zip(x.positions, x.keys, y.keys):
        assert (a[p % 3 == 1] == b).all()' $dtype "$keys" "$values" "$residual"
		done
	done
}

@test "the numbers of rows with full ones behind, some of which no writer makes, are those of kv-quantize" {
	for name in kivi-{extremes,ragged,mixed,f32,residual-4096,keys-only} residual-{1,33,4096,types,beside,kivi}; do
		dtype=$(see "$VECTORS/$name.kv" 's.head["dtype"]')
		kv-quantize --keys "$dtype" --values "$dtype" -o want.kv "$VECTORS/$name.kv"
		python '
name, dtype = sys.argv[1:]
for _, data in vectors(name):
    got = read(change(data, keys=dtype, values=dtype))
    for x, y in zip(got.layers, kvsnapshot.read("want.kv").layers):
        for what in "stored_keys", "stored_values":
            for a, b in zip(getattr(x, what), getattr(y, what)):
                assert a.tobytes() == b.tobytes(), (name, x.index, what)' "$name" "$dtype"
	done
}

@test "a stage in Python leaves rows with full ones behind as they are, and says how to drop some" {
	python '
for name, data in (*vectors("kivi-*"), *vectors("residual-*")):
    if name.endswith("-blocks"):
        continue
    scored, both = io.BytesIO(), []
    kvsnapshot.score_stream(lambda l: [abs(k).sum(axis=1) if np.isfinite(k).all() else np.zeros(len(k)) for k in l.keys],
                            io.BytesIO(data), scored)
    for new in read(change(data, keep=lambda l: [p >= 0 for p in l.positions])), read(scored.getvalue()):
        assert new.head == read(data).head
        for x, y in zip(read(data).layers, new.layers):
            for what in "stored_keys", "stored_values":
                for a, b in zip(getattr(x, what), getattr(y, what)):
                    assert a.tobytes() == b.tobytes(), name
def refused(words, **what):
    refuses(data, words, **what)
for name, data in vectors("kivi-ragged"):
    drop = lambda l: [p > 0 for p in l.positions]
    refused("KEYS layer 0 KV head 0 has full rows behind quantised ones (residual 32): no single row can be dropped: "
            "evict before kv-quantize; or dequantise it: kv-quantize --keys f16 --values f16", keep=drop)
    refused("VALS layer 0 KV head 0 has full rows behind quantised ones (residual 32): no single row can be dropped", keep=drop, keys="f16")
    refused("residual 64: the snapshot leaves 32 rows full; dequantise it first", keys="kivi4", residual=64)
    refused("residual 64: no type is quantised", keys="f16", values="f16", residual=64)
    new = read(change(data, keys="kivi4", residual=32))
    assert new.layers[0].key_type == "kivi4" and new.head["row_types"]["residual"] == 32
    assert read(change(data, keep=drop, keys="q8_0", values="f16")).layers[0].key_type == "q8_0"
for name, data in vectors("rows-none"):
    for R in 48, 0, -32, 4128:
        refused(f"types.residual: {R} is no multiple of 32", keys="kivi2", values="bf16", residual=R)
    few = read(change(data, keys="kivi2", values="bf16", keep=lambda l: [p < 0 for p in l.positions]))
    assert few.layers[1].key_type == "kivi2"
for name, data in vectors("residual-beside"):       # a layer that is not quantised, and the layers behind it
    refused("KEYS layer 1 KV head 0 has full rows behind quantised ones (residual 3): no single row can be dropped",
            keep=lambda l: [p > 0 for p in l.positions])
    refused("VALS layer 3 KV head 1 has full rows behind quantised ones (residual 3)",
            keep=lambda l: [p > 0 for p in l.positions] if l.index in (0, 3) else [p >= 0 for p in l.positions])
    few = read(change(data, keep=lambda l: [p > 0 if l.index == 0 else p >= 0 for p in l.positions]))
    assert few.head == read(data).head
    assert [[len(k) for k in l.keys] for l in few.layers] == [[6, 1], [3, 4], [9, 9], [0, 8]]
    few = read(change(data, keep=lambda l: [p > 0 for p in l.positions], keys="bf16", values="bf16"))
    for x, y in zip(read(data).layers, few.layers):
        for p, a, b in zip(x.positions, x.values, y.values):
            assert x.value_type != "bf16" or (a[p > 0] == b).all()
            assert y.value_type == "bf16" and len(b) == (p > 0).sum()
for name, data in vectors("kivi-full-rows-not-finite"):
    refused("KEYS layer 0 KV head 0 row 0: a number is not finite", keys="q8_0", values="f16")
    assert read(change(data, keys="q8_0")).layers[0].key_type == "q8_0"     # these rows stay full'
}

@test "a residual is that of all quantised sections: given, or that of the snapshot, as long as some of it stays" {
	python '
def becomes(R, pattern, residual=None, **types):
    (name, data), = vectors(pattern)
    old, new = read(data), read(change(data, residual=residual, **types))
    assert new.head.get("row_types", {}).get("residual") == R, (name, new.head)
    dtype = old.head["dtype"]
    for x, y in zip(old.layers, new.layers):
        for what in "key", "value":
            kind, before = (getattr(l, what + "_type") for l in (y, x))
            numbers, a, b = (getattr(l, part + what + "s") for l, part in ((x, ""), (x, "stored_"), (y, "stored_")))
            for k, there, here in zip(numbers, a, b):
                n = len(k) if R is None else max(len(k) - R, 0)
                if kind == before:
                    assert here.tobytes() == there.tobytes()
                elif kind in rowtypes.QUANTISED:        # those of kivi2 and kivi4: the other tests
                    assert here.tobytes() == rowtypes.stored(k[:n], kind).tobytes() + rowtypes.stored(k[n:], dtype).tobytes()
def refused(words, pattern, **what):
    (name, data), = vectors(pattern)
    refuses(data, words, **what)
way = "dequantise it first: kv-quantize --keys {0} --values {0}".format
# nothing is quantised before
becomes(None, "rows-none", keys="bf16", values="bf16")
becomes(None, "rows-none", keys="bf16", values="bf16", residual=0)
refused("residual 3: no type is quantised, so every row is full", "rows-none", keys="bf16", values="bf16", residual=3)
refused("residual 3: no type is quantised", "ragged-bf16", residual=3)
for R in 1, 4, 4096:
    becomes(R, "ragged-bf16", keys="int8", residual=R)
    becomes(R, "ragged-bf16", values=["fp8", "bf16", "int8", "bf16", "bf16"], residual=R)
for R in -1, 4097, 1.5, True, "x":
    refused(f"types.residual: {R!r} is no integer from 1 to 4096", "ragged-bf16", values="int8", residual=R)
becomes(None, "ragged-bf16", keys="int8")
becomes(None, "ragged-bf16", keys="int8", residual=0)
# no full rows before, and some rows stay
becomes(None, "rows-mixed", keys="q8_0", residual=0)
refused("residual 5: the snapshot leaves no rows full; " + way("f16"), "rows-mixed", keys="q8_0", residual=5)
refused("residual 5: the snapshot leaves no rows full; " + way("f16"), "rows-mixed", residual=5)
refused("residual 128: the snapshot leaves no rows full; " + way("f16"), "rows-mixed", keys="kivi2")
becomes(9, "rows-mixed", keys="q4_0", values="q8_0", residual=9)
becomes(128, "rows-mixed", keys="kivi2", values="q8_0")
# full rows before, and some rows stay
becomes(32, "residual-kivi", keys="q8_0")
becomes(32, "residual-kivi", keys="q8_0", residual=32)
becomes(5, "residual-types", keys="q8_0")
becomes(5, "residual-types", values="f16")
becomes(5, "residual-types", keys="q4_1", residual=5)
for R in 0, 6, 64:
    refused(f"residual {R}: the snapshot leaves 32 rows full; " + way("f16"), "residual-kivi", keys="q8_0", residual=R)
refused("residual 6: the snapshot leaves 5 rows full", "residual-types", values="f16", residual=6)
refused("types.residual: 5 is no multiple of 32", "residual-types", values="kivi2")
# and none stays
becomes(None, "residual-kivi", keys="q8_0", values="q8_0")
becomes(None, "residual-kivi", keys="f16", values="f16")
becomes(64, "residual-kivi", keys="q8_0", values="q8_0", residual=64)
becomes(None, "residual-kivi", keys="q8_0", values="q8_0", residual=0)
becomes(32, "residual-kivi", keys="kivi2", values="q8_0")
becomes(96, "residual-kivi", keys="kivi2", values="q8_0", residual=96)
refused("types.residual: 3 is no multiple of 32", "residual-beside", keys="kivi2", values="bf16")
becomes(32, "residual-beside", keys="kivi2", values="bf16", residual=32)'
}

@test "elements of another dtype are rounded to nearest, ties to even" {
	python '
x = np.array([[1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, -3.4e38, np.inf, np.nan, 0, -0.0, 2 ** -133, 1 + 2 ** -11]], "<f4")
x = np.concatenate([x, x])
assert rowtypes.stored(x, "f32").tobytes() == x.tobytes()
assert rowtypes.stored(x, "bf16").view("<u2").tolist()[0] == [0x3f80, 0x3f80, 0x3f82, 0xff80, 0x7f80, 0x7fc0, 0, 0x8000, 1, 0x3f80]
assert rowtypes.stored(x, "f16").view("<u2").tolist()[1] == [0x3c00, 0x3c04, 0x3c0c, 0xfc00, 0x7c00, 0x7e00, 0, 0x8000, 0, 0x3c00]
for dtype in "bf16", "f16", "f32":
    rows = rowtypes.stored(x[:, :3], dtype)
    assert rows.shape == (2, 3 * rowtypes.ITEM_SIZE[dtype]) and (rowtypes.numbers(rows, dtype, 3)[0, 0] == 1)'
}

@test "indexes are dropped with the rows or the keys that they are of, and not with values; so are unknown ones that depend on rows" {
	python '
def kinds(data):
    return {s.type for s in kvsnapshot.container.read(io.BytesIO(data)).sections}
indexes = {"bITS", "pAGE", "cLUS", "lOWR"}
for name, data in vectors("rows-indexes-bf16"):
    assert indexes <= kinds(data) and indexes <= kinds(change(data, values="int8"))
    assert not indexes & kinds(change(data, keys="int8"))
    assert not indexes & kinds(change(data, keep=lambda l: [p > 9 for p in l.positions]))
    # of the layer alone that has changed
    new = kvsnapshot.container.read(io.BytesIO(change(data, keys=["q8_0", "fp8"])))
    assert new.layers[0].bits and not new.layers[1].bits
for name, data in vectors("unknown-ancillary"):
    unsafe, safe = {"qXYZ", "aBCD", "qpYZ"}, {"qXYz", "qpYz", "zZZz"}
    assert unsafe | safe <= kinds(data) and unsafe | safe <= kinds(change(data, values="int8"))
    few = kinds(change(data, keep=lambda l: [[] for p in l.positions]))
    assert safe <= few and not unsafe & few'
	"$PYTHON" third.py <"$VECTORS/rows-indexes-bf16.kv" 2>said >out.kv
	assert_equal "$(cat said)" "third.py: dropped bITS, cLUS, lOWR, pAGE: not of these rows"
}

@test "query statistics stay as they are stored when rows are dropped or quantised, and when a stage scores" {
	mksnapshot -L 3 -H 6 -G 2 -E 8 -N 20 -w 3 --query-stats --mass --scores random -z -o full.kv
	mksnapshot -L 2 -H 2 -G 2 -N 3 -T 3 --query-stats -o none.kv
	"$PYTHON" third.py <full.kv >third.kv 2>said
	assert_equal "$(cat said)" ""
	kv-check -q third.kv
	python '
for name, data in (*vectors("query-stats*"), *((n, open(n, "rb").read()) for n in ("full.kv", "none.kv"))):
    want = stored(data, "qSTa")
    assert want, name
    for what in ({}, {"values": "int8"}, {"keys": "fp8", "values": "fp8", "residual": 3},
                 {"keep": lambda l: [[] for p in l.positions]}, {"keep": lambda l: [p >= 0 for p in l.positions]},
                 {"keep": lambda l: [p % 2 == 0 for p in l.positions], "keys": "int8"}):
        assert stored(change(data, **what), "qSTa") == want, (name, what)
    scored = io.BytesIO()
    kvsnapshot.score_stream(lambda l: [0 * p for p in l.positions], io.BytesIO(data), scored)
    assert stored(scored.getvalue(), "qSTa") == want, name
assert stored(open("third.kv", "rb").read(), "qSTa") == stored(open("full.kv", "rb").read(), "qSTa")
full, none = kvsnapshot.read("full.kv"), kvsnapshot.read("none.kv")
assert [(l.query_stats.first, l.query_stats.n) for l in (*full.layers, *none.layers)] == [(4, 16)] * 3 + [(4, 0)] * 2
for l in full.layers:
    q = l.query_stats
    assert q.mean.shape == (6, 8) and q.mean_modulus.shape == (6, 4) and len({m.tobytes() for m in q.mean}) == 6
    assert (abs(q.mean) < 2).all() and (q.mean_modulus > 0).all() and (np.linalg.eigvalsh(q.covariance) > 0).all()'
}

@test "a stage of scores in Python reads query statistics, with rotation of some channels or none" {
	cat >modulus.py <<-'END'
		import kvsnapshot
		def score(layer):
		    q, R = layer.query_stats, layer.model["query_heads"] // layer.model["kv_heads"]
		    return [(k @ q.mean[g * R:(g + 1) * R].T).max(axis=1) + q.mean_modulus[g * R:(g + 1) * R].sum()
		            for g, k in enumerate(layer.keys)]
		kvsnapshot.stage(score, "modulus")
	END
	for name in query-stats query-stats-width query-stats-skip query-stats-skip-all; do
		"$PYTHON" modulus.py <"$VECTORS/$name.kv" >scored.kv
		python '
old, new = kvsnapshot.read(sys.argv[1]), kvsnapshot.read("scored.kv")
for x, y in zip(old.layers, new.layers):
    assert y.score_label == "modulus" and np.isfinite(np.concatenate(y.scores)).all()
    assert x.query_stats.mean.tobytes() == y.query_stats.mean.tobytes()' "$VECTORS/$name.kv"
	done
}

@test "norms of value outputs go with their rows, and with the values that they are of" {
	mksnapshot -L 3 -H 6 -G 2 -N 20,0 -T 30 --mass --paid --value-norms l2 --scores random -z -o full.kv
	mksnapshot -L 3 -H 6 -G 2 -N 20,0 -T 30 --mass --paid --scores random -z -o without.kv
	run -2 mksnapshot --value-norms l3 -o no.kv
	"$PYTHON" third.py <full.kv >third.kv 2>said
	assert_equal "$(cat said)" ""
	kv-check -q full.kv third.kv
	python '
def norms(data):
    return [(l.index, l.value_norms_label, [v.tobytes() for v in l.value_norms])
            for l in read(data).layers if l.value_norms]
def other(dtype):
    return {"keys": dtype, "values": dtype}
for name, data in (*vectors("vnrm*"), ("full", open("full.kv", "rb").read())):
    want, old = stored(data, "vNRM"), read(data)
    types = [(l.key_type, l.value_type) for l in old.layers]
    assert want and norms(data), name
    for what in ({}, {"keys": "int8"}, {"keys": "fp8", "residual": 3}, {"keep": lambda l: [p >= 0 for p in l.positions]}):
        if "residual" in what and name == "vnrm-quantised":
            continue
        assert stored(change(data, **what), "vNRM") == want, (name, what)
    scored = io.BytesIO()
    kvsnapshot.score_stream(lambda l: [v.sum(axis=0) for v in l.value_norms] if l.value_norms else [0 * p for p in l.positions],
                            io.BytesIO(data), scored)
    assert stored(scored.getvalue(), "vNRM") == want, name
    for keep in (lambda l: [p % 2 == 0 for p in l.positions], lambda l: [p > 1 for p in l.positions],
                 lambda l: [[] for p in l.positions], lambda l: [range(len(p))[-1:] for p in l.positions]):
        for types in {}, {"keys": "int8"}:
            new = read(change(data, keep=keep, **types))
            for x, y in zip(old.layers, new.layers):
                assert x.value_norms_label == y.value_norms_label, name
                assert (x.value_norms is None) == (y.value_norms is None), name
                for v, rows, kept in zip(x.value_norms or (), keep(x), y.value_norms or ()):
                    assert v[:, rows if len(rows) else []].tobytes() == kept.tobytes() and kept.dtype == v.dtype, name
    # of the layers alone whose values are stored otherwise
    want = [n for n, l in zip(norms(data), [l for l in old.layers if l.value_norms]) if l.value_type == "int8"]
    for more in {}, {"keep": lambda l: [p >= 0 for p in l.positions]}:
        assert norms(change(data, values="int8", **more)) == want, name
    out = io.BytesIO()
    assert kvsnapshot.change_rows(io.BytesIO(data), out, values="int8") == ["vNRM"], name
    new = [old.layers[0].value_type] + ["int8"] * (len(old.layers) - 1)
    assert norms(change(data, values=new)) == [n for n in norms(data) if new[n[0]] == old.layers[n[0]].value_type], name
full, bare, third = (kvsnapshot.read(n + ".kv") for n in ("full", "without", "third"))
for x, y, z in zip(full.layers, bare.layers, third.layers):
    assert y.value_norms is y.value_norms_label is None and x.value_norms_label == z.value_norms_label == "l2"
    assert [v.shape for v in x.value_norms] == [(3, 20), (3, 0)] and (x.value_norms[0] > 0).all()
    rows = x.positions[0] % 3 != 1
    assert 0 < rows.sum() < 20 and (x.value_norms[0][:, rows] == z.value_norms[0]).all()
    assert not (x.value_norms[0] == x.mass[0]).any() and not (x.value_norms[0] == x.probe_mass[0]).any()
    for what in "mass", "probe_mass", "scores", "keys", "values":
        assert all(a.tobytes() == b.tobytes() for a, b in zip(getattr(x, what), getattr(y, what)))
assert len({l.value_norms[0].tobytes() for l in full.layers}) == 3'
	run --separate-stderr bash -c '"$PYTHON" -c "import kvsnapshot; kvsnapshot.row_stage(values=\"int8\")" <full.kv >x.kv'
	assert_equal "$stderr" "-c: dropped vNRM: not of these rows"
}

@test "a stage of scores in Python reads norms of value outputs" {
	cat >critical.py <<-'END'
		import kvsnapshot
		def score(layer):
		    return [(m * v).mean(axis=0) for m, v in zip(layer.mass, layer.value_norms)]
		kvsnapshot.stage(score, "critical")
	END
	for name in vnrm vnrm-empty-heads vnrm-planes; do
		"$PYTHON" critical.py <"$VECTORS/$name.kv" >scored.kv
		python '
old, new = kvsnapshot.read(sys.argv[1]), kvsnapshot.read("scored.kv")
for x, y in zip(old.layers, new.layers):
    assert y.score_label == "critical" and x.value_norms_label == y.value_norms_label in ("l1", "l2")
    for m, v, w, s in zip(x.mass, x.value_norms, y.value_norms, y.scores, strict=True):
        assert v.tobytes() == w.tobytes() and s.tolist() == (m * v).mean(axis=0).tolist()' "$VECTORS/$name.kv"
	done
}

@test "gate scores and non-causal attention go with their rows, in whatever type keys and values are stored" {
	mksnapshot -L 3 -H 6 -G 2 -N 20,0 -T 30 --value-norms l2 --gate-scores "kvzap mlp" --noncausal "chunk=256 first=4" --scores random -z -o full.kv
	mksnapshot -L 3 -H 6 -G 2 -N 20,0 -T 30 --value-norms l2 --scores random -z -o without.kv
	"$PYTHON" third.py <full.kv >third.kv 2>said
	assert_equal "$(cat said)" ""
	kv-check -q full.kv third.kv
	cat >with_rows.py <<-'END'
		kind, name, pattern, label, least = sys.argv[1:]
		def numbers(layer):
		    return getattr(layer, name) or ()
		def label_of(layer):
		    return getattr(layer, name + "_label")
		seen = 0
		for vector, data in (*vectors(pattern), ("full", open("full.kv", "rb").read())):
		    want, old, alike = stored(data, kind), read(data), not vector.startswith("residual-")
		    assert want, vector
		    types = [{}, {"keys": "int8"}, {"values": "int8"}, {"keys": "fp8", "values": "int8"}] if alike else [{}]
		    for what in (*types, {"keep": lambda l: [p >= 0 for p in l.positions]}):
		        assert stored(change(data, **what), kind) == want, (vector, what)
		    scored = io.BytesIO()
		    kvsnapshot.score_stream(lambda l: numbers(l) or [0 * p for p in l.positions], io.BytesIO(data), scored)
		    assert stored(scored.getvalue(), kind) == want, vector
		    for l in read(scored.getvalue()).layers:
		        seen += label_of(l) is not None
		        assert all(a.tobytes() == b.tobytes() for a, b in zip(numbers(l), l.scores)), vector
		    for keep in (lambda l: [p % 2 == 0 for p in l.positions], lambda l: [p > 1 for p in l.positions],
		                 lambda l: [[] for p in l.positions], lambda l: [range(len(p))[-1:] for p in l.positions]):
		        for what in types if alike else ():         # else no single row can be dropped
		            for x, y in zip(old.layers, read(change(data, keep=keep, **what)).layers):
		                assert label_of(x) == label_of(y), vector
		                assert (getattr(x, name) is None) == (getattr(y, name) is None), vector
		                for v, rows, kept in zip(numbers(x), keep(x), numbers(y)):
		                    assert v[rows if len(rows) else []].tobytes() == kept.tobytes() and kept.dtype == v.dtype, vector
		assert seen > int(least), seen
		full, bare, third = (kvsnapshot.read(n + ".kv") for n in ("full", "without", "third"))
		for x, y, z in zip(full.layers, bare.layers, third.layers):
		    assert getattr(y, name) is label_of(y) is None and label_of(x) == label_of(z) == label
		    assert [v.shape for v in numbers(x)] == [(20,), (0,)]
		    assert (numbers(x)[0] > 0).any() and (numbers(x)[0] < 0).any() == (kind == "gATE")
		    rows = x.positions[0] % 3 != 1
		    assert 0 < rows.sum() < 20 and (numbers(x)[0][rows] == numbers(z)[0]).all()
		    assert not (abs(numbers(x)[0]) == abs(x.scores[0])).any()
		    for what in "value_norms", "scores", "keys", "values":
		        assert all(a.tobytes() == b.tobytes() for a, b in zip(getattr(x, what), getattr(y, what)))
		assert len({numbers(l)[0].tobytes() for l in full.layers}) == 3
	END
	python "$(cat with_rows.py)" gATE gate_scores '*gate*' "kvzap mlp" 30
	python "$(cat with_rows.py)" nCAU noncausal '*ncau*' "chunk=256 first=4" 20
	run --separate-stderr bash -c '"$PYTHON" -c "import kvsnapshot; kvsnapshot.row_stage(values=\"int8\")" <full.kv >x.kv'
	assert_equal "$stderr" "-c: dropped vNRM: not of these rows"
}

@test "what cannot be is refused with the place, and the output has no end" {
	cat >refused.py <<-'END'
		import io, sys, numpy as np, kvsnapshot
		from kvsnapshot import rowtypes
		def refused(words, **what):
		    out = io.BytesIO()
		    try:
		        kvsnapshot.change_rows(open(sys.argv[1], "rb"), out, **what)
		    except ValueError as error:
		        assert words in str(error), error
		    else:
		        raise AssertionError(words)
		    try:
		        kvsnapshot.read(io.BytesIO(out.getvalue()))
		    except kvsnapshot.Bad as error:
		        assert "truncated" in str(error)
		    else:
		        raise AssertionError("it has an end")
		def unfit(words, x, kind):
		    try:
		        rowtypes.stored(np.array(x, "<f4"), kind)
		    except ValueError as error:
		        assert words in str(error), error
		    else:
		        raise AssertionError(words)
		all_rows = lambda l: [np.arange(len(p)) for p in l.positions]
		refused("layer 0: rows of 2 KV heads, and there are 3", keep=lambda l: all_rows(l)[1:])
		refused("layer 0 KV head 0: rows 0 to 7 of 7", keep=lambda l: [[0, 7], [], []])
		refused("layer 0 KV head 1: rows -1 to 0 of 3", keep=lambda l: [[0], [0, -1], []])
		refused("layer 0 KV head 2: a mask of shape (3,) for 2 rows", keep=lambda l: [[], [], [True] * 3])
		refused("layer 0 KV head 0: rows are indexes or a mask, not float64", keep=lambda l: [[1.0], [], []])
		refused("types.keys layer 0: 'q8_1' is neither dtype nor a quantised type", keys="q8_1")
		refused("types.values layer 0: 'f32' is neither dtype", values="f32")
		refused("keys: types of 1 layers, and there are 5", keys=["q8_0"])
		row = np.ones((3, 32))
		unfit("q8_0 wants a head width that is a multiple of 32, not 48", np.ones((1, 48)), "q8_0")
		unfit("int8-hadamard wants a head width that is a power of 2, not 48", np.ones((1, 48)), "int8-hadamard")
		unfit("'q8_1' is no type of rows", row, "q8_1")
		for bad in np.nan, np.inf, -np.inf:
		    for kind in rowtypes.QUANTISED:
		        row[1, 31] = bad
		        unfit("row 1: a number is not finite", row, kind)
		row[1, 31] = 1e7
		unfit("row 1: the scale of block 0 is not finite", row, "q8_0")
		unfit("row 0: the minimum of block 0 is not finite", np.full((1, 32), -1e5), "q4_1")
		unfit("row 0: the transform is not finite", np.full((1, 32), 3e38), "int8-hadamard")
		unfit("row 0: the scale of block 0 is not finite", [[-3e38, 3e38] * 16], "q4_1")
	END
	"$PYTHON" refused.py "$VECTORS/rows-mixed.kv"
	python '
bad = rowtypes.stored(np.ones((1, 32)), "fp8")
assert rowtypes.fault("fp8", 32, bad.tobytes()) is None
bad[0, 20] = 0xff
assert rowtypes.fault("fp8", 32, bad.tobytes()) == (0, "a code is NaN")'
	mksnapshot -E 33 -d bf16 -o odd.kv
	run -1 --separate-stderr bash -c '"$PYTHON" -c "import kvsnapshot; kvsnapshot.row_stage(keys=\"q4_0\")" <odd.kv >x.kv'
	assert_regex "$stderr" 'types.keys layer 0: q4_0 wants a head width that is a multiple of 32, not 33$'
	run -3 kv-check x.kv
}

@test "scores in Python of quantised rows are those of their numbers, and the rows stay as they are" {
	python '
for name, data in vectors("rows-mixed"):
    out = io.BytesIO()
    kvsnapshot.score_stream(lambda l: [abs(k).sum(axis=1) + abs(v).max(axis=1, initial=0) for k, v in zip(l.keys, l.values)],
                            io.BytesIO(data), out)
    old, new = read(data), read(out.getvalue())
    for x, y in zip(old.layers, new.layers):
        for g, rows in enumerate(x.stored_keys):
            assert rows.tobytes() == y.stored_keys[g].tobytes()
            assert y.scores[g].tolist() == (abs(x.keys[g]).sum(axis=1) + abs(x.values[g]).max(axis=1, initial=0)).tolist()'
}
