"""goodresidual - snapshots with full rows behind quantised ones (4.20) that must be accepted, and
what makes them, for KIVI's types too."""

import struct

from good import TOOLS, add_indexes, numbers, place, sections
from goodrows import typed, uneven
from kvhead import TYPES, coded, head_bytes, head_numbers
from kvrow import TYPES as ROW_TYPES
from kvrow import row
from kvwrite import stream


def mixed_rows(n, full, E, seed, make):
    """n rows of a KV head: those that are quantised are no codes, the others fit every dtype."""
    flat = numbers(full * E, seed)
    return make(n - full, E, seed) + [flat[i:i + E] for i in range(0, len(flat), E)]


def quantise(out, h, lists, codec=0, make=uneven):
    """Puts rows of the types that h names in the place of those that sections() has made, and
    returns out. lists: positions, as sections() has them."""
    model, dtype, types = h['model'], h['dtype'], h['row_types']
    E, G, R = model['head_width'], model['kv_heads'], types['residual']
    for n, layer in enumerate(lists):
        counts = [len(one) for one in layer] * (G // len(layer))
        for i, (name, section) in enumerate((('keys', 'KEYS'), ('values', 'VALS'))):
            section, kind, content = out[place(out, section, n)], types[name][n], b''
            if kind in TYPES:
                for g, rows in enumerate(counts):
                    full = rows - coded(kind, name, rows, R)
                    content += head_bytes(mixed_rows(rows, full, E, 2 * n + i + g, make), kind,
                                          name, dtype, R)
                section.element = 1
                section.set(content, min(codec, 1))
    return out


def with_full(keys, values, residual, dtype, lists, heads=1, E=64, codec=0, make=uneven,
              next_position=2100, **options):
    """The sections of a snapshot; a layer for each of the types."""
    h = typed(keys, values, dtype, query_heads=heads, kv_heads=heads, head_width=E,
              next_position=next_position)
    h['row_types']['residual'] = residual
    return quantise(sections(h, lists, [1, 2, 3], codec=codec, **options), h, lists, codec, make)


def first(*counts):
    """A list of positions for each KV head"""
    return [list(range(0, 2 * n, 2)) for n in counts]


def each_type(codec=0):
    """Keys of each type, values of the next one: fewer rows than R, R, one more, none, 2 R + 2."""
    return with_full(list(ROW_TYPES), [*ROW_TYPES[1:], ROW_TYPES[0]], 5, 'f16',
                     [first(4, 5, 6, 0, 12)] * len(ROW_TYPES), 5, 32, codec)


def odd():
    """The least residual, and a width that only int8 and fp8 allow."""
    return with_full(['int8', 'fp8'], ['fp8', 'int8'], 1, 'bf16', [first(0, 1, 2, 5)] * 2, 4, 7)


def thirty_three():
    """A residual that KIVI's types do not allow."""
    return with_full(['q4_0-hadamard', 'q5_0'], ['q8_0', 'int8-hadamard'], 33, 'f32',
                     [first(33, 34, 32), first(0, 70, 3)], 3)


def most():
    """The greatest residual: a KV head that is full, and one with two rows more."""
    return with_full(['int8'], ['fp8'], 4096, 'f16', [[list(range(33)), list(range(4098))]], 2, 7,
                     1, next_position=4100)


def beside(codec=0):
    """Layers of which none, both, the keys or the values are quantised; what belongs to rows."""
    return with_full(['bf16', 'q8_0', 'fp8-hadamard', 'bf16'],
                     ['bf16', 'q4_1', 'bf16', 'q5_0-hadamard'], 3, 'bf16',
                     [first(7, 2), first(3, 4), first(9), first(0, 8)], 2, 32, codec,
                     window=[5, 2099], weighed=True, paying='max', scored='snapkv kernel=7',
                     logits=True, tools=TOOLS)


def kivi():
    """KIVI's types in one section of a layer: the other has as many full rows."""
    return with_full(['kivi4', 'int8-hadamard', 'q4_0', 'f16'],
                     ['q5_0', 'kivi2', 'q4_1-hadamard', 'fp8'], 32, 'f16',
                     [first(31, 33, 70), first(32, 0, 65), first(64, 1, 34), first(40)], 3, 32)


def exact(count, E, seed):
    """Rows whose numbers in q8_0 are multiples of 1/16: the greatest of each block is 127/16."""
    flat = [127 / 16 if i % 32 == seed % 32 else v for i, v in enumerate(numbers(count * E, seed))]
    return [flat[i:i + E] for i in range(0, count * E, E)]


def indexed():
    """All indexes, made from the numbers of keys of which the last ones are full."""
    out = with_full(['q8_0'], ['q8_0'], 10, 'f16', [[list(range(37))]], 2, 32, make=exact,
                    next_position=50)
    h = typed(['q8_0'], ['q8_0'], 'f16', query_heads=2, kv_heads=2, head_width=32)
    content = out[place(out, 'KEYS', 0)].content
    half = len(content) // 2
    values = [v for data in (content[:half], content[half:])
              for v in head_numbers(data, 37, 'q8_0', 'keys', 'f16', 32, 10)]
    return add_indexes(out, h, 0, [37] * 2, values, 16, 4, 3, (4, 16, 5, [[1, 3], [0, 2]]))


def blocks():
    """KEYS and VALS of four blocks (3.3), which end inside a full row and inside a quantised one,
    of the second KV head too."""
    out, n, R = with_full(['q8_0'], ['fp8-hadamard'], 600, 'f16', [[[]]], 2, 1024, 1), 1000, 600
    out[place(out, 'POSN', 0)].set(struct.pack(f'<2I{n}I', 1, n, *range(n)), 1)
    full = bytes(range(256)) * 8
    for seed, (kind, name) in enumerate((('KEYS', 'q8_0'), ('VALS', 'fp8-hadamard'))):
        rows = [row(x, name) for x in uneven(7, 1024, seed)]
        content = b''.join(rows[i % 7] for i in range(n - R)) + full * R
        assert len(content) > 1 << 20
        out[place(out, kind, 0)].set(content * 2, 1)
    return out


def not_finite():
    """What stands where a scale, or a code of fp8, may not be infinite or NaN: in full rows. Two
    of them, the whole KV head, and three behind two that are quantised."""
    out = with_full(['q8_0'], ['fp8'], 3, 'f16', [first(2, 5)], 2, 32)
    for kind, row_bytes, before, after in (('KEYS', 34, b'\0\x7c', b'\1\xfe\0\xfc'),
                                           ('VALS', 36, b'\0\0\x80\x7f', b'\1\0\x80\xff')):
        section = out[place(out, kind, 0)]
        codes = section.content[128:128 + 2 * row_bytes]
        section.set(before * (128 // len(before)) + codes + after * 48)
    return out


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'residual-types', stream(each_type())
    yield 'residual-types-lz4', stream(each_type(1))
    yield 'residual-1', stream(odd())
    yield 'residual-33', stream(thirty_three())
    yield 'residual-4096', stream(most())
    yield 'residual-beside', stream(beside())
    yield 'residual-beside-lz4', stream(beside(1))
    yield 'residual-kivi', stream(kivi())
    yield 'residual-keys-only', stream(with_full(['q8_0'], ['f32'], 32, 'f32', [first(35)], 2, 32))
    yield 'residual-values-only', stream(with_full(['bf16'], ['q4_1'], 2, 'bf16', [first(3, 1)], 2,
                                                   32))
    yield 'residual-none', stream(with_full(['q8_0', 'fp8'], ['q4_0', 'bf16'], 5, 'bf16',
                                            [[[]], [[], [0]]], 2, 32))
    yield 'residual-width-1', stream(with_full(['fp8'], ['int8-hadamard'], 2, 'f32', [first(6)], 1,
                                               1))
    yield 'residual-indexes', stream(indexed())
    yield 'residual-blocks', stream(blocks())
    yield 'residual-full-rows-not-finite', stream(not_finite())
