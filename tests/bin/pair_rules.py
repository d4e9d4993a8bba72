"""pair_rules - what must hold where a family of models meets a method, a policy, a way to retrieve,
a type of rows or anything else that the programs do; for pairs.py

A rule is a function of a family. It ends, or raises Fault, or Refused by a program that it runs.
"""

import functools
import shlex

import numpy as np

import budgets
import scores
from pair_family import ROWS, WINDOW, need, near, near_rows, queries, same
from pair_single import SINGLE

# Words of methods without which so short a text has nothing to judge; their defaults else
WORDS = {"rkv": ["window=4"], "simlayer": ["recent=6", "window=2"], "lagkv": ["lag=8"],
         "compactor": ["sink=3", "recent=2"], "fastkvzip": ["recent=5"],
         "snapkv": ["kernel=3"]}
# Relative to the largest score of a KV head. simlayer: 0 or 1; others sum in f32
LIMIT = 2e-3
BUDGET = 20


def words_of(f, method):
    return [f"filters={f.filters()}"] if method == "qfilter" else WORDS.get(method, [])


def as_options(words):
    return [part for word in words for part in ("--" + word.partition("=")[0],
                                                word.partition("=")[2])]


def with_probes(f):
    return f.once("probed.kv", lambda name: f.made(
        name, "kv-observe", "-m", f.model, "--repeat-context", f.full()))


def ahead(f):
    return f.once("ahead.kv", lambda name: f.made(
        name, "kv-observe", "-m", f.model, "--lookahead", f.adapter(), f.full()))


def fast(f):
    return f.once("fast.kv", lambda name: f.prefill(
        name, *f.collect(), "--gate", f.gate("fastkvzip")))


# Snapshots with what a method reads; all others find it in the one snapshot with everything.
SOURCES = {"kvzip": with_probes, "kvcompose": with_probes, "lookahead": ahead, "fastkvzip": fast}


def source(f, method):
    return SOURCES.get(method, lambda f: f.full())(f)


def scored(f, method, name="scored.kv", of=None):
    words = words_of(f, method)
    return f.made(name, "kv-score", "--method", method, *as_options(words),
                  of or source(f, method))


def judged(f, before, after, *words):
    """The rows that are left are those of the oracle."""
    old, new = f.read(before), f.read(after)
    args = budgets.arguments([*map(str, (before, after, *words))])
    for l, want in enumerate(budgets.expected(old, args)):
        for g, positions in enumerate(want):
            got = list(new.layers[l].positions[g])
            need(got == positions,
                 f"{' '.join(map(str, words))}: layer {l} KV head {g}: {got}, must be {positions}")


def score(method, f, of=None):
    """The scores are the oracle's, with any number of threads; half of the rows stay; the text goes
    on."""
    of, words = of or source(f, method), words_of(f, method)
    scored(f, method, of=of)
    f.made("threads.kv", "kv-score", "-j", 3, "--method", method, *as_options(words), of)
    need(f.path("scored.kv").read_bytes() == f.path("threads.kv").read_bytes(),
         "other bytes with three threads")
    oracle = ["query-stats=1" if word.startswith("query-stats") else word for word in words]
    oracle = [word for word in oracle if not word.startswith("filters=")]
    need(scores.check(LIMIT, f.path(of), f.path("scored.kv"), method, *oracle),
         "other scores than the oracle's")
    f.made("small.kv", "kv-evict", "--rate", 0.5, "scored.kv")
    judged(f, f.path("scored.kv"), f.path("small.kv"), "--rate", 0.5)
    f.decoded("small.kv")


def score_evicted(method, f):
    """The same of the rows that an eviction has left"""
    of = source(f, method)
    score(method, f, f.evicted(of, f"evicted.{of}"))


def score_heads(method, f):
    """The same of rows for each query head"""
    of = source(f, method)
    score(method, f, f.once(f"heads.{of}", lambda name: f.made(
        name, "kv-convert", "--per-query-head", of)))


