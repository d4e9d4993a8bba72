#!/usr/bin/env python3
"""agreement - what kv-diff --scores must find in two snapshots, from the definitions.

    agreement.py A.kv B.kv GOT.json RATE [...] [-- A.kv B.kv GOT.json RATE ...]

Between -- there is one comparison each. GOT.json is what `kv-diff --json --scores --at RATE A.kv
B.kv` has printed. Kendall's tau-b goes over all pairs of rows, the best rows are found by sorting.
Numbers must be the same to 1e-12; what is wrong is printed. Shares no code with kv-diff.
"""

import json
import math
import sys

import numpy as np

from diff import mistakes, read, snapshot_words, token_words


def tau_b(x, y):
    """None where it is not defined."""
    x, y = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    agree = untied_x = untied_y = 0
    for i in range(len(x)):
        one = np.sign((x[i] > x[i + 1:]) * 1 - (x[i] < x[i + 1:]) * 1)
        other = np.sign((y[i] > y[i + 1:]) * 1 - (y[i] < y[i + 1:]) * 1)
        agree += int((one * other).sum())
        untied_x += int((one != 0).sum())
        untied_y += int((other != 0).sum())
    return agree / math.sqrt(untied_x * untied_y) if untied_x and untied_y else None


def best(scores, k):
    """The k greatest; of equal ones the lower rows."""
    return set(sorted(range(len(scores)), key=lambda row: (-scores[row], row))[:k])


def recall(x, y, rate):
    k = max(1, math.floor(len(x) * rate + 1e-9))
    return len(best(x, k) & best(y, k)) / k


def head_scores(snapshot, l, g):
    scores = snapshot.layers[l].scores
    return dict(zip(snapshot.layers[l].positions[g], scores.values[g])) if scores else None


class Measures:
    """Of KV heads, each of which is a list of numbers in it."""

    def __init__(self, rates):
        self.rates = rates
        self.counts = np.zeros(4, dtype=int)
        self.taus, self.recalls, self.sums = [], [], np.zeros(4)

    def add(self, other):
        self.counts += other.counts
        self.taus += other.taus
        self.recalls += other.recalls
        self.sums += other.sums

    def words(self, one):
        """As in the JSON object; one: of a single KV head."""
        whole, kept, most, shared = self.sums
        lost = lambda of: None if whole <= 0 else (of - kept) / of if of > 0 else 0.0
        part = lambda of: of / whole if whole > 0 else None
        words = dict(zip(("both", "only_a", "only_b", "infinite"), map(int, self.counts)))
        words.update(
            tau=float(np.mean(self.taus)) if self.taus else None,
            recall=[float(np.mean(column)) for column in zip(*self.recalls)] or
            [None] * len(self.rates),
            kept=part(kept), best=part(most), regret=lost(most))
        if not one:
            words.update(best_shared=part(shared), regret_shared=lost(shared))
        return words


def greatest(scores, k):
    return sum(sorted(scores, reverse=True)[:k])


def layer_words(A, B, l, rates):
    """The layer as JSON, and its measures."""
    heads, pools, kept_rows = [], [], []
    for g in range(A.model["kv_heads"]):
        m = Measures(rates)
        a, b = head_scores(A, l, g), head_scores(B, l, g)
        rows_a, rows_b = (s.layers[l].positions[g] for s in (A, B))
        both = [p for p in rows_a if p in set(rows_b)]
        finite = {p: x for p, x in (a or {}).items() if x != math.inf}
        kept = [finite[p] for p in both if p in finite]
        m.counts += (len(both), len(rows_a) - len(both), len(rows_b) - len(both),
                     len(a or {}) - len(finite))
        if a and b and both:
            x, y = [a[p] for p in both], [b[p] for p in both]
            m.recalls = [[recall(x, y, rate) for rate in rates]]
            m.taus = [tau for tau in [tau_b(x, y)] if tau is not None]
        m.sums[:3] = sum(finite.values()), sum(kept), greatest(finite.values(), len(kept))
        pools += finite.values()
        kept_rows += kept
        heads.append(m)
    whole = Measures(rates)
    for m in heads:
        if any(x < 0 for x in pools):
            m.sums[:] = 0
        whole.add(m)
    if not any(x < 0 for x in pools):
        whole.sums[3] = greatest(pools, len(kept_rows))
    return {**whole.words(False), "heads": [m.words(True) for m in heads]}, whole


def labelled(path, snapshot):
    label = next((layer.scores.label for layer in snapshot.layers if layer.scores), None)
    return {**snapshot_words(path, snapshot), "scores": label}


def compare(path_a, path_b, rates):
    A, B = read(path_a), read(path_b)
    layers, measures = zip(*(layer_words(A, B, l, rates) for l in range(len(A.layers))))
    everything = Measures(rates)
    for m in measures:
        everything.add(m)
    word, common = token_words(A.tokens, B.tokens)
    return {**everything.words(False), "rates": rates, "a": labelled(path_a, A),
            "b": labelled(path_b, B), "tokens": word, "tokens_common": common, "reference": "a",
            "layers": list(layers)}


def wrong(path_a, path_b, got, *rates):
    with open(got, encoding="utf-8") as file:
        said = json.load(file)
    return [f"{got}: {mistake}" for mistake in
            mistakes(compare(path_a, path_b, [float(rate) for rate in rates]), said, 1e-12)][:20]


def main(arguments):
    comparisons = [[]]
    for argument in arguments:
        if argument == "--":
            comparisons.append([])
        else:
            comparisons[-1].append(argument)
    found = [mistake for comparison in comparisons for mistake in wrong(*comparison)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
