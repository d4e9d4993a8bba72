#!/usr/bin/env python3
"""diff - what kv-diff must find in two snapshots, from the formulas, in double precision.

	diff.py LIMIT A.kv B.kv GOT.json [LIMIT A.kv B.kv GOT.json ...]

GOT.json is what `kv-diff --json A.kv B.kv` has printed. Counts, words and differences must be the
same, mass recalled and output errors within LIMIT; what is wrong is printed. Shares no code with
kv-diff.
"""

import json
import sys

import numpy as np

from scores import capped, kvread, sight, stored_queries, unseen


def read(path):
    with open(path, 'rb') as file:
        return kvread.read(file)


def head_arrays(snapshot, l, g):
    """Positions, keys, values of one KV head, in double precision."""
    return (np.array(snapshot.layers[l].positions[g], dtype=np.int64),
            snapshot.array(l, 'keys', g).astype(np.float64),
            snapshot.array(l, 'values', g).astype(np.float64))


def softmax(queries, at, limits, positions, keys):
    """[W][S]: of the rows that each query sees; zero for a query that sees none."""
    logits = capped(queries @ keys.T / np.sqrt(queries.shape[1]), limits[1])
    logits[unseen(positions, at, limits[0])] = -np.inf
    top = np.maximum(logits.max(axis=1, keepdims=True, initial=-1e300), -1e300)
    weights = np.exp(logits - top)
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)


def difference(a, b):
    """Rows that are not the same numbers, and the greatest difference of an element."""
    gap = np.abs(a - b)
    return int((gap > 0).any(axis=1).sum()), float(gap.max(initial=0))


def attention(a, b, queries, at, limits):
    """For each query that sees a row of a: share of mass in both, |o_a|^2, |o_a - o_b|^2."""
    positions, keys, values = a
    weights = softmax(queries, at, limits, positions, keys)
    o_a = weights @ values
    o_b = softmax(queries, at, limits, *b[:2]) @ b[2]
    seen = weights.sum(axis=1) > 0.5
    shared = weights[:, np.isin(positions, b[0])].sum(axis=1)
    return np.stack([shared, (o_a ** 2).sum(axis=1), ((o_a - o_b) ** 2).sum(axis=1)])[:, seen]


def measures(found):
    """From the results of attention(), of one query head or several."""
    found = np.concatenate(found, axis=1) if found else np.zeros((3, 0))
    if found.shape[1] == 0:
        return {'mass': None, 'output_error': None}
    return {'mass': found[0].mean(),
            'output_error': float(np.sqrt(found[2].sum() / found[1].sum()))}


def summed(parts):
    """Counts of several KV heads or layers; differences are maxima."""
    return {key: (max if key.endswith('difference') else sum)(part[key] for part in parts)
            for key in ('both', 'only_a', 'only_b', 'keys_differ', 'values_differ',
                        'key_difference', 'value_difference')}


def compare_head(a, b):
    at_a, at_b = np.isin(a[0], b[0]), np.isin(b[0], a[0])
    keys, values = (difference(a[n][at_a], b[n][at_b]) for n in (1, 2))
    return {'both': int(at_a.sum()), 'only_a': int((~at_a).sum()), 'only_b': int((~at_b).sum()),
            'keys_differ': keys[0], 'key_difference': keys[1],
            'values_differ': values[0], 'value_difference': values[1]}


def compare_layer(A, B, l):
    """The layer as JSON, and the results of attention() of all its query heads."""
    H, G = A.model['query_heads'], A.model['kv_heads']
    owner = A if A.layers[l].queries else B if B.layers[l].queries else None
    queries, at = stored_queries(owner, l) if owner else (None, ())
    heads, all_found = [], []
    for g in range(G):
        a, b = head_arrays(A, l, g), head_arrays(B, l, g)
        heads_of_g = range(g * H // G, (g + 1) * H // G)
        found = [attention(a, b, queries[h], at, sight(A, l)) for h in heads_of_g] \
            if owner else [np.zeros((3, 0))] * (H // G)
        heads.append({**compare_head(a, b), **measures(found),
                      'query_heads': [measures([one]) for one in found]})
        all_found += found
    layer = {**summed(heads), **measures(all_found), 'heads': heads, 'queries': len(at),
             'queries_of': {id(A): 'a', id(B): 'b'}.get(id(owner)) if owner else None}
    return layer, all_found


def token_words(A, B):
    common = 0
    while common < min(len(A), len(B)) and A[common] == B[common]:
        common += 1
    if common < min(len(A), len(B)):
        return 'other', common
    word = 'same' if len(A) == len(B) else 'continued' if len(A) < len(B) else 'beginning'
    return word, common


def snapshot_words(path, snapshot):
    rows = sum(sum(layer.rows) for layer in snapshot.layers)
    return {'snapshot': path, 'dtype': snapshot.head['dtype'], 'tokens': len(snapshot.tokens),
            'next_position': snapshot.head['next_position'], 'rows': rows,
            'kv_bytes': sum(len(layer.keys) + len(layer.values) for layer in snapshot.layers)}


def two(path_a, path_b):
    A, B = read(path_a), read(path_b)
    layers, found = zip(*(compare_layer(A, B, l) for l in range(len(A.layers))))
    word, common = token_words(A.tokens, B.tokens)
    errors = [x['output_error'] for x in layers if x['output_error'] is not None]
    every = measures([one for layer in found for one in layer])
    return {**summed(layers), 'mass': every['mass'],
            'output_error': np.mean(errors) if errors else None,
            'a': snapshot_words(path_a, A), 'b': snapshot_words(path_b, B), 'tokens': word,
            'tokens_common': common, 'reference': 'a', 'same': A.logical_digest == B.logical_digest,
            'layers': list(layers)}


def mistakes(want, got, limit, where=''):
    """What is not as it must be, one text each."""
    if isinstance(want, dict):
        if sorted(want) != sorted(got):
            yield f'{where}: keys {sorted(got)}, want {sorted(want)}'
            return
        for key in want:
            yield from mistakes(want[key], got[key], limit, f'{where}.{key}')
    elif isinstance(want, list):
        if len(want) != len(got):
            yield f'{where}: {len(got)} of them, want {len(want)}'
        for n, (x, y) in enumerate(zip(want, got)):
            yield from mistakes(x, y, limit, f'{where}[{n}]')
    elif isinstance(want, float) and got is not None:
        near = where.endswith(('mass', 'recall', 'output_error'))
        if abs(want - got) > (limit if near else 1e-12) * max(1, abs(want)):
            yield f'{where}: {got}, want {want}'
    elif want != got:
        yield f'{where}: {got}, want {want}'


def compare(limit, path_a, path_b, got):
    with open(got, encoding='utf-8') as file:
        said = json.load(file)
    return [f'{path_a} {path_b}: {mistake}' for mistake in
            mistakes(two(path_a, path_b), said, float(limit))][:20]


def main(arguments):
    assert arguments and len(arguments) % 4 == 0, 'want LIMIT A.kv B.kv GOT.json of each comparison'
    wrong = [mistake for at in range(0, len(arguments), 4)
             for mistake in compare(*arguments[at:at + 4])]
    print(*wrong, sep='\n', end='\n' if wrong else '')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
