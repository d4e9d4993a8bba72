#!/usr/bin/env python3
"""sine_filters - filters for tests: that of KV head g in layer l is sin(1 + 37 l + 11 g + e).

	sine_filters.py LAYERS KV_HEADS HEAD_WIDTH FILE
	sine_filters.py SNAPSHOT.kv FILE           of its shape
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


def write(L, G, E, path):
    numbers = [number(l, g, e) for l in range(L) for g in range(G) for e in range(E)]
    head = json.dumps({'q_filters': {'dtype': 'F32', 'shape': [L, G, E],
                                     'data_offsets': [0, 4 * len(numbers)]}}).encode()
    head += b' ' * (-len(head) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(head)) + head +
                   struct.pack(f'<{len(numbers)}f', *numbers))


def main(words):
    if len(words) == 2:
        import kvread
        with open(words[0], 'rb') as file:
            model = kvread.read(file).model
        words = [model['layers'], model['kv_heads'], model['head_width'], words[1]]
    write(*map(int, words[:3]), words[3])


if __name__ == '__main__':
    main(sys.argv[1:])
