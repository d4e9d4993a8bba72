"""pair_single - rules of what the programs do with every family, for pair_rules.py: a text in
parts, several texts, rows elsewhere, documents, probes, selected tokens, other forms of a
snapshot"""

import json

import numpy as np

from pair_family import ROWS, WINDOW, need, near, near_rows, queries, same


def threads(f):
    """One and three threads: the same bytes"""
    f.prefill("a.kv", *f.collect(), "-j", 1)
    f.prefill("b.kv", *f.collect(), "-j", 3)
    need(f.path("a.kv").read_bytes() == f.path("b.kv").read_bytes(), "other bytes of a prompt")
    one = f.decoded("a.kv", "-j", 1, "-o", "c.kv")
    need(f.decoded("a.kv", "-j", 3, "-o", "d.kv") == one, "other ids")
    need(f.path("c.kv").read_bytes() == f.path("d.kv").read_bytes(), "other bytes of a text")


def tolerance(f):
    """Of the same text in other parts: activations that are rounded are so for other rows."""
    return 0.3 if f.rounds else 1e-4


def chunks(f):
    """Chunks, layer by layer and a text in two parts: the rows and logits of one run"""
    whole = f.read(f.plain())
    for out, words in ("chunks.kv", ["--chunk", 7]), ("layers.kv", ["--score", "recent", "--evict",
                                                                     "rate=1"]):
        s = f.prefill(out, *words)
        near_rows(s, whole, tolerance(f))
        near(s.logits, whole.logits, tolerance(f))
    f.text("most", f.ids[:ROWS - 1])
    f.text("last", f.ids[ROWS - 1:ROWS])
    f.prefill("most.kv", text="most")
    s = f.prefill("two.kv", "-r", "most.kv", text="last")
    near_rows(s, whole, tolerance(f))
    near(s.logits, whole.logits, tolerance(f))


def parts(f):
    """What methods read, of a text in two parts: that of one run"""
    words = [word for word in f.collect() if word not in ("--noncausal", 0)]
    f.text("begin", f.ids[:30])
    f.text("rest", f.ids[30:ROWS])
    f.prefill("begin.kv", *words, text="begin")
    s, whole = f.prefill("two.kv", *words, "-r", "begin.kv", text="rest"), f.read(f.full())
    for l, (a, b) in enumerate(zip(s.layers, whole.layers)):
        near(queries(s, l), queries(whole, l), tolerance(f), f"queries of layer {l}")
        for what in "mass", "value_norms":
            for p, q in zip(getattr(a, what), getattr(b, what)) if what == "mass" else zip(
                    a.value_norms.values, b.value_norms.values):
                near(p, q, tolerance(f), f"{what} of layer {l}")
        near(a.query_stats.sums, b.query_stats.sums, tolerance(f), f"sums of layer {l}")
        need(a.query_stats.n == b.query_stats.n, f"{a.query_stats.n} queries, {b.query_stats.n}")


def batch_evict(f):
    """Three texts at once that are evicted while they are decoded: each as alone"""
    together(f, "--score", "snapkv", "--evict", "budget=10")


def batch_retrieve(f):
    together(f, "--retrieve", "quest budget=16", index=("kv-index", "--pages", "--page", 8))


def batch_quantised(f):
    kinds = ("--keys", "int8") + (() if f.latent else ("--values", "int8"))
    together(f, index=("kv-quantize", *kinds))


def batch(f):
    together(f)


def together(f, *words, index=None):
    """Three texts at once: each as alone, to the byte"""
    f.path("together").mkdir(exist_ok=True)
    for n in range(3):
        f.text("text", f.ids[n:n + 18 * (n + 1)])
        f.prefill("text.kv" if index else f"text.{n}.kv", "--observe", WINDOW, "--mass",
                  text="text")
        if index:
            f.made(f"text.{n}.kv", *index, "text.kv")
        f.decoded(f"text.{n}.kv", *words, "-o", f"alone.{n}.kv", n=5)
    f.ran("kv-decode", "-q", "-m", f.model, "--ids", "--ignore-eos", "-n", 5, "-j", 2, *words,
          "-o", "together", "text.0.kv", "text.1.kv", "text.2.kv")
    for n in range(3):
        need(f.path(f"alone.{n}.kv").read_bytes() == f.path(f"together/text.{n}.kv").read_bytes(),
             f"text {n}: other bytes than alone")


