#!/usr/bin/env python3
"""ragged - a snapshot whose KV heads hold different numbers of rows: ragged.py BEFORE.kv AFTER.kv

In layer l every third row of the KV heads g with (l + g) odd is dropped, with its attention
received. Only what a model goes on from is kept: tokens, rows, attention received.
"""

import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', folder)
                for folder in ('format', '../formats/vectors')]
sys.dont_write_bytecode = True

import kvread
import kvwrite
from kvwrite import Section


def thinned(rows, drop):
    return [row for i, row in enumerate(rows) if not drop or i % 3]


def layer_sections(snapshot, l):
    layer, G = snapshot.layers[l], snapshot.model['kv_heads']
    item = kvread.ITEM_SIZE[snapshot.head['dtype']]
    row = snapshot.model['head_width'] * item
    odd = [(l + g) % 2 for g in range(G)]
    yield Section('POSN', kvwrite.positions(
        [thinned(p, odd[g]) for g, p in enumerate(layer.positions)]), l)
    yield Section('mASS', kvwrite.mass(
        [[thinned(one, odd[g]) for one in layer.mass[g]] for g in range(G)]), l, 4)
    for kind in ('keys', 'values'):
        heads = [snapshot.head_rows(l, kind, g) for g in range(G)]
        rows = [[data[i:i + row] for i in range(0, len(data), row)] for data in heads]
        yield Section('KEYS' if kind == 'keys' else 'VALS', b''.join(
            b''.join(thinned(rows[g], odd[g])) for g in range(G)), l, item)


def main(before, after):
    with open(before, 'rb') as file:
        snapshot = kvread.read(file)
    out = [Section('HEAD', kvwrite.canonical(snapshot.head).encode()),
           Section('TOKS', kvwrite.u32s(snapshot.tokens))]
    for l in range(len(snapshot.layers)):
        out += layer_sections(snapshot, l)
    with open(after, 'wb') as file:
        file.write(kvwrite.stream(out))


if __name__ == '__main__':
    main(*sys.argv[1:])
