#!/usr/bin/env python3
"""mkgate - a folder with a gate of KVzap or Fast KVzip, for tests.

	mkgate.py KIND MODEL FOLDER [HIDDEN]    KIND: linear, mlp or fastkvzip
	mkgate.py values MODEL FOLDER

Number i of a tensor is a sine, other ones for each tensor. HIDDEN: width of the hidden layer of
an mlp (24), or of queries and keys of fastkvzip (16), which has 16 sinks. values: a linear gate
whose score of KV head g is the first channel of its value.
"""

import json
import os
import sys
import zlib

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'oracle'))
sys.dont_write_bytecode = True

SINKS, HIDDEN = 16, {'linear': 0, 'mlp': 24, 'fastkvzip': 16}


def shapes(kind, L, D, H, G, hidden):
    """Names and shapes of the tensors, in the order of the layers"""
    layer = {
        'linear': {'weight': [G, D], 'bias': [G]},
        'mlp': {'0.weight': [hidden, D], '0.bias': [hidden],
                '2.weight': [G, hidden], '2.bias': [G]},
        'fastkvzip': {'q_proj.weight': [H * hidden, D], 'q_proj.bias': [H * hidden],
                      'k_proj.weight': [G * hidden, D], 'q_norm.weight': [hidden],
                      'k_norm.weight': [hidden], 'k_base': [G * SINKS, hidden], 'b': [H]},
    }[kind]
    return {f'layers.{l}.{name}': shape for l in range(L) for name, shape in layer.items()}


def tensor(name, shape):
    """f32; weights are small enough that scores differ from row to row, norms are around 1"""
    i = np.arange(np.prod(shape), dtype=np.float64)
    x = np.sin(1 + zlib.crc32(name.encode()) % 1000 + 1.7 * i + 0.3 * np.sin(i))
    if '_norm.' in name:
        return (1 + x / 4).astype('f4').reshape(shape)
    wide = len(shape) == 2 and 'base' not in name
    return (x / (np.sqrt(shape[-1]) if wide else 1)).astype('f4').reshape(shape)


def tensors(kind, config, hidden=0):
    H = config['num_attention_heads']
    return {name: tensor(name, shape) for name, shape in shapes(
        kind, config['num_hidden_layers'], config['hidden_size'], H,
        config.get('num_key_value_heads', H), hidden or HIDDEN[kind]).items()}


def values(model, config):
    import llama

    w, H = llama.load_tensors(model), config['num_attention_heads']
    G, made = config.get('num_key_value_heads', H), {}
    for l in range(config['num_hidden_layers']):
        at = f'model.layers.{l}.self_attn.'
        fused = at + 'v_proj.weight' not in w           # [queries, keys, values]
        v = w[at + ('qkv_proj' if fused else 'v_proj') + '.weight']
        v = v[len(v) - len(v) * G // (H + 2 * G) if fused else 0:]
        bias = w.get(at + 'v_proj.bias', np.zeros(len(v)))
        made[f'layers.{l}.weight'] = v[::len(v) // G].astype('f4')
        made[f'layers.{l}.bias'] = bias[::len(v) // G].astype('f4')
    return made


def main(kind, model, folder, hidden=0):
    import sine_filters

    with open(os.path.join(model, 'config.json'), encoding='utf-8') as file:
        config = json.load(file)
    made = values(model, config) if kind == 'values' else tensors(kind, config, int(hidden))
    os.makedirs(folder, exist_ok=True)
    sine_filters.write(os.path.join(folder, 'model.safetensors'),
                       [(name, list(x.shape), x.ravel()) for name, x in made.items()])


if __name__ == '__main__':
    main(*sys.argv[1:])