def collected(f, method):
    """Options of kv-prefill for what the method reads"""
    return (*f.collect(), "--gate", f.gate("fastkvzip" if method == "fastkvzip" else "linear"))


def word_of(f, method):
    """As --score has it"""
    words = [f"lookahead={f.adapter()}" if method == "lookahead" else method, *words_of(f, method)]
    return shlex.join(map(str, words))


def fused(method, f, words=(), of=None):
    """kv-prefill keeps the rows that a pipe keeps, to the byte."""
    once = f.prefill("fused.kv", *words, *collected(f, method), "--score", word_of(f, method),
                     "--evict", "rate=0.5")
    scored(f, method, of=of)
    same(once, f.made("small.kv", "kv-evict", "--rate", 0.5, "scored.kv"), "logits")


def fused_int8(method, f):
    """The same with rows in 8 bits"""
    words, of = types(f, "int8"), "full.q8.kv"
    f.prefill(of, *words, *collected(f, method))
    if method == "lookahead":
        of = "ahead.q8.kv"
        f.made(of, "kv-observe", "-m", f.model, "--lookahead", f.adapter(), "full.q8.kv")
    fused(method, f, words, of)


def patched(method, f):
    """The end of the prompt scores each chunk, which keeps half of its own rows."""
    words = ("--query-stats", "--value-norms", *collected(f, method)[-2:])
    s = f.prefill("patched.kv", *words, "--score", word_of(f, method), "--evict", "rate=0.5",
                  "--chunk", 11, "--patch", 4, "--once")
    rows = [n for layer in s.layers for n in layer.rows]
    need(max(rows) < ROWS, f"rows {rows}")
    f.decoded("patched.kv")


def fused_chunks(method, f):
    """Each chunk is evicted to the budget, and what always stays."""
    words, whole = list(collected(f, method)), method in ("noncausal", "compactor")
    if not whole:                       # non-causal attention is within chunks of 256
        at = words.index("--noncausal")
        del words[at:at + 2]
    if method == "lookahead":
        words.remove("--mass")
    f.text("long", f.ids)
    # less than a window
    budget = min(BUDGET, max(n - 2 for layer in f.read(f.plain()).layers for n in layer.rows))
    s = f.prefill("chunks.kv", *words, "--score", word_of(f, method), "--evict",
                  f"budget={budget}", "--chunk", 256 if whole else 16,
                  text="long" if whole else "ids")
    rows = [n for layer in s.layers for n in layer.rows]
    need(max(rows) == budget, f"rows {rows}, budget {budget}")
    f.decoded("chunks.kv")


def loop(f, method, of, words, evict, keep=()):
    """kv-decode --evict is a loop of one token, kv-score and kv-evict: ids, rows and logits."""
    keep += "--observe", WINDOW, "--mass", "--query-stats"
    want = f.decoded(of, *keep, "--score", words, "--evict", " ".join(
        f"{name}={value}" for name, value in evict), "-o", "once.kv", n=3)
    got, step = [], of
    for n in range(4):
        scored(f, method, "loop.kv", step)
        f.made("loop.evicted.kv", "kv-evict", "--keep-queries", *(
            part for name, value in evict for part in ("--" + name, value)), "loop.kv")
        if n < 3:
            got += f.decoded("loop.evicted.kv", *keep, "-o", "step.kv", n=1)
            step = "step.kv"
    need(want == got, f"ids {want}, those of a loop {got}")
    same(f.read("once.kv"), f.read("loop.evicted.kv"), "logits")


def decoding(method, f):
    keep = ()
    if method in ("kvzap", "fastkvzip"):
        keep = "--gate", f.gate("fastkvzip" if method == "fastkvzip" else "linear")
    of = f.full() if method == "lookahead" else source(f, method)
    loop(f, method, of, word_of(f, method), [("budget", BUDGET)], keep)


