#!/usr/bin/env python3
"""budgets - the rows that kv-evict must leave, from the formulas.

	budgets.py BEFORE.kv AFTER.kv [OPTION ...]
	budgets.py <LINES               each line like the arguments above, with quotes as in sh

OPTION are kv-evict's own. Everything is sorted, in Python's own numbers, fractions where a share
is rounded; nothing is taken from the C. Prints how many KV heads agree.
"""

import argparse
import math
import os
import shlex
import statistics
import sys
from decimal import Decimal
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "format"))
import kvread  # noqa: E402

INF = math.inf
BETA = 20


def arguments(words):
    parser = argparse.ArgumentParser(description="the rows that kv-evict must leave")
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--rate", type=Fraction)
    parser.add_argument("--budgets")
    parser.add_argument("--threshold", type=float)
    parser.add_argument("--of", default="rows")
    parser.add_argument("--policy", default="uniform")
    parser.add_argument("--alpha", type=Fraction, default=Fraction(1, 5))
    parser.add_argument("--normalize", action="store_true")
    parser.add_argument("--tau1", type=float, default=1)
    parser.add_argument("--tau2", type=float, default=1)
    parser.add_argument("--select", default="head")
    parser.add_argument("--head-mask")
    parser.add_argument("--sparsity", type=Fraction)
    parser.add_argument("--sink", type=int)
    parser.add_argument("--recent", type=int)
    parser.add_argument("--since", type=int, default=0)
    parser.add_argument("--skip-layers", default="")
    return parser.parse_args(words)


class Head:
    """The judged rows of one KV head: (position, rank), rank infinite for what always stays."""

    def __init__(self, positions, scores, args, end):
        sink, first_recent = args.sink or 0, end - (args.recent or 0)
        self.before = [p for p in positions if p < args.since]
        self.rows = [(p, INF if p < sink or p >= first_recent else s)
                     for p, s in zip(positions, scores) if p >= args.since]
        self.n = len(self.rows)
        self.always = sum(s == INF for _, s in self.rows)
        self.base, self.size, self.gate = self.n, 1, None

    def cut(self, size):
        """Rows become chunks of several positions with their mean rank; fewer than one: they stay
        rows."""
        if self.n < size or size == 1:
            return
        chunks = [self.rows[i:i + size] for i in range(0, self.n, size)]
        self.rows = [([p for p, _ in rows], sum(s for _, s in rows) / len(rows)) for rows in chunks]
        self.n, self.base, self.size = len(chunks), math.ceil(self.base / size), size
        self.always = sum(s == INF for _, s in self.rows)

    def best(self, count):
        """The positions that stay."""
        if self.gate:
            stay = spiky_rows([s for _, s in self.rows], count, *self.gate)
            return self.before + [p for i, (p, _) in enumerate(self.rows) if i in stay]
        order = sorted(range(self.n), key=lambda i: (-self.rows[i][1], i))
        stay = sorted(self.rows[i][0] for i in order[:count])
        return self.before + (sum(stay, []) if self.size > 1 else stay)


def chunk_entropy(scores):
    """How evenly the scores of a chunk are spread, 0 .. 1."""
    n, always, never = len(scores), scores.count(INF), scores.count(-INF)
    if n == 1 or never == n:
        return 0
    if always or never:
        return math.log(always or n - never) / math.log(n)
    scores = [s - min(0, *scores) for s in scores]
    shares = [s / (sum(scores) + 1e-8) for s in scores]
    return min(max(-sum(p * math.log(p + 1e-8) for p in shares) / math.log(n), 0), 1)


