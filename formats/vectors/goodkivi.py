"""goodkivi - snapshots with rows of kivi2 and kivi4 (4.21) that must be accepted."""

import struct

from good import ITEM_SIZE, TOOLS, place
from goodresidual import first, with_full
from goodrows import F16, uneven
from kvkivi import GROUP, block_size, keys_of, values_of
from kvwrite import stream


def ragged(codec=0):
    """Fewer rows than R, R, one more and less, 2 R and 2 R + 5, none."""
    return with_full(['kivi2'] * 2, ['kivi4'] * 2, 32, 'f16',
                     [first(20, 32, 69, 0), first(33, 31, 64, 1)], 4, codec=codec)


def mixed(codec=0):
    """Layers in which KIVI's types stand beside others; whatever belongs to rows."""
    return with_full(['kivi4', 'bf16', 'kivi2', 'bf16', 'fp8'],
                     ['q8_0', 'kivi2', 'bf16', 'bf16', 'q4_1-hadamard'], 32, 'bf16',
                     [first(38, 3), first(66), first(32, 33), first(0, 2), first(1)], 2, 32, codec,
                     window=[5, 2099], weighed=True, paying='max', scored='snapkv kernel=7',
                     logits=True, tools=TOOLS)


def blocks():
    """KEYS and VALS of two blocks (3.3); the first ends inside a block of a group, and of a row."""
    out = with_full(['kivi4'], ['kivi2'], 32, 'f16', [[[]]], 2, 1024, 1)
    n = 2048 + 40
    pack_positions = struct.pack(f'<2I{n}I', 1, n, *range(n))
    out[place(out, 'POSN', 0)].set(pack_positions, 1)
    some = uneven(GROUP, 1024, 1)
    group, rows = keys_of(some, 'kivi4'), [values_of([one], 'kivi2') for one in some[:7]]
    full = bytes(range(256)) * 8
    keys = group * 65 + full * 8
    values = b''.join(rows[i % 7] for i in range(n - 32)) + full * 32
    out[place(out, 'KEYS', 0)].set(keys * 2, 1)
    out[place(out, 'VALS', 0)].set(values * 2, 1)
    return out


def extremes():
    """Blocks that no writer makes, but a reader must read: scales that are 0, -0, negative,
    subnormal and the greatest; each byte of codes."""
    out = with_full(['kivi2', 'kivi4'], ['kivi4', 'kivi2'], 32, 'f16', [first(101), first(101)])
    for n in (0, 1):
        for kind, section in (('kivi4' if n else 'kivi2', out[place(out, 'KEYS', n)]),
                              ('kivi2' if n else 'kivi4', out[place(out, 'VALS', n)])):
            size, content = block_size(kind), bytearray(section.content)
            end = len(content) - (5 if section.type == 'KEYS' else 32) * 64 * ITEM_SIZE['f16']
            for i, at in enumerate(range(0, end, size)):
                scale, least = F16[i % 8], F16[(i // 8 + i) % 8]
                if scale & 0x7fff == 0x7bff and least & 0x7fff == 0x7bff:
                    least = 0x3c00          # so that its numbers can be compared with others
                struct.pack_into('<HH', content, at, scale, least)
                content[at + 4:at + size] = bytes((i * 37 + j * 11) % 256
                                                  for j in range(size - 4))
            section.set(bytes(content))
    return out


def full_rows_not_finite():
    """What stands where a scale stands in a block, in rows that are elements of dtype."""
    out = with_full(['kivi2'], ['kivi2'], 32, 'f16', [first(3, 33)], 2, 32)
    for kind in ('KEYS', 'VALS'):
        section = out[place(out, kind, 0)]
        section.set(b'\0\x7c\1\x7c' * 48 + section.content[192:-8] + b'\1\xfe\0\xfc' * 2)
    return out


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'kivi-ragged', stream(ragged())
    yield 'kivi-ragged-lz4', stream(ragged(1))
    yield 'kivi-mixed', stream(mixed())
    yield 'kivi-mixed-lz4', stream(mixed(1))
    yield 'kivi-keys-only', stream(with_full(['kivi2'], ['q8_0'], 32, 'f16', [first(69, 32)], 2))
    yield 'kivi-values-only', stream(with_full(['f32'], ['kivi4'], 32, 'f32', [first(35)], 1, 32))
    yield 'kivi-f32', stream(with_full(['kivi4'], ['kivi2'], 32, 'f32', [first(34, 97)], 2, 32))
    yield 'kivi-residual-4096', stream(with_full(['kivi2'], ['kivi4'], 4096, 'bf16', [first(33)]))
    yield 'kivi-none', stream(with_full(['kivi2'], ['kivi2'], 128, 'bf16', [[[]]], 2))
    yield 'kivi-width-1024', stream(with_full(['kivi4'], ['kivi2'], 32, 'bf16', [first(33)], 1,
                                              1024, 1))
    yield 'kivi-blocks', stream(blocks())
    yield 'kivi-extremes', stream(extremes())
    yield 'kivi-full-rows-not-finite', stream(full_rows_not_finite())
