#!/usr/bin/env python3
"""Token selection while a prompt runs, in double precision, written from the formulas,
against a snapshot.

    selecting.py tsp MODEL SNAPSHOT LAYER RATE WINDOW KERNEL avg|max [EARLIER]
    selecting.py gemfilter MODEL SNAPSHOT LAYER TOKENS
    selecting.py pyramidinfer MODEL SNAPSHOT DECAY INTERVAL RECENT WEIGHT MIN
    selecting.py find MODEL IDS RATE WINDOW KERNEL avg|max LAYERS

The first three fail when the rows of any layer are others than those expected, and print the
relative errors of keys, values, queries and logits, `keys 1.2e-07`. EARLIER: so many tokens were
there before the text that is selected from. The last prints for each layer the squared distance
that TSP there makes: of the last token, and the mean over those that go on. Nothing here is shared
with the C code.
"""

import math
import sys

import numpy as np
from llama import Llama, frequencies, relative

import kvread


class Layers(Llama):
    """The forward pass of one layer at a time, over rows at any positions."""

    def embed(self, ids):
        return self.w["model.embed_tokens.weight"][ids]

    def layer(self, l, x, positions):
        """x after layer l; keeps keys, queries, values and probabilities [H][n][n]
        of this layer."""
        n, p = len(x), f"model.layers.{l}."
        angle = np.outer(positions, frequencies(self.config, self.E))
        y = self.norm(x, p + "input_layernorm.weight")

        def heads(name, count):
            rows = self.linear(y, p + "self_attn." + name)
            return rows.reshape(n, count, self.E).transpose(1, 0, 2)

        self.q = self.turn(heads("q_proj", self.H), angle)
        self.k = self.turn(heads("k_proj", self.G), angle)
        self.v = heads("v_proj", self.G)
        k, v = (np.repeat(t, self.H // self.G, axis=0) for t in (self.k, self.v))
        logits = self.q @ k.transpose(0, 2, 1) / math.sqrt(self.E)
        logits += np.triu(np.full((n, n), -np.inf), 1)
        e = np.exp(logits - logits.max(-1, keepdims=True))
        self.paid = e / e.sum(-1, keepdims=True)
        out = (self.paid @ v).transpose(1, 0, 2).reshape(n, -1)
        x = x + self.linear(out, p + "self_attn.o_proj")
        y = self.norm(x, p + "post_attention_layernorm.weight")
        gate = self.linear(y, p + "mlp.gate_proj")
        up = self.linear(y, p + "mlp.up_proj")
        return x + self.linear(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj")

    def final(self, x):
        return self.norm(x, "model.norm.weight")

    def logits(self, x):
        return self.final(x) @ self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"]).T


def best(score, k):
    """The k greatest, equal ones by the lower index, ascending."""
    return np.sort(np.argsort(-score, kind="stable")[:k])


def pooled(x, kernel, how):
    half, n = kernel // 2, len(x)
    fill = 0.0 if how == "avg" else -np.inf
    padded = np.concatenate([np.full(half, fill), x, np.full(half, fill)])
    windows = [padded[i : i + n] for i in range(kernel)]
    return sum(windows) / kernel if how == "avg" else np.max(windows, axis=0)


def floor(n, rate):
    return int(math.floor(n * rate + 1e-9))


def tsp(paid, rate, window, kernel, how, earlier=0):
    """The rows that go on: all earlier ones, and of the n others floor(n rate)."""
    n = paid.shape[1] - earlier
    seen = paid[:, -window:, earlier : earlier + n - window].sum(1)
    score = sum(pooled(list_, kernel, how) for list_ in seen)
    kept = best(score, floor(n, rate) - window)
    return np.concatenate([np.arange(earlier), earlier + kept, earlier + np.arange(n - window, n)])


def run(llama, ids, keep, positions=None):
    """keep(layer, llama, n) -> rows that go on, or None. What each layer held,
    and the last row's logits."""
    positions = np.arange(len(ids)) if positions is None else positions
    x, held = llama.embed(ids), []
    for l in range(llama.config["num_hidden_layers"]):
        x = llama.layer(l, x, positions)
        held.append((positions, llama.k, llama.v, llama.q))
        rows = keep(l, llama, len(x))
        if rows is not None:
            x, positions = x[rows], positions[rows]
    return held, x


def expected(kind, llama, ids, options):
    if kind == "tsp":
        layer, window, kernel, how = int(options[0]), int(options[2]), int(options[3]), options[4]
        earlier = int(options[5]) if len(options) > 5 else 0

        def keep(l, m, n):
            if l != layer:
                return None
            return tsp(m.paid, float(options[1]), window, kernel, how, earlier)

        return run(llama, ids, keep)
    if kind == "gemfilter":
        layer, x, positions = int(options[0]), llama.embed(ids), np.arange(len(ids))
        for l in range(layer + 1):
            x = llama.layer(l, x, positions)
        k = np.repeat(llama.k, llama.H // llama.G, axis=0)
        score = np.einsum("he,hne->n", llama.q[:, -1], k)
        return run(llama, ids[best(pooled(score, 5, "avg"), int(options[1]))], lambda *_: None)
    decay, interval, recent, weight, least = (float(o) for o in options)
    tail, L = 1 + floor(len(ids), recent), llama.config["num_hidden_layers"]

    def keep(l, m, n):
        context = n - tail
        k = floor(context, decay + (1 - decay) * (math.cos(math.pi * l / L) + 1) / 2)
        if l % interval or k <= least:
            return None
        paid = m.paid.mean(0)[-tail:, :context] * np.linspace(1, weight, tail)[:, None]
        score = paid.mean(0)
        score[:4] = np.finfo(score.dtype).max
        return np.concatenate([best(score, k), np.arange(context, n)])

    return run(llama, ids, keep)


def compare(kind, model, path, options):
    llama = Layers(model)
    with open(path, "rb") as file:
        snapshot = kvread.read(file)
    held, x = expected(kind, llama, np.array(snapshot.tokens), options)
    pairs = {"keys": [], "values": [], "queries": []}
    for l, (positions, k, v, q) in enumerate(held):
        layer = snapshot.layers[l]
        for g, have in enumerate(layer.positions):
            if list(have) != list(positions):
                only = set(have) ^ set(positions.tolist())
                sys.exit(f"layer {l} head {g}: {len(have)} rows, not {len(positions)}; "
                         f"differ in {sorted(only)}")
            pairs["keys"].append((snapshot.array(l, "keys", g), k[g]))
            pairs["values"].append((snapshot.array(l, "values", g), v[g]))
        if layer.queries:
            rows = np.searchsorted(positions, list(layer.queries.positions))
            data = kvread.widen(layer.queries.data, snapshot.head["dtype"])
            pairs["queries"].append((data.reshape(q[:, rows].shape), q[:, rows]))
    pairs["logits"] = [(np.array(snapshot.logits), llama.logits(x[-1]))]
    for name, of in pairs.items():
        if of:
            print(f"{name} {relative(of):.1e}")


def find(model, path, rate, window, kernel, how, layers):
    llama = Layers(model)
    with open(path, encoding="utf-8") as file:
        ids = np.array([int(word) for word in file.read().split()])
    full = llama.final(run(llama, ids, lambda *_: None)[1])
    for layer in range(int(layers)):
        went_on = []

        def keep(l, m, n):
            if l != layer:
                return None
            went_on.append(tsp(m.paid, float(rate), int(window), int(kernel), how))
            return went_on[0]

        states = llama.final(run(llama, ids, keep)[1])
        distance = ((states - full[went_on[0]]) ** 2).sum(-1)
        print(f"{layer} {distance[-1]:.9g} {distance.mean():.9g}")


if __name__ == "__main__":
    if sys.argv[1] == "find":
        find(*sys.argv[2:])
    else:
        compare(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
