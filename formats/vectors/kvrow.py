"""kvrow - quantised rows, from ../kv-snapshot.md (4.20) alone, without NumPy.

A sum, product or quotient of two f32 numbers that is computed in f64 and then rounded to f32 is
what f32 arithmetic gives. It shares no code with the reader.
"""

import struct

from kvwrite import single

HADAMARD = '-hadamard'
BLOCK = {'q8_0': 34, 'q4_0': 18, 'q4_1': 20, 'q5_0': 22}        # bytes of 32 numbers
PLAIN = (*BLOCK, 'int8', 'fp8')
TYPES = (*PLAIN, *(name + HADAMARD for name in PLAIN))


def row_size(kind, E):
    block = BLOCK.get(kind.replace(HADAMARD, ''))
    return E // 32 * block if block else 4 + E


def fp8(code):
    """The value of a code of E4M3 that is no NaN."""
    exponent, fraction = code >> 3 & 15, code & 7
    value = (8 + fraction) * 2.0 ** (exponent - 10) if exponent else fraction * 2.0 ** -9
    return -value if code & 128 else value


def transform(x):
    """The Walsh-Hadamard transform over sqrt(E)."""
    y, h = list(x), 1
    while h < len(y):
        for i in range(len(y)):
            if not i & h:
                y[i], y[i + h] = single(y[i] + y[i + h]), single(y[i] - y[i + h])
        h *= 2
    factor = single(len(y) ** -.5)
    return [single(v * factor) for v in y]


def inverse(d):
    value = single(1 / d) if d else 0.0
    return value if abs(value) != float('inf') else 0.0


def nibbles(codes):
    return bytes(codes[j] | codes[j + 16] << 4 for j in range(16))


def offset_block(x, half):
    """d, and the codes of q4_0 (half 8) or q5_0 (16)."""
    m = max(x, key=abs)
    d = single(m / -half) if m else -0.0
    by = inverse(d)
    return d, [min(2 * half - 1, int(single(single(v * by) + half + .5))) for v in x]


def away(v):
    """The nearest integer, ties away from 0."""
    return int(v + .5) if v >= 0 else -int(.5 - v)


def block(x, kind):
    """32 numbers in a type of ggml."""
    if kind == 'q8_0':
        d = single(max(map(abs, x)) / 127)
        return struct.pack('<e32b', d, *[away(single(v * inverse(d))) for v in x])
    if kind == 'q4_0':
        d, codes = offset_block(x, 8)
        return struct.pack('<e', d) + nibbles(codes)
    if kind == 'q5_0':
        d, codes = offset_block(x, 16)
        fifth = sum((code >> 4) << i for i, code in enumerate(codes))
        return struct.pack('<eI', d, fifth) + nibbles([code & 15 for code in codes])
    m = min(x)
    d = single(single(max(x) - m) / 15)
    codes = [min(15, int(single(single(single(v - m) * inverse(d)) + .5))) for v in x]
    return struct.pack('<ee', d, m) + nibbles(codes)


def nearest_fp8(v):
    size = abs(v)
    code = min(range(127), key=lambda c: (abs(fp8(c) - size), c % 2))
    return code | 128 * (struct.pack('<f', v)[3] >> 7)


def row(x, kind):
    """The numbers of a row, each an f32, as bytes of a quantised type."""
    if kind.endswith(HADAMARD):
        x, kind = transform(x), kind.replace(HADAMARD, '')
    if kind in BLOCK:
        return b''.join(block(x[i:i + 32], kind) for i in range(0, len(x), 32))
    s = single(max(map(abs, x)) / (127 if kind == 'int8' else 448))
    over = [single(v / s) if s else 0.0 for v in x]
    if kind == 'int8':
        codes = [round(max(-127.0, min(127.0, v))) & 255 for v in over]
    else:
        codes = list(map(nearest_fp8, over))
    return struct.pack('<f', s) + bytes(codes)


def block_numbers(data, kind):
    (d,) = struct.unpack_from('<e', data)
    if kind == 'q8_0':
        return [single(c * d) for c in struct.unpack_from('<32b', data, 2)]
    codes = [b & 15 for b in data[-16:]] + [b >> 4 for b in data[-16:]]
    if kind == 'q4_0':
        return [single((c - 8) * d) for c in codes]
    if kind == 'q5_0':
        (fifth,) = struct.unpack_from('<I', data, 2)
        return [single((c + 16 * (fifth >> i & 1) - 16) * d) for i, c in enumerate(codes)]
    (m,) = struct.unpack_from('<e', data, 2)
    return [single(single(c * d) + m) for c in codes]


def numbers(data, kind):
    """The numbers of one row."""
    if kind.endswith(HADAMARD):
        return transform(numbers(data, kind.replace(HADAMARD, '')))
    if kind in BLOCK:
        size = BLOCK[kind]
        return [v for i in range(0, len(data), size)
                for v in block_numbers(data[i:i + size], kind)]
    (s,) = struct.unpack_from('<f', data)
    codes = struct.unpack(f'<{len(data) - 4}b', data[4:]) if kind == 'int8' else map(fp8, data[4:])
    return [single(c * s) for c in codes]
