#!/usr/bin/env python3
"""tried - what retrieval must read and lose, from the formulas, in double precision.

	tried.py LIMIT A.kv GOT.json [LIMIT A.kv GOT.json ...]

GOT.json is what `kv-diff --json --retrieve ... A.kv` has printed, which also says what was asked
for. Bytes and rows must be the same; recall, mass and errors within LIMIT, which leaves room for
rows whose scores are equal but for rounding. What is wrong is printed. Indexes are those of the
file, as the independent reader has read them; nothing here is kv-diff's.
"""

import json
import sys

import numpy as np

from diff import mistakes, read
from scores import kvread, stored_queries

SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}


class Head:
    """One KV head of a layer, as a query sees it: the first n rows."""

    def __init__(self, snapshot, l, g, last):
        self.g, self.layer, self.dtype = g, snapshot.layers[l], snapshot.head['dtype']
        self.positions = np.array([p for p in self.layer.positions[g] if p <= last], dtype=int)
        self.n = len(self.positions)
        self.keys = snapshot.array(l, 'keys', g)[:self.n].astype(np.float64)
        self.values = snapshot.array(l, 'values', g)[:self.n].astype(np.float64)
        self.E = snapshot.model['head_width']
        self.row = self.E * SIZE[self.dtype]
        self.theta = snapshot.model['rope']['theta']

    def rounded(self, keys):
        """To the type of the cache."""
        if self.dtype != 'bf16':
            return keys.astype({'f16': '<f2', 'f32': '<f4'}[self.dtype]).astype(np.float64)
        bits = keys.astype('<f4').view('<u4')
        return (bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000).view('<f4').astype(np.float64)

    def wide(self, data):
        return kvread.widen(data, self.dtype).astype(np.float64)


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def joined(scores, how):
    """[n] from [R][n]: what KV heads go by."""
    if len(scores) == 1 or scores.shape[1] == 0:
        return scores[0]
    return {'max': np.max, 'mean': np.mean, 'sum': np.sum}[how](softmax(scores), axis=0)


def best(score, k):
    """The k greatest, of equal ones the lower, ascending."""
    return np.sort(np.argsort(-score, kind='stable')[:k])


def logits(queries, keys):
    return queries @ keys.T / np.sqrt(queries.shape[1])


# Each returns the rows that are read, the keys that stand in their place, bytes of index and keys.

