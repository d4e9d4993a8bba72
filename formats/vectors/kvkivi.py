"""kvkivi - blocks of kivi2 and kivi4, from ../kv-snapshot.md (4.21) alone, without NumPy.

A sum, product or quotient of two f16 numbers that is computed in f64 and then rounded to f16 is
what f16 arithmetic gives. It shares no code with the reader.
"""

import struct

from kvwrite import single

BITS = {'kivi2': 2, 'kivi4': 4}
GROUP = 32


def f16(v):
    return struct.unpack('<e', struct.pack('<e', v))[0]


def block_size(kind):
    return 4 + 4 * BITS[kind]


def block(x, kind):
    """32 numbers"""
    bits, x = BITS[kind], [f16(v) for v in x]
    most, least = (1 << bits) - 1, min(x)
    scale = f16(f16(max(x) - least) / most)
    codes = [min(most, round(f16(f16(v - least) / scale))) if scale else 0 for v in x]
    word = sum(code << bits * i for i, code in enumerate(codes))
    return struct.pack('<ee', scale, least) + word.to_bytes(4 * bits, 'little')


def block_numbers(data, kind):
    scale, least = struct.unpack_from('<ee', data)
    bits, word = BITS[kind], int.from_bytes(data[4:], 'little')
    return [single(single((word >> bits * i & (1 << bits) - 1) * scale) + least)
            for i in range(GROUP)]


def keys_of(rows, kind):
    """Groups of 32 rows as blocks"""
    return b''.join(block(channel, kind) for i in range(0, len(rows), GROUP)
                    for channel in zip(*rows[i:i + GROUP]))


def values_of(rows, kind):
    return b''.join(block(one[j:j + GROUP], kind) for one in rows
                    for j in range(0, len(one), GROUP))


def numbers(data, kind, name, E):
    """The numbers of blocks, row by row; name: 'keys' or 'values'."""
    size = block_size(kind)
    every = [block_numbers(data[i:i + size], kind) for i in range(0, len(data), size)]
    if name == 'keys':
        groups = [zip(*every[i:i + E]) for i in range(0, len(every), E)]
        every = [row for group in groups for row in group]
    return [v for part in every for v in part]
