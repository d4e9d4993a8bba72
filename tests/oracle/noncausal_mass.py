#!/usr/bin/env python3
"""noncausal_mass.py LIMIT MODEL FIRST SNAPSHOT.kv [CUT ...]

nCAU against the formula, on the queries and keys of the model in double precision: chunks of 256
rows from row FIRST on, also cut at the rows CUT, where a run ended. Exits with 1 where a number
differs by more than LIMIT times the greatest of its KV head."""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'format'))
sys.dont_write_bytecode = True

import kvread
import llama


def received(queries, keys, first, cuts):
    """[T]: of one query head"""
    T, mass = len(keys), np.zeros(len(keys))
    ends = sorted({T, *(c for c in cuts if first < c < T), *range(first, T, 256)})
    for start, end in zip(ends, ends[1:]):
        logits = queries[start:end] @ keys[start:end].T
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        mass[start:end] = (weights / weights.sum(axis=1, keepdims=True)).sum(axis=0)
    return mass


def main(limit, folder, first, path, *cuts):
    with open(path, 'rb') as file:
        snapshot = kvread.read(file)
    keys, _, queries, _ = llama.Llama(folder).forward(list(snapshot.tokens))
    first, good = int(first), True
    for l, layer in enumerate(snapshot.layers):
        R = len(queries[l]) // len(keys[l])
        for g, positions in enumerate(layer.positions):
            want = np.mean([received(q, keys[l][g], first, list(map(int, cuts)))
                            for q in queries[l][g * R:(g + 1) * R]], axis=0)[list(positions)]
            got = np.array(layer.noncausal.values[g])
            error = np.abs(got - want).max(initial=0) / max(want.max(initial=0), 1e-30)
            if not (error <= float(limit) and (got[np.array(positions) < first] == 0).all()):
                print(f'layer {l} KV head {g}: error {error:.3g}')
                good = False
    return good


if __name__ == '__main__':
    sys.exit(not main(*sys.argv[1:]))