def spiky_rows(scores, count, size, spiky):
    """The rows that stay where important chunks of low entropy keep only some."""
    def best(rows):
        return sorted(set(rows) - stay, key=lambda i: (-scores[i], i))

    chunks = [range(len(scores))[a:a + size] for a in range(0, len(scores), size)]
    lists = [[scores[i] for i in chunk] for chunk in chunks]
    means = [INF if INF in row else sum(row) / len(row) for row in lists]
    entropies = [chunk_entropy(row) for row in lists]
    stay = {i for i, s in enumerate(scores) if s == INF}
    for c in sorted(range(len(chunks)), key=lambda c: (-means[c], c)):
        most = len(chunks[c])
        if (means[c] >= statistics.median_low(means)
                and entropies[c] < statistics.median_low(entropies)):
            most = spiky
        more = min(most - lists[c].count(INF), count - len(stay))
        stay.update(best(chunks[c])[:max(more, 0)])
    stay.update(best(range(len(scores)))[:count - len(stay)])
    return stay


def pyramid(l, L, T, w, C):
    """KVCache-Factory, integers."""
    if T <= C:
        return T
    B = C - w
    if T < 2 * B or L < 2:
        return C
    low = B // BETA
    high = 2 * B - low
    if high >= T - w:
        high = T - w
        low = 2 * B - high
    return high - l * ((high - low) // (L - 1)) + w


def pyramid_exact(l, L, T, w, C):
    """The line of pyramid in fractions, rounded to L * C by the largest remainders."""
    B = C - w
    if T <= C:
        return T
    if T < 2 * B or L < 2:
        return C
    low = Fraction(B, BETA)
    high = 2 * B - low
    if high > T - w:
        high = Fraction(T - w)
        low = 2 * B - high
    line = [high - i * (high - low) / (L - 1) for i in range(L)]
    counts = [math.floor(x) for x in line]
    for i in sorted(range(L), key=lambda i: (counts[i] - line[i], i))[:L * B - sum(counts)]:
        counts[i] += 1
    assert sum(counts) == L * B and counts == sorted(counts, reverse=True)
    return counts[l] + w


def pyramid_kvpress(l, L, T, w, kept):
    if T <= kept:
        return T
    low = kept / BETA
    high = 2 * kept - low
    if high >= T - w:
        high = T - w
        low = 2 * kept - high
    if L < 2 or not T >= high >= low >= w:
        return min(T, round(kept))
    return round(high - l * (high - low) / (L - 1))


def greatest(lists, k):
    """How many of the k greatest are in each list; equal: the first."""
    order = sorted((-s, p, i) for p, scores in enumerate(lists) for i, s in enumerate(scores))
    won = [0] * len(lists)
    for _, p, _ in order[:k]:
        won[p] += 1
    return won


def ada(heads, counts, args):
    lists, B = [], [c - h.always for h, c in zip(heads, counts)]
    for head, b in zip(heads, B):
        scores = [s for _, s in head.rows if s != INF]
        if args.normalize and sum(scores) > 0:
            factor = sum(sorted(scores)[len(scores) - b:]) / sum(scores)
            scores = [s * factor for s in scores]
        lists.append(scores)
    won = greatest(lists, sum(B))
    shares = [c * (1 - args.alpha) + b * args.alpha for c, b in zip(won, B)]
    caps = [math.floor(s) for s in shares]
    order = sorted(range(len(shares)), key=lambda g: (caps[g] - shares[g], g))
    for g in order[:sum(B) - sum(caps)]:
        caps[g] += 1
    return [h.always + c for h, c in zip(heads, caps)]


def ada_kvpress(heads, counts, args):
    lists = []
    for head, count in zip(heads, counts):
        order = sorted(range(head.n), key=lambda i: (-head.rows[i][1], i))
        safe = set(order[:math.floor(count * args.alpha)])
        lists.append([INF if i in safe else s for i, (_, s) in enumerate(head.rows)])
    return greatest(lists, sum(counts))


def of_layer(heads, l, L, args):
    """Rows that stay in each head of a layer."""
    counts = []
    if args.threshold is not None:
        above = [sum(s >= args.threshold for _, s in head.rows) for head in heads]
        return [n or int(head.n > 0 and not head.before) for n, head in zip(above, heads)]
    for g, head in enumerate(heads):
        if args.budgets and head.base > 0:
            word = table(args.budgets)[l][g]
            kept = int(word) if word.isdigit() else share(word) * head.base
        else:
            kept = args.budget // head.size if args.budget is not None else head.base * args.rate
        if args.policy == "pyramid-kvpress":
            counts.append(pyramid_kvpress(l, L, head.n, head.always, kept))
        elif args.policy in ("pyramid", "ada-pyramid"):
            counts.append(pyramid(l, L, head.n, head.always, math.floor(kept)))
        elif args.policy in ("pyramid-exact", "ada-pyramid-exact"):
            gone = skipped(args.skip_layers)
            counts.append(pyramid_exact(l - sum(s < l for s in gone), L - len(gone), head.n,
                                        head.always, math.floor(kept)))
        else:
            # what always stays does, and one row where nothing else would
            none = kept < 1 and head.n > 0 and not head.before
            counts.append(max(min(math.floor(kept), head.n), head.always, int(none)))
    if args.policy in ("ada", "ada-pyramid", "ada-pyramid-exact"):
        return ada(heads, counts, args)
    return ada_kvpress(heads, counts, args) if args.policy == "ada-kvpress" else counts


def of_all(layers, args):
    """Rows that stay in each head of each layer, under one threshold."""
    heads = [head for heads in layers for head in heads]
    if args.budget is not None:
        k = sum(min(args.budget, head.n) for head in heads)
    else:
        k = min(sum(h.n for h in heads), math.floor(sum(h.base for h in heads) * args.rate))
    won = greatest([[s for _, s in head.rows] for head in heads], k)
    G = len(layers[0])
    return [won[i:i + G] for i in range(0, len(won), G)]


def of_composites(layers, args):
    """Rows that stay in each head of each layer: j-th best rows of all its heads compete as one."""
    lists = []
    for heads in layers:
        best = zip(*(sorted((s for _, s in head.rows), reverse=True) for head in heads))
        lists.append([INF if INF in scores else sum(scores) / len(scores) for scores in best])
    first = next(row for row in lists if row)
    first[:] = [max(row[j] for row in lists if j < len(row)) for j in range(len(first))]
    if args.budget is not None:
        k = sum(min(args.budget, len(row)) for row in lists)
    else:
        k = math.floor(sum(heads[0].base for heads in layers) * args.rate)
    won = greatest(lists, max(k, sum(row.count(INF) for row in lists)))
    bare = [any(head.n > 0 and not head.before for head in heads) for heads in layers]
    return [[max(n, int(b))] * len(heads) for n, b, heads in zip(won, bare, layers)]


def of_layers(layers, labels, args):
    """Rows that stay in each head of each layer, whose preferences come from the labels."""
    longest = [max(heads, key=lambda h: h.n) for heads in layers]
    room = [h.n - h.always for h in longest]
    wanted = [min(h.n, args.budget if args.budget is not None else math.floor(h.base * args.rate))
              for h in longest]
    budget = max(sum(wanted) - sum(h.always for h in longest), 0)
    preference = [0] * len(layers)
    for l, words in enumerate(labels):
        if room[l]:
            # tau of 0.1 and less: beyond what a float holds
            preference[l] = (Decimal(words["entropy"]) ** (1 / Decimal(args.tau1))
                             * Decimal(words["variance"]) ** (1 / Decimal(args.tau2)))
    total = sum(preference)
    quota = [math.floor(budget * p / total) if total else 0 for p in preference]
    gets = [min(q, r) for q, r in zip(quota, room)]
    for left in sum(quota) - sum(gets), budget - sum(quota):
        while left and gets != room:
            open_ = [l for l in range(len(room)) if gets[l] < room[l]]
            more = [left // len(open_) + (i < left % len(open_)) for i in range(len(open_))]
            for l, n in zip(open_, more):
                n = min(n, room[l] - gets[l])
                gets[l] += n
                left -= n
    return [[min(h.always + n, h.n) for h in heads] for n, heads in zip(gets, layers)]


def table(path):
    with open(path, encoding="ascii") as file:
        return [line.split() for line in file]


def share(word):
    return Fraction(word[:-1]) / 100 if word.endswith("%") else Fraction(word)


def streaming(path, sparsity):
    """The set of (layer, head) that stream."""
    with open(path, encoding="ascii") as file:
        table = [[min(max(float(x), 0), 1) for x in line.split()] for line in file]
    flat = sorted((x, l, g) for l, line in enumerate(table) for g, x in enumerate(line))
    if sparsity is None:
        return {(l, g) for x, l, g in flat if x < 0.5}
    return {(l, g) for _, l, g in flat[:round(len(flat) * sparsity)]}


def mean(heads):
    """Every head gets the mean of the ranks."""
    for i, column in enumerate(zip(*(head.rows for head in heads))):
        ranks = [s for _, s in column]
        value = INF if INF in ranks else sum(ranks) / len(ranks)
        for head in heads:
            head.rows[i] = (column[0][0], value)
    for head in heads:
        head.always = sum(s == INF for _, s in head.rows)


def skipped(text):
    layers = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        layers.update(range(int(first), int(last or first) + 1))
    return layers


def label_words(layer):
    return dict(word.split("=") for word in layer.scores.label.split()[1:]) if layer.scores else {}


def expected(old, args):
    """[layer][head] -> positions"""
    end, L = old.head["next_position"], len(old.layers)
    layers, skip = [], skipped(args.skip_layers)
    for l, layer in enumerate(old.layers):
        scores = layer.scores.values if layer.scores else [[0] * n for n in layer.rows]
        heads = [Head(p, s, args, end) for p, s in zip(layer.positions, scores)]
        for head, positions in zip(heads, layer.positions):
            if l in skip:
                head.before, head.rows, head.n, head.always, head.base = positions, [], 0, 0, 0
            elif args.of == "tokens":
                head.base = end - args.since if args.since else len(old.tokens)
        if args.select != "head":
            mean(heads)
        if args.select.startswith("chunk="):
            size, *spiky = [int(word.split("=")[1]) for word in args.select.split()]
            for head in heads:
                if spiky:
                    head.gate = size, *spiky
                else:
                    head.cut(size)
        layers.append(heads)
    if args.budget is None and args.rate is None:
        args.rate = 1
    if args.policy == "global":
        counts = of_all(layers, args)
    elif args.policy == "composite":
        counts = of_composites(layers, args)
    elif args.policy == "cake":
        counts = of_layers(layers, [label_words(layer) for layer in old.layers], args)
    else:
        counts = [of_layer(heads, l, L, args) for l, heads in enumerate(layers)]
    want = [[h.best(c) for h, c in zip(*pair)] for pair in zip(layers, counts)]
    if args.head_mask:
        sink = 128 if args.sink is None else args.sink
        recent = 1024 if args.recent is None else args.recent
        for l, g in streaming(args.head_mask, args.sparsity):
            if l not in skip:
                want[l][g] = [p for p in old.layers[l].positions[g]
                              if p < sink or p >= end - recent]
    return want


def judge(words):
    args = arguments(words)
    with open(args.before, "rb") as a, open(args.after, "rb") as b:
        old, new = kvread.read(a), kvread.read(b)
    count = 0
    for l, want in enumerate(expected(old, args)):
        for g, positions in enumerate(want):
            if list(new.layers[l].positions[g]) != positions:
                sys.exit(f"{' '.join(words)}: layer {l} KV head {g}: "
                         f"{list(new.layers[l].positions[g])}, must be {positions}")
            count += 1
    return count


def main():
    runs = [sys.argv[1:]] if len(sys.argv) > 1 else [shlex.split(line) for line in sys.stdin]
    print(sum(judge(words) for words in runs), "heads")


if __name__ == "__main__":
    main()