def draft(f):
    """What a draft of half of the rows proposes changes no byte."""
    want = f.decoded(f.full(), "-o", "want.kv", n=9)
    got = f.decoded(f.full(), "-o", "got.kv", "--draft", f.evicted(), n=9)
    need(got == want, f"ids {got}, without a draft {want}")
    same(f.read("got.kv"), f.read("want.kv"), "logits")


def draft_quantised(f):
    f.made("q8.kv", "kv-quantize", "--keys", "int8", *(() if f.latent else ("--values", "int8")),
           f.plain())
    want = f.decoded(f.plain(), n=9)
    need(f.decoded(f.plain(), "--draft", "q8.kv", n=9) == want, "other ids")


def draft_retrieve(f):
    f.made("index.kv", "kv-quantize1b", f.plain())
    want = f.decoded(f.plain(), n=9)
    need(f.decoded("index.kv", "--draft", "index.kv", "--retrieve", "fier budget=8", n=9) == want,
         "other ids")


def stream(f):
    """Rows that stay in the file"""
    want = f.decoded(f.plain(), "-o", "want.kv", n=6)
    need(f.decoded(f.plain(), "--stream", "-o", "got.kv", n=6) == want, "other ids")
    same(f.read("got.kv"), f.read("want.kv"), "logits")


def questions(f):
    """Each answer is that of the programs for this question alone."""
    asked = [f.ids[50:55], f.ids[70:73]]
    f.path("questions").write_text("\n".join(" ".join(map(str, q)) for q in asked) + "\n")
    said = f.ran("kv-decode", "-q", "-m", f.model, "--ids", "--ignore-eos", "-n", 4, "--plain",
                 "--questions", "questions", f.plain())
    for n, text in enumerate(f.path("questions").read_text().splitlines()):
        f.path("question").write_text(text)
        f.made("asked.kv", "kv-prefill", "-m", f.model, "--no-template", "--plain", "-r",
               f.plain(), "question")
        answer = " ".join(map(str, f.decoded("asked.kv")))
        need(said.splitlines()[n] == answer, f"{said.splitlines()[n]}, alone {answer}")


def force(f):
    """Logits of tokens that are given are those of a prompt."""
    f.prefill("whole.kv", "--logits", "whole.npy")
    f.text("begin", f.ids[:ROWS - 6])
    f.text("rest", f.ids[ROWS - 6:ROWS])
    f.prefill("begin.kv", text="begin")
    f.ran("kv-decode", "-q", "-m", f.model, "--ids", "--force", "rest", "--logits", "rest.npy",
          "begin.kv")
    whole, rest = np.load(f.path("whole.npy")), np.load(f.path("rest.npy"))
    near(rest, whole[ROWS - 7:ROWS - 1], tolerance(f))


def reuse(f):
    """The rows of a prompt's beginning"""
    f.text("begin", f.ids[:ROWS - 10])
    f.prefill("begin.kv", text="begin")
    s, whole = f.prefill("reused.kv", "--reuse", "begin.kv"), f.read(f.plain())
    near_rows(s, whole, tolerance(f))
    near(s.logits, whole.logits, tolerance(f))


def store(f):
    """The rows of a store"""
    f.text("long", f.ids)
    cold = f.prefill("cold.kv", text="long")
    f.prefill("first.kv", "--store", "store", text="long")
    warm = f.prefill("warm.kv", "--store", "store", text="long")
    for s in f.read("first.kv"), warm:
        near_rows(s, cold, tolerance(f))
        near(s.logits, cold.logits, tolerance(f))
    need(len(list(f.path("store").rglob("*.kv"))) == 1, "blocks of the store")


def store_quantised(f):
    f.text("long", f.ids)
    words = ["--keys", "int8"] + ([] if f.latent else ["--values", "int8"])
    f.prefill("first.kv", *words, "--store", "store8", text="long")
    warm = f.prefill("warm.kv", *words, "--store", "store8", text="long")
    same_rows = all(list(a.positions[0]) == list(b.positions[0])
                    for a, b in zip(warm.layers, f.read("first.kv").layers))
    need(same_rows, "other rows")
    near(warm.logits, f.read("first.kv").logits, max(tolerance(f), 0.02))


def evicted_then_more(f):
    """A text behind an eviction, in one run and token by token"""
    f.text("more", f.ids[60:70])
    a = f.made("a.kv", "kv-prefill", "-m", f.model, "--ids", "-r", f.evicted(), "more")
    b = f.made("b.kv", "kv-prefill", "-m", f.model, "--ids", "--chunk", 3, "-r", f.evicted(),
               "more")
    near_rows(a, b, tolerance(f))
    near(a.logits, b.logits, tolerance(f))