def quantised_rows(method, f):
    """The scores of rows in 8 bits are those of the numbers that they stand for, which may be
    rounded."""
    of = source(f, method)
    f.made("q8.kv", "kv-quantize", *types(f, "int8"), of)
    f.made("numbers.kv", "kv-quantize", *types(f, f.dtype), "q8.kv")
    a, b = scored(f, method, "a.kv", "q8.kv"), scored(f, method, "b.kv", "numbers.kv")
    for l, (x, y) in enumerate(zip(a.layers, b.layers, strict=True)):
        for p, q in zip(x.scores.values, y.scores.values, strict=True):
            p, q = np.array(p), np.array(q)
            need(np.array_equal(np.isinf(p), np.isinf(q)), f"layer {l}: other rows always stay")
            near(p[np.isfinite(p)], q[np.isfinite(q)], 0.1 if f.rounds else 1e-4,
                 f"scores of layer {l}")
    f.made("small.kv", "kv-evict", "--rate", 0.5, "a.kv")
    judged(f, f.path("a.kv"), f.path("small.kv"), "--rate", 0.5)
    f.decoded("small.kv")


def types(f, kind):
    """Options of kv-quantize for rows of this type"""
    return ("--keys", kind) if f.latent else ("--keys", kind, "--values", kind)


# Other words that choose rows
CHOICES = ("budget=12", "rate=0.5 sink=2", "rate=0.5 recent=5", "rate=0.3 of=tokens",
           "rate=0.5 since=10", "rate=0.3 since=38", "budget=12 skip-layers=1", "threshold=0.4",
           "rate=0.5 select=layer", "rate=0.5 select=chunk=4", "budget=9 policy=global sink=2",
           "rate=0.6 of=tokens policy=pyramid",
           "rate=0.4 policy=ada alpha=0.5 normalize=")


def chosen(words, f):
    """kv-evict's other words: the rows that stay are those of the formulas"""
    words = [part for part in as_options(words.split()) if part]
    of = f.once("random.kv", lambda out: scored(f, "random", out))
    f.made("small.kv", "kv-evict", *words, of)
    judged(f, f.path(of), f.path("small.kv"), *words)
    f.decoded("small.kv")


def preferred(f):
    """Scores that every policy can use, and few rows that always stay"""
    return f.once("preferred.kv", lambda out: f.made(
        out, "kv-score", "--method", "cake", "--window", 2, f.full()))


def policy(name, f):
    """The rows that stay are those of the formulas; the text goes on."""
    words = "--policy", name, "--rate", 0.4
    f.made("small.kv", "kv-evict", *words, preferred(f))
    judged(f, f.path("preferred.kv"), f.path("small.kv"), *words)
    f.decoded("small.kv")


def fused_policy(name, f):
    """kv-prefill keeps what kv-evict keeps."""
    pipe = f.made("small.kv", "kv-evict", "--policy", name, "--rate", 0.4, preferred(f))
    same(f.prefill("fused.kv", "--observe", WINDOW, "--score", "cake window=2", "--evict",
                   f"rate=0.4 policy={name}"), pipe, "logits")


def decoding_policy(name, f):
    loop(f, "snapkv", f.full(), "snapkv kernel=3", [("budget", BUDGET), ("policy", name)])


INDEXES = {"fier": ("kv-quantize1b", "-g", 16), "quest": ("kv-index", "--pages", "--page", 8),
           "quest-eval": ("kv-index", "--pages", "--page", 8),
           "cluster": ("kv-index", "--clusters", "--cluster-count", 5, "--sink-rows", 4),
           "shadow": ("kv-index", "--low-rank", "--rank", 8, "--chunk-rows", 4, "--outliers", 2,
                      "--local", 1)}


def indexed(f, kind, of=None):
    """(snapshot with what the way reads, its words)"""
    if kind == "specontext":
        need(of is None, "no index")
        return f.once("headed.kv", lambda name: f.prefill(
            name, "--retrieval-head", f.head())), f"specontext head={shlex.quote(str(f.head()))}"
    words = INDEXES.get(kind)
    need(words, f"{kind}: INDEXES says not what index it needs")
    f.made("index.kv", *words, of or f.plain())
    return "index.kv", kind


