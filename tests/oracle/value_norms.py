#!/usr/bin/env python3
"""value_norms - norms of value outputs, and what is chosen by them, computed again.

    value_norms.py made LIMIT MODEL SNAPSHOT.kv      vNRM against the weights of the model
    value_norms.py chosen FIRST EPSILON SCORED.kv KEPT.kv

chosen: the rows of KEPT are those that CriticalKV keeps of SCORED, as many in each KV head: the
share FIRST by score, the others by (score + EPSILON) times the mean norm."""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'format'))
sys.dont_write_bytecode = True

import kvread
import llama


def read(path):
    with open(path, 'rb') as file:
        return kvread.read(file)


def made(limit, folder, path):
    snapshot, tensors = read(path), llama.load_tensors(folder)
    model, good = snapshot.model, True
    H, G, E = (model[name] for name in ('query_heads', 'kv_heads', 'head_width'))
    for l, layer in enumerate(snapshot.layers):
        wo = tensors[f'model.layers.{l}.self_attn.o_proj.weight'].reshape(-1, H, E)
        for g in range(G):
            values = snapshot.array(l, 'values', g).astype(np.float64)
            for r in range(H // G):
                want = np.abs(values @ wo[:, g * (H // G) + r].T).sum(axis=1)
                got = np.array(layer.value_norms.values[g][r])
                error = np.abs(got - want).max(initial=0) / max(want.max(initial=0), 1e-30)
                if not error <= float(limit):
                    print(f'layer {l} KV head {g} query head {r}: error {error:.3g}')
                    good = False
    return good


def chosen(first, epsilon, scored, kept):
    scored, kept, good = read(scored), read(kept), True
    for l, layer in enumerate(scored.layers):
        for g, positions in enumerate(layer.positions):
            score = np.array(layer.scores.values[g], dtype=np.float64)
            norm = np.mean([list(one) for one in layer.value_norms.values[g]], axis=0)
            n = len(kept.layers[l].positions[g])
            best = np.argsort(-score, kind='stable')[:max(1, int(n * float(first)))]
            rank = np.where(np.isinf(score), np.inf, (score + float(epsilon)) * norm)
            rank[best] = np.inf
            want = sorted(positions[i] for i in np.argsort(-rank, kind='stable')[:n])
            if want != list(kept.layers[l].positions[g]):
                print(f'layer {l} KV head {g}: {want} and {list(kept.layers[l].positions[g])}')
                good = False
    return good


if __name__ == '__main__':
    sys.exit(not {'made': made, 'chosen': chosen}[sys.argv[1]](*sys.argv[2:]))
