"""kvkivi - rows of kivi2 and kivi4, from ../kv-snapshot.md (4.21) alone, without NumPy.

A sum, product or quotient of two f16 numbers that is computed in f64 and then rounded to f16 is
what f16 arithmetic gives. It shares no code with the reader.
"""

import struct

from kvwrite import pack, single

BITS = {'kivi2': 2, 'kivi4': 4}
GROUP = 32
ITEM_SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}


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


def coded(name, rows, R):
    """How many rows of a KV head are blocks; name: 'keys' or 'values'."""
    return rows // R * R if name == 'keys' else max(0, rows - R)


def keys_of(rows, kind):
    """Groups of 32 rows as blocks"""
    return b''.join(block(channel, kind) for i in range(0, len(rows), GROUP)
                    for channel in zip(*rows[i:i + GROUP]))


def values_of(rows, kind):
    return b''.join(block(one[j:j + GROUP], kind) for one in rows
                    for j in range(0, len(one), GROUP))


def head_bytes(rows, kind, name, dtype, R):
    """The rows of a KV head, lists of numbers; dtype can hold those that are no blocks."""
    n = coded(name, len(rows), R)
    blocks = (keys_of if name == 'keys' else values_of)(rows[:n], kind)
    return blocks + b''.join(pack(one, dtype) for one in rows[n:])


def elements(data, dtype):
    if dtype == 'bf16':
        data = b''.join(b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // (2 if dtype == 'f16' else 4)}"
                         f"{'e' if dtype == 'f16' else 'f'}", data)


def head_numbers(data, rows, kind, name, dtype, E, R):
    """The numbers of the rows of a KV head, one after another."""
    size, n = block_size(kind), coded(name, rows, R)
    end = n * E // GROUP * size
    assert len(data) == end + (rows - n) * E * ITEM_SIZE[dtype]
    every = [block_numbers(data[i:i + size], kind) for i in range(0, end, size)]
    if name == 'keys':
        groups = [zip(*every[i:i + E]) for i in range(0, len(every), E)]
        every = [row for group in groups for row in group]
    return [v for part in every for v in part] + list(elements(data[end:], dtype))