def compact(f):
    """Rows that get other positions keep their count, and the text goes on."""
    f.made("k.kv", "kv-score", "--method", "knorm", f.full())
    f.made("small.kv", "kv-evict", "--rate", 0.5, "--positions", "compact", "k.kv")
    need([layer.rows for layer in f.read("small.kv").layers] ==
         [layer.rows for layer in f.read(f.evicted()).layers], "other numbers of rows")
    f.decoded("small.kv")


def merged_documents(f):
    """The text in two documents, as merged.kv"""
    f.text("a", f.ids[:20])
    f.text("b", f.ids[20:ROWS])
    f.prefill("a.kv", text="a")
    f.prefill("b.kv", text="b")
    return f.made("merged.kv", "kv-merge", "a.kv", "b.kv")


def documents(f):
    """Merged documents, all of whose tokens ran again, have the rows of one text."""
    merged_documents(f)
    s = f.made("again.kv", "kv-recompute", "-m", f.model, "--rate", 1, "merged.kv")
    near_rows(s, f.read(f.plain()), tolerance(f))
    f.text("more", f.ids[ROWS:ROWS + 3])
    f.made("longer.kv", "kv-prefill", "-m", f.model, "--ids", "-r", "merged.kv", "more")
    f.decoded("longer.kv")


def documents_in_part(f):
    merged = merged_documents(f)
    for words in ("--rate", 0.3), ("--rate", 0.3, "--by", "values"), ("--first", 4):
        s = f.made("again.kv", "kv-recompute", "-m", f.model, *words, "merged.kv")
        need([list(p) for layer in s.layers for p in layer.positions] ==
             [list(p) for layer in merged.layers for p in layer.positions], "other rows")


def probes(f):
    """Queries of probe tokens are those that the same tokens have in a prompt."""
    f.text("more", f.ids[ROWS:ROWS + WINDOW])
    f.text("both", f.ids[:ROWS + WINDOW])
    seen = f.made("seen.kv", "kv-observe", "-m", f.model, "--ids-from", "more", f.plain())
    whole = f.prefill("both.kv", "--observe", WINDOW, text="both")
    for l in range(len(seen.layers)):
        near(queries(seen, l), queries(whole, l), tolerance(f), f"queries of layer {l}")


def learned_probes(f):
    """Learned tokens that are embeddings of tokens, with a LoRA of zeros: these tokens as probes"""
    tokens = f.ids[ROWS:ROWS + 5]
    f.text("more", tokens)
    want = f.made("seen.kv", "kv-observe", "-m", f.model, "--ids-from", "more", f.plain())
    got = f.made("learned.kv", "kv-observe", "-m", f.model, "--lookahead", f.adapter(tokens),
                 f.plain())
    for l in range(len(got.layers)):
        for what in "data", "own":
            near(queries(got, l, what), queries(want, l, what), tolerance(f),
                 f"{what} of queries of layer {l}")


def probes_of_context(f):
    """The mass of repeated text is none that could not be: sinks always stay."""
    for words in (), ("--value-norms",), ("--accumulate", "max"):
        s = f.made("probed.x.kv", "kv-observe", "-m", f.model, "--repeat-context", *words,
                   f.plain())
        for layer in s.layers:
            for lists in layer.paid.values:
                x = np.array(lists)
                need((x >= 0).all() and np.isfinite(x).any(), f"probe mass {x}")


def diff(f):
    """Nothing is lost to itself, something to an eviction."""
    f.printed("kv-diff", "--exit-code", f.full(), f.full())
    f.printed("kv-diff", f.full(), f.evicted())


def diff_scores(f):
    for name, method in ("a.kv", "knorm"), ("b.kv", "snapkv"):
        f.made(name, "kv-score", "--method", method, f.full())
    f.printed("kv-diff", "--scores", "a.kv", "b.kv")


def tsp(f):
    return selected(f, "tsp layer=1 rate=0.5")


def gemfilter(f):
    return selected(f, "gemfilter layer=1 budget=20")


def pyramidinfer(f):
    return selected(f, "pyramidinfer")


def selected(f, words):
    """Later layers have fewer rows; the text goes on."""
    s = f.prefill("selected.kv", "--select", words)
    counts = [max(layer.rows) for layer in s.layers]
    need(counts[-1] <= ROWS and min(counts) >= 1, f"rows {counts}")
    f.decoded("selected.kv")


def tsp_layer(f):
    need(json.loads(f.printed("kv-tsp-layer", "-q", "-m", f.model, "--ids", "--json", "ids")),
         "an empty object")