def retrieve(kind, f):
    """All rows: the text and the rows of plain decoding. Few: rows in a file give the same, and a
    report of what was read; kv-diff measures it."""
    index, words = indexed(f, kind)
    want = f.decoded(f.plain(), "-o", "want.kv")
    need(f.decoded(index, "--retrieve", f"{words} budget=1000", "-o", "got.kv") == want,
         "other ids with all rows")
    if kind == "shadow":                # keys are computed from factors
        near_rows(f.read("got.kv"), f.read("want.kv"), 1)
    else:
        same(f.read("got.kv"), f.read("want.kv"), "logits")
    few = f"{words} budget=16"
    want = f.decoded(index, "--retrieve", few, "-o", "few.kv", "--audit", "--stats", "stats")
    need(f.decoded(index, "--retrieve", few, "--offload", "-o", "filed.kv") == want,
         "other ids with rows in a file")
    same(f.read("filed.kv"), f.read("few.kv"), "logits")
    need(f.decoded(index, "--retrieve", few, "-j", 3) == want, "other ids with three threads")


def measured(kind, f):
    """kv-diff says what a way to retrieve loses."""
    index, words = indexed(f, kind) if kind == "specontext" else indexed(f, kind, f.full())
    f.printed("kv-diff", "--json", "--retrieve", f"{words} budget=16", index)


def retrieve_quantised(kind, f):
    """From rows in 8 bits: all rows give the text of plain decoding of them."""
    f.made("q8.kv", "kv-quantize", *types(f, "int8"), f.plain())
    if kind == "specontext":
        f.made("q8.kv", "kv-quantize", *types(f, "int8"), indexed(f, kind)[0])
        index, words = "q8.kv", indexed(f, kind)[1]
    else:
        index, words = indexed(f, kind, "q8.kv")
    want = f.decoded("q8.kv", "-o", "want.kv")
    need(f.decoded(index, "--retrieve", f"{words} budget=1000", "-o", "got.kv") == want,
         "other ids with all rows")
    few = f.decoded(index, "--retrieve", f"{words} budget=16")
    need(f.decoded(index, "--retrieve", f"{words} budget=16", "--offload") == few,
         "other ids with rows in a file")


def retrieve_evicted(kind, f):
    """From the rows that an eviction has left"""
    if kind == "specontext":
        index, words = indexed(f, kind)
        f.made("k.kv", "kv-score", "--method", "knorm", index)
        index = f.made("small.kv", "kv-evict", "--rate", 0.5, "k.kv") and "small.kv"
        plain = index
    else:
        plain = f.evicted()
        index, words = indexed(f, kind, plain)
    want = f.decoded(plain)
    got = f.decoded(index, "--retrieve", f"{words} budget=1000")
    need(got == want, f"ids {got}, of plain decoding {want}")


# Largest difference of a row of a type to its numbers, relative to the largest number of the layer
ERRORS = {"q8": 0.01, "int8": 0.02, "fp8": 0.07, "q5": 0.08, "q4": 0.15, "kivi4": 0.15,
          "kivi2": 0.5, "bf16": 0.005, "f16": 0.001, "f32": 0}


def limit_of(kind):
    """A rotated row has its error on all channels."""
    limit = next(e for word, e in ERRORS.items() if kind.startswith(word))
    return 2 * limit if "hadamard" in kind else limit


