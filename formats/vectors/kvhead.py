"""kvhead - the rows of a KV head with full rows behind quantised ones, from ../kv-snapshot.md (4.20
and 4.21) alone, without NumPy.

kvrow.py and kvkivi.py have what is quantised. It shares no code with the reader.
"""

import struct

import kvkivi
import kvrow
from kvwrite import pack

ITEM_SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}
TYPES = (*kvrow.TYPES, *kvkivi.BITS)


def coded(kind, name, rows, R):
    """How many rows of a KV head are quantised; name: 'keys' or 'values'; R: None, where there is
    no residual."""
    if kind in kvkivi.BITS and name == 'keys':
        return rows // R * R
    return rows if R is None else max(0, rows - R)


def codes_of(rows, kind, name):
    if kind in kvkivi.BITS:
        return (kvkivi.keys_of if name == 'keys' else kvkivi.values_of)(rows, kind)
    return b''.join(kvrow.row(x, kind) for x in rows)


def row_size(kind, E):
    """The bytes of a quantised row; of KIVI's keys those of a group over its rows"""
    if kind in kvkivi.BITS:
        return E // kvkivi.GROUP * kvkivi.block_size(kind)
    return kvrow.row_size(kind, E)


def head_bytes(rows, kind, name, dtype, R):
    """The rows of a KV head, lists of numbers; dtype can hold those that are full."""
    n = coded(kind, name, len(rows), R)
    return codes_of(rows[:n], kind, name) + b''.join(pack(one, dtype) for one in rows[n:])


def elements(data, dtype):
    if dtype == 'bf16':
        data = b''.join(b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2))
    return struct.unpack(f"<{len(data) // (2 if dtype == 'f16' else 4)}"
                         f"{'e' if dtype == 'f16' else 'f'}", data)


def head_numbers(data, rows, kind, name, dtype, E, R):
    """The numbers of the rows of a KV head, one after another."""
    n = coded(kind, name, rows, R)
    end = n * row_size(kind, E)
    assert len(data) == end + (rows - n) * E * ITEM_SIZE[dtype]
    return [*code_numbers(data[:end], kind, name, E), *elements(data[end:], dtype)]


def code_numbers(data, kind, name, E):
    if kind in kvkivi.BITS:
        return kvkivi.numbers(data, kind, name, E)
    size = kvrow.row_size(kind, E)
    return [v for i in range(0, len(data), size) for v in kvrow.numbers(data[i:i + size], kind)]
