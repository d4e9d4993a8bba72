#!/usr/bin/env python3
"""Retrieval while decoding, from the papers' rules in double precision,
against kv-decode --retrieve.

    retrieve.py [--limit X] < list of "MODEL BEFORE.kv AFTER.kv STATS.json [HEAD]"

BEFORE is what kv-decode has read, AFTER what it has written (-o), STATS its report (--stats,
--audit), which also says what was asked for. The tokens that AFTER has more than BEFORE are run
step by step with plain numpy, each layer choosing its rows as the report's settings say. Indexes
are taken from BEFORE; bits and pages of rows that are appended are made anew (checkindex.py),
clusters, 8 for every 320 of them, are taken from AFTER. A HEAD, for specontext, is one of
draft_head.py, which computes what it sees of the prompt from the tokens of BEFORE: these have run
with all their rows.
Prints for each line the greatest relative error (L2 norm) of the new keys, values and the logits,
and the greatest relative difference of a number of the report from what is computed here: exit 1
when one is above the limit. Nothing here is shared with the C code. The cache has to be f32: else a
choice may turn on a rounding.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "format"), str(ROOT / "oracle")]
import checkindex  # noqa: E402
import kvread  # noqa: E402
import llama  # noqa: E402
import draft_head  # noqa: E402

SIZE = {"f32": 4, "f16": 2, "bf16": 2}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def best(scores, n):
    """The numbers of the n greatest scores, of equal ones the lower; ascending."""
    return np.sort(np.argsort(-scores, kind="stable")[:n])


class Decoder:
    """The caches of BEFORE, and the steps that follow."""

    def __init__(self, model, before, after, report, head):
        self.model, self.before, self.after, self.report = model, before, after, report
        self.keys = [self.lists(l, "keys") for l in range(len(before.layers))]
        self.values = [self.lists(l, "values") for l in range(len(before.layers))]
        self.positions = [[list(p) for p in layer.positions] for layer in before.layers]
        self.freq = llama.frequencies(model.config, model.E)
        self.size = SIZE[before.head["dtype"]]
        self.sums = [dict.fromkeys(REPORTED, 0.0) | {"overlap": []} for _ in before.layers]
        self.head = head
        if head:
            model.forward(before.tokens)
            keys, self.feature = head.text(before.tokens, model.streams)
            self.head_keys = list(keys.transpose(1, 0, 2))
        # (layer, KV head): the rows that the step before has chosen, None where it read all
        self.before_step = {}

    def lists(self, l, name):
        return [self.before.array(l, name, g).astype(float) for g in range(self.model.G)]

    def rows(self, data, *shape):
        """An index's elements of the cache's type."""
        return kvread.widen(data, self.before.head["dtype"]).astype(float).reshape(shape)

    # ---- what each method finds in KV head g: scores of all query heads for what competes, which
    # of these to take, and the rows that are read in any case ----

    def fier(self, l, g, q):
        keys, u = self.keys[l][g], self.before.layers[l].bits.u
        E = self.model.E
        data = np.frombuffer(checkindex.bits(keys.astype("f4"), u), np.uint8)
        data = data.reshape(-1, E * (4 + u // 8))
        zero, scale = (data[:, i : i + 2 * E].copy().view("<f2").astype(float) for i in (0, 2 * E))
        one = np.unpackbits(data[:, 4 * E :].reshape(-1, E, u // 8), axis=2, bitorder="little")
        about = (zero[:, :, None] + one * scale[:, :, None]).transpose(0, 2, 1).reshape(-1, E)
        tail = keys[len(about) :]
        index = data.size
        chosen = best(self.join(q @ np.concatenate([about, tail]).T), self.budget)
        return chosen, index, (len(tail) + len(chosen)) * E * self.size

    def quest(self, l, g, q):
        keys, u = self.keys[l][g], self.before.layers[l].pages.u
        whole = keys[: len(keys) // u * u].reshape(-1, u, self.model.E)
        last = (len(keys) - 1) // u
        score = np.maximum(q[:, None] * whole.min(1), q[:, None] * whole.max(1)).sum(2)[:, :last]
        pages = list(best(self.join(score), max(1, self.budget // u) - 1)) + [last]
        chosen = np.concatenate([np.arange(p * u, min(p * u + u, len(keys))) for p in pages])
        index = len(whole) * 2 * self.model.E * self.size
        return chosen, index, len(chosen) * self.model.E * self.size

    def quest_eval(self, l, g, q):
        keys, u = self.keys[l][g], self.before.layers[l].pages.u
        pages = np.split(keys, np.arange(u, len(keys), u))
        bounds = np.array([(page.min(0), page.max(0)) for page in pages])
        score = np.maximum(q[:, None] * bounds[:, 0], q[:, None] * bounds[:, 1]).sum(2)
        best_pages = best(self.join(score), max(3, self.budget // u))
        chosen = np.concatenate([np.arange(p * u, min(p * u + u, len(keys))) for p in best_pages])
        return chosen, bounds.size * self.size, len(chosen) * self.model.E * self.size

    def cluster(self, l, g, q):
        keys, c = self.keys[l][g], self.after.layers[l].clusters
        end = self.before.layers[l].clusters.ends[g]
        windows = (len(keys) - 1 - max(end, c.sink)) // 320      # before this row
        if windows > 0:
            end = max(end, c.sink) + 320 * windows
        labels = np.array(c.labels[g], int)[: max(end - c.sink, 0)]
        means = self.rows(c.means[g], -1, self.model.E)[: max(labels, default=-1) + 1]
        score = self.join(q @ means.T)
        left = max(self.budget - c.sink, 0)
        ranked = c.sink + best(score[labels], left)
        chosen = np.concatenate([np.arange(min(c.sink, len(keys))), ranked,
                                 np.arange(max(end, c.sink), len(keys))])
        index = means.size * self.size + 4 * len(keys)
        return chosen.astype(int), index, len(chosen) * self.model.E * self.size

    def shadow(self, l, g, q):
        keys, low = self.keys[l][g], self.before.layers[l].low_rank
        E, u, n, r = self.model.E, low.chunk, low.rows, low.rank
        compete = np.setdiff1d(np.arange(n // u), low.exact[g])
        marks = self.rows(low.landmarks[g], -1, E)[compete]
        chunks = compete[best(self.join(q @ marks.T), self.budget // u)]
        rebuilt = np.concatenate([np.arange(c * u, c * u + u) for c in chunks] or [[]]).astype(int)
        exact = [np.arange(c * u, c * u + u) for c in low.exact[g]]
        others = np.concatenate(exact + [np.arange(n, len(keys))]).astype(int)
        factor = self.rows(low.left, n, r)[rebuilt] @ self.rows(low.right[g], E, r).T
        angle = np.outer(np.array(self.positions[l][g])[rebuilt], self.freq)
        self.instead = keys.copy()
        self.instead[rebuilt] = self.model.turn(factor, angle)
        index = marks.size + len(rebuilt) * r + (len(rebuilt) > 0) * E * r
        chosen = np.sort(np.concatenate([rebuilt, others]))
        return chosen, index * self.size, len(others) * E * self.size

    def specontext(self, l, g, q):
        scores = self.ahead[g][self.positions[l][g]]
        chosen = best(scores, self.budget)
        self.counted.setdefault(g, l)           # the first layer that chooses counts for all
        index = self.read // self.model.G if self.counted[g] == l else 0
        return chosen, index, len(chosen) * self.model.E * self.size

    def look_ahead(self, token, position):
        """The scores [G][positions] of a step, by the head."""
        head, G = self.head, self.model.G
        q, k = head.row(token, position, self.feature)
        self.head_keys.append(k)
        keys, R, group = np.array(self.head_keys), head.H // G, head.H // head.G
        logits = np.array([keys[:, h // group] @ q[h] for h in range(head.H)])
        weights = softmax(logits / math.sqrt(head.E))
        how = {"max": np.max, "mean": np.mean, "sum": np.sum}[self.report["reduce"]]
        self.ahead = np.array([how(weights[g * R : g * R + R], axis=0) for g in range(G)])
        self.ahead[:, : self.report["sinks"]] = np.inf
        self.ahead[:, len(keys) - self.report["recent"] :] = np.inf
        self.read, self.counted = keys.size * self.size, {}

    def join(self, logits):
        """Over the query heads of a KV head."""
        if len(logits) == 1 or logits.shape[1] == 0:
            return logits[0]
        how = {"max": np.max, "mean": np.mean, "sum": np.sum}[self.report["reduce"]]
        return how(softmax(logits / math.sqrt(self.model.E)), axis=0)

    # ---- a step ----

    def attend(self, l, queries):
        """Attention [H][E] of queries [H][E] in layer l, as far as it is read."""
        m, out = self.model, np.empty((self.model.H, self.model.E))
        R = m.H // m.G
        self.budget = self.report["budget"]
        fits = all(len(k) <= self.budget for k in self.keys[l])
        dense = l < self.report["dense_layers"] or fits
        for g in range(m.G):
            keys, values, q = self.keys[l][g], self.values[l][g], queries[g * R : g * R + R]
            row = m.E * self.size
            self.instead = keys
            chosen, index, read = np.arange(len(keys)), 0, len(keys) * row
            if not dense:
                method = getattr(self, self.report["retrieve"].replace("-", "_"))
                chosen, index, read = method(l, g, q)
                if len(keys) <= self.budget:      # read whole, after what the index needs
                    read += (len(keys) - len(chosen)) * row
                    chosen = np.arange(len(keys))
            weights = softmax(q @ self.instead[chosen].T / math.sqrt(m.E))
            out[g * R : g * R + R] = weights @ values[chosen]
            true = q @ keys.T
            found = np.intersect1d(chosen, best(self.join(true), len(chosen)))
            got = dict(rows=len(chosen), of_rows=len(keys), index_bytes=index, key_bytes=read,
                       value_bytes=len(chosen) * row, of_bytes=2 * len(keys) * row,
                       recall=len(found) / len(chosen),
                       mass=softmax(true / math.sqrt(m.E))[:, chosen].sum(1).mean())
            for name in REPORTED:
                self.sums[l][name] += got[name]
            now, then = set(chosen.tolist()), self.before_step.get((l, g))
            now = now if len(now) < len(keys) else None
            if now and then:
                self.sums[l]["overlap"].append(len(now & then) / len(now))
            self.before_step[l, g] = now
        return out

    def step(self, token, position):
        """Runs one token; returns its logits."""
        m = self.model
        x = m.w["model.embed_tokens.weight"][token]
        angle = position * self.freq
        streams = []
        if self.head:
            self.look_ahead(token, position)
        for l in range(len(self.keys)):
            streams.append(x)
            p = f"model.layers.{l}."
            y = m.norm(x, p + "input_layernorm.weight")
            q, k = (m.turn(m.linear(y, p + f"self_attn.{name}").reshape(n, m.E), angle)
                    for name, n in (("q_proj", m.H), ("k_proj", m.G)))
            v = m.linear(y, p + "self_attn.v_proj").reshape(m.G, m.E)
            for g in range(m.G):
                self.keys[l][g] = np.vstack([self.keys[l][g], k[g].astype("f4")])
                self.values[l][g] = np.vstack([self.values[l][g], v[g].astype("f4")])
                self.positions[l][g].append(position)
            x = x + m.linear(self.attend(l, q).reshape(-1), p + "self_attn.o_proj")
            y = m.norm(x, p + "post_attention_layernorm.weight")
            gate, up = (m.linear(y, p + "mlp." + name) for name in ("gate_proj", "up_proj"))
            x = x + m.linear(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj")
        if self.head:
            self.feature = self.head.feature(streams)
        head = m.w.get("lm_head.weight", m.w["model.embed_tokens.weight"])
        return m.norm(x, "model.norm.weight") @ head.T


REPORTED = ("rows", "of_rows", "index_bytes", "key_bytes", "value_bytes", "of_bytes",
            "recall", "mass")


def means(sums, heads, steps):
    """What the report says of layers: their sums over steps and KV heads."""
    n = steps * heads * len(sums)
    out = {name: sum(s[name] for s in sums) / n for name in REPORTED}
    pairs = [share for s in sums for share in s["overlap"]]
    out["overlap"] = sum(pairs) / len(pairs) if pairs else None
    out["share"] = (out["index_bytes"] + out["key_bytes"] + out["value_bytes"]) / out["of_bytes"]
    return out


def difference(report, decoder, steps):
    """The greatest relative difference of a number of the report."""
    G, sums = decoder.model.G, decoder.sums
    pairs = [(report["all"], sums), (report["retrieving"], sums[report["dense_layers"] :])]
    pairs += [(layer, [sums[l]]) for l, layer in enumerate(report["layers"])]
    worst = abs(report["steps"] - steps)
    for said, of in pairs:
        for name, value in means(of, G, steps).items():
            if said[name] is None or value is None:
                worst = max(worst, math.inf if said[name] != value else 0)
            else:
                worst = max(worst, abs(said[name] - value) / max(abs(value), 1e-30))
    return worst


def compare(model, before, after, stats, head=None):
    """The two errors of one run."""
    with open(before, "rb") as a, open(after, "rb") as b:
        before, after = kvread.read(a), kvread.read(b)
    assert before.head["dtype"] == "f32"
    report = json.loads(pathlib.Path(stats).read_text())
    decoder = Decoder(model, before, after, report, head and draft_head.Head(head, model))
    new = after.tokens[len(before.tokens) :]
    for i, token in enumerate(new):
        logits = decoder.step(token, before.head["next_position"] + i)
    pairs = [(after.logits, logits)]
    if head:
        pairs.append((draft_head.stored(after), np.array(decoder.head_keys).transpose(1, 0, 2)))
        if decoder.head.features:
            pairs.append((after.head_keys.features, decoder.feature))
    for l in range(len(after.layers)):
        positions = [list(p) for p in after.layers[l].positions]
        assert positions == decoder.positions[l], f"layer {l}: other rows"
        for g in range(model.G):
            for name, mine in (("keys", decoder.keys), ("values", decoder.values)):
                pairs.append((after.array(l, name, g)[-len(new) :], mine[l][g][-len(new) :]))
    return max(llama.relative([p]) for p in pairs), difference(report, decoder, len(new))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=1e-5)
    limit = parser.parse_args().limit
    models = {}
    worst = 0
    for line in sys.stdin:
        model, *files = line.split()
        errors = compare(models.setdefault(model, llama.Llama(model)), *files)
        print(f"{line.strip()}: rows {errors[0]:.1e} report {errors[1]:.1e}")
        worst = max(worst, *errors)
    sys.exit(not worst < limit)


if __name__ == "__main__":
    main()