def fier(head, queries, budget, how):
    u, data = head.layer.bits.u, head.layer.bits.heads[head.g]
    size, entries, E = head.E * (4 + u // 8), head.n // u, head.E
    keys = head.keys.copy()
    for i in range(entries):
        entry = data[i * size:(i + 1) * size]
        zero, scale = np.frombuffer(entry[:4 * E], '<f2').astype(np.float64).reshape(2, E)
        bits = np.unpackbits(np.frombuffer(entry[4 * E:], np.uint8), bitorder='little')
        keys[i * u:(i + 1) * u] = zero + bits.reshape(E, u).T * scale
    rows = best(joined(logits(queries, keys), how), budget)
    return rows, head.keys[rows], entries * size, (head.n - entries * u + len(rows)) * head.row


def rows_of(candidates, u, n):
    """The rows of these pages or chunks of u rows."""
    return np.array([row for c in candidates for row in range(c * u, min(c * u + u, n))], dtype=int)


def quest(head, queries, budget, how):
    u, n = head.layer.pages.u, head.n
    bounds = head.wide(head.layer.pages.heads[head.g]).reshape(-1, 2, head.E)[:n // u]
    last = (n - 1) // u
    scores = np.array([np.maximum(q * bounds[:last, 0], q * bounds[:last, 1]).sum(axis=1)
                       for q in queries]) / np.sqrt(head.E)
    chosen = best(joined(scores, how), max(budget // u, 1) - 1)
    rows = rows_of([*chosen, last], u, n)
    return rows, head.keys[rows], len(bounds) * 2 * head.row, len(rows) * head.row


def quest_eval(head, queries, budget, how):
    u, n = head.layer.pages.u, head.n
    pages = np.split(head.keys, np.arange(u, n, u))
    bounds = np.array([(page.min(axis=0), page.max(axis=0)) for page in pages])
    scores = np.array([np.maximum(q * bounds[:, 0], q * bounds[:, 1]).sum(axis=1)
                       for q in queries]) / np.sqrt(head.E)
    rows = rows_of(best(joined(scores, how), max(budget // u, 3)), u, n)
    return rows, head.keys[rows], len(pages) * 2 * head.row, len(rows) * head.row


def cluster(head, queries, budget, how):
    c, n = head.layer.clusters, head.n
    means = head.wide(c.means[head.g]).reshape(-1, head.E)
    sink, end = min(c.sink, n), min(max(c.ends[head.g], c.sink), n)
    score = joined(logits(queries, means), how)[c.labels[head.g][:end - sink]]
    chosen = sink + best(score, max(budget - sink, 0))
    rows = np.concatenate([np.arange(sink), chosen, np.arange(end, n)]).astype(int)
    return rows, head.keys[rows], len(means) * head.row + 4 * n, len(rows) * head.row


def rotated(keys, positions, theta):
    half = keys.shape[1] // 2
    angle = positions[:, None] * theta ** (-np.arange(half) / half)
    a, b = keys[:, :half], keys[:, half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           b * np.cos(angle) + a * np.sin(angle)], axis=1)


def shadow(head, queries, budget, how):
    low, n = head.layer.low_rank, head.n
    u, exact = low.chunk, set(low.exact[head.g])
    compete = np.array([c for c in range(low.rows // u) if c not in exact], dtype=int)
    marks = head.wide(low.landmarks[head.g]).reshape(-1, head.E)[compete]
    chosen = compete[best(joined(logits(queries, marks), how), budget // u)]
    behind = range(low.rows // u, -(-n // u))
    rows = rows_of(sorted([*chosen, *exact, *behind]), u, n)
    rebuilt = np.isin(rows // u, chosen)
    left = head.wide(low.left).reshape(-1, low.rank)
    keys = head.keys[rows]
    keys[rebuilt] = head.rounded(rotated(left[rows[rebuilt]] @ head.wide(
        low.right[head.g]).reshape(head.E, low.rank).T, head.positions[rows[rebuilt]], head.theta))
    item, count = SIZE[head.dtype], int(rebuilt.sum())
    index = len(marks) * head.row + count * low.rank * item + (count > 0) * head.row * low.rank
    return rows, keys, index, (len(rows) - count) * head.row


METHODS = {'fier': fier, 'quest': quest, 'quest-eval': quest_eval, 'cluster': cluster,
           'shadow': shadow}


def attention(queries, keys, values):
    if len(keys) == 0:
        return np.zeros((len(queries), values.shape[1]))
    return softmax(logits(queries, keys)) @ values


def step(head, queries, asked, whole):
    """One query (its R heads) of one KV head: counts, and |o|^2, |o - o'|^2 of each query head."""
    rows, keys, index = np.arange(head.n), head.keys, 0
    key_bytes = head.n * head.row
    if not whole:
        rows, keys, index, key_bytes = METHODS[asked['retrieve']](
            head, queries, asked['budget'], asked['reduce'])
        if head.n <= asked['budget']:
            key_bytes += (head.n - len(rows)) * head.row
            rows, keys = np.arange(head.n), head.keys
    full = attention(queries, head.keys, head.values)
    lost = full - attention(queries, keys, head.values[rows])
    true = logits(queries, head.keys)
    found = np.isin(best(joined(true, asked['reduce']), len(rows)), rows).mean() if len(rows) else 1
    mass = softmax(true)[:, rows].sum(axis=1).mean() if len(rows) else 1
    counts = {'rows': len(rows), 'of_rows': head.n, 'index_bytes': index, 'key_bytes': key_bytes,
              'value_bytes': len(rows) * head.row, 'of_bytes': 2 * head.n * head.row,
              'recall': found, 'mass': mass}
    return counts, np.stack([(full ** 2).sum(axis=1), (lost ** 2).sum(axis=1)])


def error(squares):
    squares = np.sum(squares, axis=0)
    return float(np.sqrt(squares[1] / squares[0]))


def means(counts, output_error):
    out = {key: float(np.mean([c[key] for c in counts])) for key in counts[0]}
    out['share'] = (out['index_bytes'] + out['key_bytes'] + out['value_bytes']) / out['of_bytes']
    return {**out, 'output_error': output_error}


def try_layer(snapshot, l, asked):
    """The layer as JSON, and the counts of all its steps."""
    H, G, layer = snapshot.model['query_heads'], snapshot.model['kv_heads'], snapshot.layers[l]
    queries, at = stored_queries(snapshot, l)
    dense = l < asked['dense_layers']
    need = 0 if dense or asked['retrieve'] != 'shadow' else layer.low_rank.rows
    steps = [[] for _ in range(G)]
    for w, position in enumerate(at):
        heads = [Head(snapshot, l, g, position) for g in range(G)]
        whole = dense or all(head.n <= asked['budget'] for head in heads)
        for head in heads if heads[0].n >= need else []:
            group = queries[head.g * H // G:(head.g + 1) * H // G, w]
            steps[head.g].append(step(head, group, asked, whole))
    out = []
    for own in steps:
        squares = np.array([squares for _, squares in own])     # [W][2][R]
        out.append({**means([c for c, _ in own], error(squares.sum(axis=2))), 'query_heads': [
            {'output_error': error(squares[:, :, r])} for r in range(H // G)]})
    every = [c for own in steps for c, _ in own]
    total = error([squares.sum(axis=1) for own in steps for _, squares in own])
    return {**means(every, total), 'layer': l, 'queries': len(steps[0]), 'heads': out}, every


def tried(path, asked):
    snapshot = read(path)
    layers, counts = zip(*(try_layer(snapshot, l, asked) for l in range(len(snapshot.layers))))

    def together(first):
        return means([c for own in counts[first:] for c in own],
                     np.mean([x['output_error'] for x in layers[first:]]))
    return {'snapshot': path, 'dtype': snapshot.head['dtype'], 'tokens': len(snapshot.tokens),
            **asked, 'all': together(0), 'retrieving': together(asked['dense_layers']),
            'layers': list(layers)}


def compare(limit, path, got):
    with open(got, encoding='utf-8') as file:
        said = json.load(file)
    asked = {key: said[key] for key in ('retrieve', 'budget', 'reduce', 'dense_layers')}
    return [f'{path} {" ".join(map(str, asked.values()))}: {mistake}' for mistake in
            mistakes(tried(path, asked), said, float(limit))][:20]


def main(arguments):
    assert arguments and len(arguments) % 3 == 0, 'want LIMIT A.kv GOT.json of each run'
    wrong = [mistake for at in range(0, len(arguments), 3)
             for mistake in compare(*arguments[at:at + 3])]
    print(*wrong, sep='\n', end='\n' if wrong else '')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
