#!/usr/bin/env python3
"""recomputed - kv-recompute in float64: CacheBlend's choice, EPIC's first tokens, and their rows

recomputed.py LIMIT MODEL MERGED.kv OUT.kv [--rate R] [--layer N] [--by WHAT] [--first N]: the rows
of OUT must be those of MERGED, but of the tokens that run again. What these get is computed here
with the weights of MODEL, from the rows of MERGED, one layer after the other; the relative error of
all rows, and of the logits, must not be above LIMIT. Prints the positions that ran again.
"""

import argparse
import math
import sys

import numpy as np

from llama import Llama, frequencies, relative
from renumber import read


class Merged(Llama):
    """A model with the rows of a snapshot, in which a KV head may lack some."""

    def __init__(self, folder, snapshot):
        super().__init__(folder)
        self.tokens = np.array(snapshot.tokens)
        layers = range(len(snapshot.layers))
        self.pos = [[np.array(p, dtype=np.int64) for p in snapshot.layers[l].positions]
                    for l in layers]
        self.keys, self.values = ([[snapshot.array(l, name, g).astype(float)
                                    for g in range(self.G)] for l in layers]
                                  for name in ("keys", "values"))

    def attend(self, q, pos, l):
        """q[H][n][E] at positions pos[n] -> [n][H * E]"""
        out = np.zeros_like(q)
        for h in range(self.H):
            g = h // (self.H // self.G)
            logits = q[h] @ self.keys[l][g].T / math.sqrt(self.E)
            logits[self.pos[l][g][None, :] > pos[:, None]] = -np.inf
            for i in range(len(pos)):
                if np.isfinite(logits[i]).any():
                    weight = np.exp(logits[i] - logits[i].max())
                    out[h, i] = weight @ self.values[l][g] / weight.sum()
        return out.transpose(1, 0, 2).reshape(len(pos), -1)

    def run(self, x, pos, l):
        """Rows x[n][D] through layer l, whose rows at pos[n] they replace."""
        p, angle = f"model.layers.{l}.", np.outer(pos, frequencies(self.config, self.E))
        y = self.norm(x, p + "input_layernorm.weight")

        def heads(name, n):
            return self.linear(y, p + "self_attn." + name).reshape(len(pos), n, self.E).transpose(
                1, 0, 2)

        q = self.turn(heads("q_proj", self.H), angle)
        k, v = self.turn(heads("k_proj", self.G), angle), heads("v_proj", self.G)
        for g in range(self.G):
            there, mine = np.isin(self.pos[l][g], pos), np.isin(pos, self.pos[l][g])
            self.keys[l][g][there], self.values[l][g][there] = k[g][mine], v[g][mine]
        x = x + self.linear(self.attend(q, pos, l), p + "self_attn.o_proj")
        y = self.norm(x, p + "post_attention_layernorm.weight")
        gate = self.linear(y, p + "mlp.gate_proj")
        return x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(y, p + "mlp.up_proj"),
                               p + "mlp.down_proj")


def deviation(model, before, l, first, n):
    """[n] squared differences of the tokens from position `first` on, over all KV heads."""
    out = np.zeros(n)
    for g, (old, new) in enumerate(zip(before, (model.keys if model.by == "keys" else
                                                model.values)[l])):
        tail = model.pos[l][g] >= first
        out[model.pos[l][g][tail] - first] += ((old - new)[tail] ** 2).sum(1)
    return out


def recompute(model, starts, options):
    """The positions that ran again, and the logits of the last one."""
    first, T = starts[0], len(model.tokens)
    n = T - first
    pos = np.arange(first, T)
    x = model.w["model.embed_tokens.weight"][model.tokens[first:]]
    chosen = np.zeros(n, dtype=bool)
    chosen[-1] = True
    for start, end in zip(starts, [*starts[1:], T]):
        chosen[start - first:min(start + options.first, end) - first] = True
    k, begin = math.floor(n * options.rate + 1e-9), 0
    if k == n:
        chosen[:] = True
    elif k > 0:
        rows = model.keys if options.by == "keys" else model.values
        before = [array.copy() for array in rows[options.layer]]
        for l in range(options.layer + 1):
            x = model.run(x, pos, l)
        begin = options.layer + 1
        model.by = options.by
        order = np.argsort(-deviation(model, before, options.layer, first, n), kind="stable")
        chosen[order[:k]] = True
    x, pos = x[chosen], pos[chosen]
    for l in range(begin, model.config["num_hidden_layers"]):
        x = model.run(x, pos, l)
    head = model.w.get("lm_head.weight", model.w["model.embed_tokens.weight"])
    return pos, model.norm(x[-1], "model.norm.weight") @ head.T


def main():
    parser = argparse.ArgumentParser(description="kv-recompute in float64")
    parser.add_argument("limit", type=float)
    parser.add_argument("model")
    parser.add_argument("merged")
    parser.add_argument("out")
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--layer", type=int, default=1)
    parser.add_argument("--by", default="keys")
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    merged, out = read(options.merged), read(options.out)
    model = Merged(options.model, merged)
    pos, logits = recompute(model, merged.head["documents"], options)
    pairs = [(np.array(out.logits), logits)]
    for l, layer in enumerate(out.layers):
        for g, positions in enumerate(layer.positions):
            if list(positions) != list(model.pos[l][g]):
                sys.exit(f"layer {l} KV head {g}: other positions")
            pairs.append((out.array(l, "keys", g), model.keys[l][g]))
            pairs.append((out.array(l, "values", g), model.values[l][g]))
    error = max(relative([pair]) for pair in pairs if pair[1].size)
    if not error <= options.limit:
        sys.exit(f"{options.out}: off by {error:.1e}")
    if out.head != merged.head or out.tokens != merged.tokens:
        sys.exit(f"{options.out}: another head, or other tokens")
    print(*pos)


if __name__ == "__main__":
    main()