def per_query_head(f):
    """Rows for each query head, chosen by itself: with all of them the text of the snapshot"""
    f.made("heads.kv", "kv-convert", "--per-query-head", f.full())
    f.made("k.kv", "kv-score", "--method", "snapkv", "heads.kv")
    f.made("all.kv", "kv-evict", "--rate", 1, "k.kv")
    need(f.decoded("all.kv") == f.decoded(f.full()), "other ids")
    f.made("small.kv", "kv-evict", "--rate", 0.5, "k.kv")
    f.decoded("small.kv")


def safetensors(f):
    """There and back"""
    f.ran("kv-convert", "-o", "out.safetensors", f.plain())
    same(f.made("back.kv", "kv-convert", "out.safetensors"), f.read(f.plain()))


def head_mask(f):
    """Streaming heads keep the ends of the text."""
    s = f.read(f.plain())
    L, G = s.model["layers"], s.model["kv_heads"]
    f.path("mask").write_text("".join(
        " ".join(str((l + g) % 2) for g in range(G)) + "\n" for l in range(L)))
    small = f.made("small.kv", "kv-evict", "--head-mask", "mask", "--sink", 2, "--recent", 4,
                   f.plain())
    for l in range(L):
        for g in range(G):
            old = list(s.layers[l].positions[g])
            want = old if (l + g) % 2 else [p for p in old if p < 2 or p >= ROWS - 4]
            need(list(small.layers[l].positions[g]) == want, f"layer {l} KV head {g}")
    f.decoded("small.kv")


def value_norms(f):
    """CriticalKV's second stage"""
    f.made("k.kv", "kv-score", "--method", "snapkv", f.full())
    s = f.made("small.kv", "kv-evict", "--rate", 0.5, "--first-stage", 0.5, "k.kv")
    plain = f.made("other.kv", "kv-evict", "--rate", 0.5, "k.kv")
    need([x.rows for x in s.layers] == [x.rows for x in plain.layers], "other numbers of rows")
    f.decoded("small.kv")


def by_chunks(f):
    f.made("k.kv", "kv-score", "--method", "snapkv", f.full())
    for select in "layer", "chunk=4", "chunk=4 spiky=2":
        words = ["--select", select]
        f.made("small.kv", "kv-evict", "--rate", 0.5, *words, "k.kv")
        f.decoded("small.kv")


def gate_mlp(f):
    """Gate scores of chunks are those of one run."""
    a = f.prefill("a.kv", "--gate", f.gate("mlp"))
    b = f.prefill("b.kv", "--gate", f.gate("mlp"), "--chunk", 7)
    for l, (x, y) in enumerate(zip(a.layers, b.layers)):
        for p, q in zip(x.gate_scores.values, y.gate_scores.values):
            near(p, q, tolerance(f), f"gate scores of layer {l}")


def noncausal_chunks(f):
    """Non-causal attention, in the chunks of a prompt and in one run"""
    a = f.prefill("a.kv", "--noncausal", 2)
    for l, x in enumerate(a.layers):
        for p in x.noncausal.values:
            need(np.isfinite(p).all() and min(p) >= 0, f"layer {l}: {list(p)}")


def types_of_rows(f):
    """bf16 and f16: the rows of f32, rounded"""
    whole = f.prefill("f32.kv", dtype="f32")
    for kind, limit in ("bf16", 2.0 ** -8), ("f16", 2.0 ** -11):
        s = f.prefill("x.kv", dtype=kind)
        for g in range(len(s.layers[0].positions)):         # later layers have seen rounded rows
            near(s.array(0, "keys", g), whole.array(0, "keys", g), limit, "keys of layer 0")
        f.decoded("x.kv")


def described(f):
    """kv-info, kv-check, kv-footprint and kv-plan read what the others write."""
    for name in f.full(), f.evicted():
        f.ran("kv-check", name)
        for words in ("kv-info", "--json"), ("kv-info",), ("kv-footprint",):
            f.printed(*words, name)


SINGLE = (threads, chunks, parts, batch, batch_evict, batch_retrieve,
          batch_quantised, draft, draft_quantised, draft_retrieve, stream, questions, force,
          reuse, store, store_quantised, evicted_then_more, compact, documents, documents_in_part,
          probes, learned_probes, probes_of_context, diff, diff_scores, tsp, gemfilter,
          pyramidinfer, tsp_layer,
          per_query_head, safetensors, head_mask, value_norms, by_chunks, gate_mlp,
          noncausal_chunks, types_of_rows, described)
