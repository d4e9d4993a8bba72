#!/usr/bin/env python3
"""query_sums - the sums of qSTa against the queries of the same snapshot, turned back.

    query_sums.py LIMIT SNAPSHOT.kv     made with --observe of all tokens, --dtype f32

The observation queries stand after rotary embedding; turned back to position 0, and divided by the
factor of cosine and sine where there is one, they are those that were added. Exits with 1 when a
sum is away from theirs by more than LIMIT of the greatest one of its kind."""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'format'))
sys.dont_write_bytecode = True

import kvread
import renumber
from kvread import widen


def queries_before(snapshot, l, first):
    """[H][W][E]: those at position `first` or later"""
    model, held = snapshot.model, snapshot.layers[l].queries
    q = widen(held.data, snapshot.head['dtype']).astype(np.float64).reshape(
        model['query_heads'], -1, model['head_width'])
    at, width = np.array(held.positions, dtype=np.float64), renumber.turned(model, l)
    freq, factor = renumber.frequencies(model), model['rope'].get('attention_factor', 1)
    if 'window_theta' in model['rope'] and l not in model.get('whole_layers', ()):
        freq, factor = model['rope']['window_theta'] ** (-np.arange(width // 2) * 2 / width), 1
    base = model.get('latent_rank', 0)
    for h in range(len(q)):
        q[h] = renumber.embed(q[h], -np.outer(at, freq[:width // 2]), width, base)
        q[h, :, base:base + width] /= factor
    return q[:, at >= first]


def check(name, got, want, limit):
    error = np.abs(np.array(got) - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30)
    if not error <= limit:
        print(f'{name}: error {error:.3g}, limit {limit}')
    return error <= limit


def main(limit, path):
    with open(path, 'rb') as file:
        snapshot = kvread.read(file)
    good = True
    for l, layer in enumerate(snapshot.layers):
        stats = layer.query_stats
        q = queries_before(snapshot, l, stats.first)
        E, half = q.shape[2], renumber.turned(snapshot.model, l) // 2
        base = snapshot.model.get('latent_rank', 0)
        good = good and stats.n == q.shape[1]
        for h, one in enumerate(q):
            moduli = np.hypot(one[:, base:base + half],
                              one[:, base + half:base + 2 * half]).sum(axis=0)
            products = (one.T @ one)[np.tril_indices(E)]
            for what, got, want in (('sums', stats.sums, one.sum(axis=0)),
                                    ('moduli', stats.moduli, moduli),
                                    ('products', stats.products, products)):
                good &= check(f'layer {l} query head {h} {what}', got[h], want, float(limit))
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
