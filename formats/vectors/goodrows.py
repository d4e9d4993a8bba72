"""goodrows - snapshots with quantised rows (4.20) that must be accepted."""

import struct

from good import TOOLS, add_indexes, head, numbers, place, sections
from kvrow import HADAMARD, PLAIN, TYPES, row, row_size
from kvrow import numbers as row_numbers
from kvwrite import stream, single

F16 = (0x3c00, 0xb266, 0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff)   # both zeros, the extremes


def typed(keys, values, dtype='bf16', **options):
    """A HEAD in which the rows of each layer have these types."""
    return head(len(keys), dtype=dtype, row_types={'keys': keys, 'values': values}, **options)


def uneven(count, E, seed):
    """Rows of numbers that are no codes: some larger, one of zeros, one with an outlier."""
    flat = [single(v * 0.37 * (1 + i % 5)) for i, v in enumerate(numbers(count * E, seed))]
    rows = [flat[i:i + E] for i in range(0, count * E, E)]
    for i, one in enumerate(rows):
        if i % 4 == 2:
            rows[i] = [0.0] * E
        elif i % 4 == 3:
            one[seed % E] = 1000.0
    return rows


def quantise(out, h, codec=0, make=uneven):
    """Puts rows of the types that h names in the place of those that sections() has made, and
    returns out."""
    E, dtype = h['model']['head_width'], h['dtype']
    for n in range(h['model']['layers']):
        for i, (name, kind) in enumerate((('keys', 'KEYS'), ('values', 'VALS'))):
            section, to = out[place(out, kind, n)], h['row_types'][name][n]
            if to != dtype:
                count = len(section.content) // E // {'bf16': 2, 'f16': 2, 'f32': 4}[dtype]
                section.element = 1
                section.set(b''.join(row(x, to) for x in make(count, E, 2 * n + i)), codec)
    return out


def each_type():
    """Keys of each type, values of the next one."""
    for kind, other in zip(TYPES, (*TYPES[1:], TYPES[0])):
        h = typed([kind], [other], query_heads=4, kv_heads=2, head_width=64, next_position=9)
        yield f'rows-{kind}', stream(quantise(
            sections(h, [[[0, 2, 5, 6, 8], [1, 2, 3]]], [1, 2, 3]), h))


def mixed(codec=0):
    """Layers of which none, both, the keys or the values are quantised; ragged, an empty head."""
    h = typed(['f16', 'q8_0', 'int8-hadamard', 'f16', 'q5_0-hadamard'],
              ['f16', 'f16', 'q4_1', 'fp8', 'q5_0-hadamard'], 'f16', query_heads=6, kv_heads=3,
              head_width=32, next_position=9)
    lists = [[list(range(n, 7)), [] if n % 2 else [0, 3, 6], [1, 2 + n]] for n in range(5)]
    out = sections(h, lists, [3, 1, 4, 1, 5], window=[5, 8], weighed=True, paying='max',
                   scored='snapkv kernel=7', logits=True, tools=TOOLS, codec=codec)
    return quantise(out, h, min(codec, 1))


def narrow():
    """Types that allow any width, and the least for a transform."""
    for E, keys, values in (7, 'int8', 'fp8'), (1, 'fp8-hadamard', 'int8-hadamard'), \
            (2, 'int8-hadamard', 'fp8-hadamard'), (1, 'int8', 'fp8'):
        h = typed([keys], [values], 'f32', head_width=E, next_position=9)
        yield f'rows-width-{E}-{keys}', stream(quantise(
            sections(h, [[[0, 2, 3, 7]]], [1, 2]), h))


def indexed(dtype, codec=0):
    """All indexes, made from the numbers of quantised keys, which dtype can hold: they are codes
    times a power of 2. The second layer is not quantised."""
    h = typed(['q8_0', dtype], [dtype, 'q4_0'], dtype, query_heads=2, kv_heads=2, head_width=32,
              next_position=50)

    def exact(count, E, seed):
        """The greatest of each block is 127/16, so that d is 1/16."""
        flat = [127 / 16 if i % 32 == seed % 32 else v for i, v in
                enumerate(numbers(count * E, seed))]
        return [flat[i:i + E] for i in range(0, count * E, E)]
    rows = (37, 20)
    out = quantise(sections(h, [[list(range(37))], [list(range(20))]], [1, 2, 3], scored='x',
                            codec=codec), h, min(codec, 1), exact)
    for n in (0, 1):
        content = out[place(out, 'KEYS', n)].content
        values = numbers(2 * rows[1] * 32, 2)
        if n == 0:
            values = [v for i in range(0, len(content), 34)
                      for v in row_numbers(content[i:i + 34], 'q8_0')]
        add_indexes(out, h, n, [rows[n]] * 2, values, 16, 4, 3, (4, 16, 5, [[1, 3], [0, 2]]), codec)
    return out


