#!/usr/bin/env python3
"""observe - what kv-observe must give, from the formulas, in double precision.

	observe.py model MODEL OBSERVED.kv IDS          queries and own keys of the tokens in the
                                                 file IDS
	observe.py repeat MODEL PAID.kv IDS CHUNK SINK  attention paid by a text that is repeated in
	                                                chunks, IDS asking for it before each
	observe.py paid QUERIES.kv PAID.kv OVER FROM TO SINK
	    attention paid, from the queries, own keys and rows of another run of the same tokens:
	    rows at positions FROM .. TO-1 alone, and those below SINK, stand in the softmax with
	    the own keys; the former must have their OVER (sum or max), the latter +inf. Needs no
	    model.

Prints the relative errors (L2), one a line: `queries 1.2e-07`. Shares no code with kv-observe.
"""

import sys

import numpy as np

from llama import Llama, relative
from scores import capped, kvread, own_keys, sight, stored_queries, unseen


def read(path):
    with open(path, 'rb') as file:
        return kvread.read(file)


def read_ids(path):
    with open(path, encoding='ascii') as file:
        return [int(word) for word in file.read().split()]


def softmax(queries, keys, hidden, cap=0):
    """Weights [W][S]; hidden: boolean [W][S]."""
    logits = capped(queries @ keys.T / np.sqrt(keys.shape[1]), cap)
    logits[hidden] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def model(folder, path, ids):
    """The tokens of the snapshot, then the others, as if all were one text."""
    snapshot, ids = read(path), read_ids(ids)
    keys, _, queries, _ = Llama(folder).forward(np.array(snapshot.tokens + ids))
    pairs = {'queries': [], 'own keys': []}
    for l, layer in enumerate(snapshot.layers):
        got, at = stored_queries(snapshot, l)
        T = snapshot.head['next_position']
        assert at[-len(ids):] == list(range(T, T + len(ids))), at
        pairs['queries'].append((got, queries[l][:, list(at)]))
        for g in range(snapshot.model['kv_heads']):
            own, own_at = own_keys(snapshot, l, g)
            pairs['own keys'].append((own, keys[l][g][own_at]))
    return pairs


def repeated(tokens, asking, chunk, sink):
    """(first position of the chunk, ids that are run for it)"""
    for at in range(sink, len(tokens), chunk):
        before = tokens[max(sink, at - 8, at - chunk):at] if at > sink else []
        yield at, asking + before + tokens[at:at + chunk]


def repeat(folder, path, ids, chunk, sink):
    snapshot, llama, asking = read(path), Llama(folder), read_ids(ids)
    T, R = len(snapshot.tokens), snapshot.model['query_heads'] // snapshot.model['kv_heads']
    want = np.zeros((snapshot.model['layers'], snapshot.model['query_heads'], T))
    for at, run in repeated(snapshot.tokens, asking, chunk, sink):
        keys, _, queries, _ = llama.forward(np.array(snapshot.tokens + run))
        end = min(at + chunk, T)
        seen = [*range(sink), *range(at, end), *range(T, T + len(run))]
        hidden = np.array(seen)[None, :] > np.arange(T, T + len(run))[:, None]
        for l, h in np.ndindex(want.shape[:2]):
            weights = softmax(queries[l][h][T:], keys[l][h // R][seen], hidden)
            want[l, h, at:end] = weights[:, sink:sink + end - at].max(axis=0)
    want[:, :, :sink] = np.inf
    return {'paid': list(finite_pairs(snapshot, want))}


def finite_pairs(snapshot, want):
    """(got, want) of each layer and query head, without +inf, which must be in the same places."""
    for layer, expected in zip(snapshot.layers, want):
        for got, e in zip((one for head in layer.paid.values for one in head), expected):
            got, keep = np.array(got), np.isfinite(e)
            assert np.array_equal(np.isposinf(got), ~keep), 'rows with +inf'
            yield got[keep], e[keep]


def paid(queries_path, paid_path, over, begin, end, sink):
    from_queries, snapshot = read(queries_path), read(paid_path)
    R = snapshot.model['query_heads'] // snapshot.model['kv_heads']
    want = []
    for l, layer in enumerate(from_queries.layers):
        queries, at = stored_queries(from_queries, l)
        want.append([])
        for h in range(snapshot.model['query_heads']):
            g = h // R
            own, own_at = own_keys(from_queries, l, g)
            rows = np.array(layer.positions[g], dtype=int)
            judged = (rows >= max(begin, sink)) & (rows < end)
            seen = judged | (rows < sink)
            stored = from_queries.array(l, 'keys', g).astype(np.float64)[seen]
            positions = np.concatenate([rows[seen], own_at])
            weights = softmax(queries[h], np.concatenate([stored, own]),
                              unseen(positions, at, sight(snapshot, l)[0]), sight(snapshot, l)[1])
            values = np.zeros(len(rows))
            total = weights.max(axis=0) if over == 'max' else weights.sum(axis=0)
            values[seen] = total[:len(stored)]
            values[rows < sink] = np.inf
            values[~seen] = np.array(snapshot.layers[l].paid.values[g][h % R])[~seen]
            want[-1].append(values)
    return {'paid': list(finite_pairs(snapshot, want))}


def main(what, *arguments):
    if what == 'model':
        pairs = model(*arguments)
    elif what == 'repeat':
        pairs = repeat(*arguments[:3], *map(int, arguments[3:]))
    else:
        pairs = paid(*arguments[:3], *map(int, arguments[3:]))
    for name, of in pairs.items():
        print(f'{name} {relative(of):.1e}')


if __name__ == '__main__':
    main(*sys.argv[1:])