def row_type(kind, f):
    """Rows of a type stand for numbers near the full ones, a step from them is near the step from
    these numbers, and they are evicted, prefilled behind and read from a file."""
    residual = ("--residual", 32, *whole(f)) if kind.startswith("kivi") else ()
    q = f.made("q.kv", "kv-quantize", *types(f, kind), *residual, f.plain())
    numbers = f.made("numbers.kv", "kv-quantize", *types(f, f.dtype), "q.kv")
    near_rows(q, f.read(f.plain()), limit_of(kind))
    near_rows(q, numbers, 2.0 ** -8 if f.rounds else 1e-5 if "hadamard" in kind else 0)
    if residual:
        return f.decoded("q.kv", n=3)
    f.text("probes", f.ids[-3:])
    a, b = (f.made("seen.kv", "kv-observe", "-m", f.model, "--ids-from", "probes", of)
            for of in ("q.kv", "numbers.kv"))
    # of layer 1, behind attention to these rows and to their own, which are quantised, too
    near(queries(a, 1), queries(b, 1), 3 * limit_of(kind), "queries of layer 1")
    f.text("one", f.ids[-1:])
    f.made("a.kv", "kv-prefill", "-m", f.model, "--ids", "-r", "q.kv", "one")
    f.printed("kv-diff", "--json", f.plain(), "q.kv")
    return f.decoded("q.kv", "-o", "longer.kv", n=3)


def row_type_prefill(kind, f):
    """kv-prefill stores rows of the type that kv-quantize makes; evicts and selects from them."""
    words = types(f, kind)
    q = f.prefill("q.kv", *words)
    pipe = f.made("pipe.kv", "kv-quantize", *words, f.plain())
    for name in ("keys", "values"):               # later layers have seen quantised rows
        if f.rounds:                              # kv-quantize has seen rounded ones
            near(q.array(0, name, 0), pipe.array(0, name, 0), limit_of(kind), name)
        else:
            need(bytes(getattr(q.layers[0], name)) == bytes(getattr(pipe.layers[0], name)),
                 f"layer 0: other {name} than kv-quantize makes")
    f.prefill("small.kv", *words, "--observe", WINDOW, "--score", "snapkv", "--evict", "rate=0.5")
    f.decoded("small.kv")
    f.prefill("chunks.kv", *words, "--chunk", 16)


def whole(f):
    """Leaves layers with a sliding window as they are, where there are others."""
    s = f.read(f.plain())
    few = [l for l, layer in enumerate(s.layers) if max(layer.rows) < ROWS]
    return ("--skip-layers", ",".join(map(str, few))) if 0 < len(few) < len(s.layers) else ()


def residual(kind, f):
    """The last rows of a KV head stay full, and the text goes on."""
    q = f.made("q.kv", "kv-quantize", *types(f, kind), "--residual", 32, *whole(f), f.plain())
    near_rows(q, f.read(f.plain()), limit_of(kind))
    for l in range(len(q.layers)):
        for g in range(len(q.layers[l].positions)):
            x, y = (s.array(l, "keys", g)[-8:] for s in (q, f.read(f.plain())))
            need(np.array_equal(x, y), f"layer {l}: the last rows are not full")
    f.decoded("q.kv", "-o", "longer.kv")


def pairs(lists):
    """{subject: [(pair, rule)]}"""
    def each(names, **rules):
        return [(f"{word.replace('_', '-')}:{name}", functools.partial(rule, name))
                for name in names for word, rule in rules.items()]

    quantised = [kind for kind in lists["types"] if kind not in ("f32", "f16", "bf16")]
    return {
        "methods": each(lists["methods"], score=score, score_int8=quantised_rows,
                        score_evicted=score_evicted, score_heads=score_heads),
        "fused": each(lists["methods"], prefill=fused, prefill_chunks=fused_chunks,
                      prefill_int8=fused_int8, prefill_patch=patched),
        "decoding": each(lists["methods"], decode=decoding),
        "choices": [("evict:" + words.replace(" ", ","), functools.partial(chosen, words))
                    for words in CHOICES],
        "policies": each(lists["policies"], policy=policy, prefill_policy=fused_policy,
                         decode_policy=decoding_policy),
        "retrieval": each(lists["retrievals"], retrieve=retrieve, diff_retrieve=measured,
                          retrieve_int8=retrieve_quantised, retrieve_evicted=retrieve_evicted),
        "types": each(lists["types"], rows=row_type, prefill_rows=row_type_prefill) +
        each(quantised, residual=residual),
        "single": [(rule.__name__.replace("_", "-"), rule) for rule in SINGLE],
    }
