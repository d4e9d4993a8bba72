#!/usr/bin/env python3
"""gate_scores.py - the scores of a gate, computed again in double precision.

    gate_scores.py LIMIT MODEL GATE SNAPSHOT.kv      gATE against the hidden states of the model
    gate_scores.py LIMIT values SNAPSHOT.kv          against the first channel of each value

GATE is a folder of tests/bin/mkgate.py. Exits with 1 where a score differs by more than LIMIT
times the greatest of its KV head."""

import os
import sys
from math import erf

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'format'))
sys.dont_write_bytecode = True

import kvread
import llama


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def fastkvzip(h, w, G):
    """[T][G]: the share of a token among learned sinks, the mean over the queries of a KV head"""
    T, m = len(h), len(w['q_norm.weight'])
    q = rms((h @ w['q_proj.weight'].T + w['q_proj.bias']).reshape(T, G, -1, m), w['q_norm.weight'])
    k = rms((h @ w['k_proj.weight'].T).reshape(T, G, 1, m), w['k_norm.weight'])
    own = np.exp((q * k).sum(-1) / np.sqrt(m) + w['b'].reshape(G, -1))
    sinks = np.exp(np.einsum('tgrm,gsm->tgrs', q, w['k_base'].reshape(G, -1, m)) / np.sqrt(m))
    return (own / (own + sinks.sum(-1))).mean(-1)


def scores(h, w, G):
    if 'weight' in w:
        return h @ w['weight'].T + w['bias']
    if '0.weight' in w:
        return gelu(h @ w['0.weight'].T + w['0.bias']) @ w['2.weight'].T + w['2.bias']
    return fastkvzip(h, w, G)


def hidden_states(folder, snapshot):
    """[T][D] of each layer, behind the input norm"""
    model = llama.Llama(folder)
    model.forward(list(snapshot.tokens))
    return [model.norm(x, f'model.layers.{l}.input_layernorm.weight')
            for l, x in enumerate(model.streams)]


def of_gate(folder, gate, snapshot):
    tensors, G = llama.load_tensors(gate), snapshot.model['kv_heads']
    for l, h in enumerate(hidden_states(folder, snapshot)):
        prefix = f'layers.{l}.'
        w = {name[len(prefix):]: x for name, x in tensors.items() if name.startswith(prefix)}
        yield [scores(h, w, G)[list(rows), g]
               for g, rows in enumerate(snapshot.layers[l].positions)]


def of_values(snapshot):
    for l in range(len(snapshot.layers)):
        yield [snapshot.array(l, 'values', g)[:, 0].astype(np.float64)
               for g in range(snapshot.model['kv_heads'])]


def main(limit, *words):
    with open(words[-1], 'rb') as file:
        snapshot = kvread.read(file)
    wanted = of_values(snapshot) if words[0] == 'values' else of_gate(*words[:2], snapshot)
    good = True
    for l, want in enumerate(wanted):
        for g, one in enumerate(want):
            got = np.array(snapshot.layers[l].gate_scores.values[g])
            error = np.abs(got - one).max(initial=0) / max(np.abs(one).max(initial=0), 1e-30)
            if not error <= float(limit):
                print(f'layer {l} KV head {g}: error {error:.3g}')
                good = False
    return good


if __name__ == '__main__':
    sys.exit(not main(*sys.argv[1:]))