def indexed_hadamard():
    """The same of keys that stand in the file as their transform; dtype f32 holds any number."""
    h = typed(['q4_1-hadamard'], ['f32'], 'f32', query_heads=2, kv_heads=2, head_width=32,
              next_position=50)
    out = quantise(sections(h, [[list(range(19)), list(range(36))]], [1]), h)
    content = out[place(out, 'KEYS', 0)].content
    values = [v for i in range(0, len(content), 20)
              for v in row_numbers(content[i:i + 20], 'q4_1-hadamard')]
    return add_indexes(out, h, 0, [19, 36], values, 16, 3, 2)


def blocks():
    """KEYS and VALS of two blocks; the first block ends inside a row."""
    h = typed(['fp8'], ['q8_0-hadamard'], 'f16', query_heads=2, kv_heads=2, head_width=1024,
              next_position=600)
    out = sections(h, [[list(range(520)), list(range(0, 600, 1))]], [1, 2, 3], codec=2)
    for n, (kind, name) in enumerate((('KEYS', 'fp8'), ('VALS', 'q8_0-hadamard'))):
        section = out[place(out, kind, 0)]
        rows = [row(x, name) for x in uneven(7, 1024, n)]
        section.element = 1
        section.set(b''.join(rows[i % 7] for i in range(1120)), 1)
    return out


def codes(kind, E, count):
    """Rows of all codes that the type allows, with scales of both signs, zero, and extremes."""
    out, code = b'', 0
    for i in range(count):
        if kind in ('int8', 'fp8') and i == count - 1:      # the greatest scale, and once 1
            out += struct.pack('<I', 0x7f7fffff) + bytes([1 if kind == 'int8' else 0x38])
            out += bytes(E - 1)
        elif kind in ('int8', 'fp8'):
            out += struct.pack('<I', (0x3f800000, 0xbe99999a, 0, 0x80000000, 1, 0x807fffff,
                                      0x70000000, 0xf0000000)[i % 8])
            for _ in range(E):
                code = (code + 1) % 256
                while kind == 'fp8' and code % 128 == 127:
                    code = (code + 1) % 256
                out += bytes([code])
        else:
            out += b''.join(coded(kind, i, b) for b in range(E // 32))
    return out


def coded(kind, i, b):
    """Block b of row i of a type of ggml."""
    front = struct.pack('<H', F16[(i + b) % 8])
    if kind == 'q4_1':
        front += struct.pack('<H', F16[(i * 3 + b) % 8])
    return front + bytes((22 * i + 11 * b + 37 * j) % 256
                         for j in range(row_size(kind, 32) - len(front)))


def extremes(transformed):
    """Rows that no writer makes, but a reader must read. No number of them is infinite."""
    kinds = [name + HADAMARD if transformed else name for name in PLAIN]
    h = typed(kinds, kinds[::-1], 'f16', head_width=64, next_position=99)
    out = sections(h, [[list(range(24))]] * 6, [1])
    for n, kind in enumerate(kinds):
        for section in (out[place(out, 'KEYS', n)], out[place(out, 'VALS', 5 - n)]):
            section.element = 1
            section.set(codes(kind.replace(HADAMARD, ''), 64, 24))
    return out


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield from each_type()
    yield 'rows-mixed', stream(mixed())
    yield 'rows-mixed-lz4', stream(mixed(1))
    yield 'rows-mixed-planes', stream(mixed(2))      # where the element size allows it
    yield from narrow()
    h = typed(['q4_0-hadamard'], ['int8-hadamard'], head_width=1024, next_position=9)
    yield 'rows-width-1024', stream(quantise(sections(h, [[[4, 8]]], [1]), h))
    h = typed(['q8_0', 'fp8'], ['bf16', 'q4_1'], head_width=32, kv_heads=2, query_heads=2)
    yield 'rows-none', stream(quantise(sections(h, [[[]], [[], [0]]], [1]), h))
    for dtype in ('bf16', 'f16', 'f32'):
        yield f'rows-indexes-{dtype}', stream(indexed(dtype))
    yield 'rows-indexes-lz4', stream(indexed('bf16', 1))
    yield 'rows-indexes-hadamard', stream(indexed_hadamard())
    yield 'rows-blocks', stream(blocks())
    yield 'rows-extremes', stream(extremes(False))
    yield 'rows-extremes-hadamard', stream(extremes(True))
