#!/usr/bin/env python3
"""mass - the attention received after a resume, from what the snapshots hold and the definition.

	mass.py BEFORE.kv AFTER.kv

AFTER continues BEFORE by tokens whose queries it holds all. A row must have what it had, plus
what each of these queries pays it in a softmax over the rows at or before its position. Prints
the relative error (L2). Shares no code with kv-prefill, and needs no model.
"""

import sys

import numpy as np

from scores import attention, kvread, sight, stored_queries


def expected(before, after, l, h):
    """(computed, stored) values of query head h in layer l."""
    model = after.model
    g, r = divmod(h, model['query_heads'] // model['kv_heads'])
    positions = after.layers[l].positions[g]
    queries, at = stored_queries(after, l)
    keys = after.array(l, 'keys', g).astype(np.float64)
    paid = attention(keys, np.array(positions), queries[h], at, sight(after, l)).sum(axis=0)
    had = dict(zip(before.layers[l].positions[g], before.layers[l].mass[g][r]))
    had = np.array([had.get(p, 0.0) for p in positions])
    return paid + had, np.array(after.layers[l].mass[g][r])


def main(before, after):
    before, after = (kvread.read(open(file, 'rb')) for file in (before, after))
    new = list(range(before.head['next_position'], after.head['next_position']))
    assert all(list(layer.queries.positions) == new for layer in after.layers)
    difference = total = 0.0
    for l in range(len(after.layers)):
        for h in range(after.model['query_heads']):
            want, got = expected(before, after, l, h)
            difference += ((want - got) ** 2).sum()
            total += (want ** 2).sum()
    print(f'{(difference / total) ** 0.5:.1e}')


if __name__ == '__main__':
    main(*sys.argv[1:])
