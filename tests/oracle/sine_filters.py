#!/usr/bin/env python3
"""sine_filters - filters and query statistics for tests.

	sine_filters.py LAYERS KV_HEADS HEAD_WIDTH FILE
	sine_filters.py SNAPSHOT.kv FILE           of its shape
	sine_filters.py --query-stats LAYERS QUERY_HEADS HEAD_WIDTH FILE
	sine_filters.py --query-stats SNAPSHOT.kv FILE

The filter of KV head g in layer l is sin(1 + 37 l + 11 g + e). The mean of the queries of query
head h is the same with h in place of g; their covariance is u u' + I / 2, where u is
sin(2 + 5 l + 3 h + e); the mean modulus of pair f is 2 + sin(3 + 7 l + 5 h + f).
"""

import json
import math
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'format'))
sys.dont_write_bytecode = True


def number(l, g, e):
    return math.sin(1 + 37 * l + 11 * g + e)


def covariance(l, h, i, j):
    u, v = math.sin(2 + 5 * l + 3 * h + i), math.sin(2 + 5 * l + 3 * h + j)
    return u * v + (i == j) / 2


def modulus(l, h, f):
    return 2 + math.sin(3 + 7 * l + 5 * h + f)


def write(path, tensors):
    """tensors: name, shape and numbers of each."""
    head, at, data = {}, 0, b''
    for name, shape, numbers in tensors:
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + 4 * len(numbers)]}
        data += struct.pack(f'<{len(numbers)}f', *numbers)
        at = len(data)
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text + data)


def tensors(L, H, E, stats):
    each = [(l, h) for l in range(L) for h in range(H)]
    directions = [number(l, h, e) for l, h in each for e in range(E)]
    if not stats:
        return [('q_filters', [L, H, E], directions)]
    return [('query_mean', [L, H, E], directions),
            ('query_modulus', [L, H, E // 2], [modulus(l, h, f) for l, h in each
                                               for f in range(E // 2)]),
            ('query_cov', [L, H, E, E], [covariance(l, h, i, j) for l, h in each
                                         for i in range(E) for j in range(E)])]


def main(words):
    stats = words[0] == '--query-stats'
    words = words[stats:]
    if len(words) == 2:
        import kvread
        with open(words[0], 'rb') as file:
            model = kvread.read(file).model
        words = [model['layers'], model['query_heads' if stats else 'kv_heads'],
                 model['head_width'], words[1]]
    write(words[3], tensors(*map(int, words[:3]), stats))


if __name__ == '__main__':
    main(sys.argv[1:])
