"""badindex - indexes that must be refused: in the wrong place, of other keys, of other rows, or
with a number that no reader may follow. The rest is in bad.py."""

import kvwrite
from bad import changed, flipped, moved, stream, swap, u16, u64, with_content, with_header
from good import add_indexes, head, numbers, place, sections
from kvwrite import NONE, u32s, xxh3


def indexed():
    """One layer, two KV heads of 19 rows, head width 2; all four indexes."""
    h = head(1, 2, 2, 2, dtype='f16', next_position=20)
    out = sections(h, [[list(range(19))]], [1])
    return add_indexes(out, h, 0, [19, 19], numbers(76, 0), 16, 4, 3, (4, 16, 3, [[1, 3], [0, 2]]))


def indexed_ragged():
    """The same without the last, and with 19 and 7 rows; sinks 1."""
    h = head(1, 2, 2, 2, dtype='f16', next_position=20)
    out = sections(h, [[list(range(19)), list(range(7))]], [1])
    return add_indexes(out, h, 0, [19, 7], numbers(52, 0), 16, 4, 1)


def with_words(kind, words, base=indexed):
    """Some u32 of an index replaced: {offset: value}."""
    return with_content(kind, 0, lambda old: kvwrite.patch(
        old, {at: u32s([value]) for at, value in words.items()}), base)


def with_halves(at, word):
    """A u16 of bITS replaced. Zeros of KV head 1 begin at byte 64 + 12, scales 4 later."""
    return with_content('bITS', 0, lambda old: kvwrite.patch(old, {at: u16(word)}), indexed)


def order():
    for kind in ('bITS', 'pAGE', 'cLUS', 'lOWR'):
        name, where = kind.lower(), f'{kind} layer 0'
        yield f'repeated-{name}', moved(lambda out: out.insert(
            place(out, kind, 0), out[place(out, kind, 0)]), indexed), 3, 'order'
        yield f'{name}-before-keys', moved(lambda out: out.insert(
            place(out, 'KEYS', 0), out.pop(place(out, kind, 0))), indexed), 3, 'order'
        yield f'{name}-after-values', moved(lambda out: out.append(
            out.pop(place(out, kind, 0))), indexed), 3, 'order'
        yield f'{name}-without-layer', changed(
            kind, 0, lambda s: setattr(s, 'layer', NONE), indexed), 3, 'order'
        yield f'{name}-of-other-layer', changed(
            kind, 0, lambda s: setattr(s, 'layer', 1), indexed), 3, 'order'
        yield f'{name}-element-size', with_header(
            kind, 0, {12: b'\1' if kind == 'bITS' else b'\4'}, indexed), 3, where
        yield f'{name}-empty', with_content(kind, 0, lambda old: b'', indexed), 3, where
        yield f'{name}-cut', with_content(kind, 0, lambda old: old[:63], indexed), 3, where
        yield f'{name}-front-only', with_content(kind, 0, lambda old: old[:64], indexed), 3, where
        yield f'{name}-short', with_content(kind, 0, lambda old: old[:-2], indexed), 3, where
        yield f'{name}-long', with_content(kind, 0, lambda old: old + b'\0\0', indexed), 3, where
        yield f'{name}-zero-4', with_words(kind, {4: 1}), 3, 'zero'
        yield f'{name}-zero-60', with_words(kind, {60: 1 << 31}), 3, 'zero'
        yield f'{name}-other-keys', with_words(kind, {8: 1}), 3, 'other keys'
        yield f'{name}-no-keys', with_content(kind, 0, lambda old: kvwrite.patch(
            old, {8: u64(xxh3(b''))}), indexed), 3, 'other keys'
    for a, b in (('bITS', 'pAGE'), ('pAGE', 'cLUS'), ('cLUS', 'lOWR')):
        yield f'swapped-{a.lower()}-{b.lower()}', swap(a, 0, b, 0, indexed), 3, 'order'
    yield 'index-of-keys-that-were-changed', with_content(
        'KEYS', 0, lambda old: flipped(old, 5), indexed), 3, 'other keys'


def contents():
    """Indexes that are about these keys, but not what an index of their rows can be."""
    for u in (0, 1, 8, 17, 48, 256, 0xffffffff):
        yield f'bits-groups-of-{u}', with_words('bITS', {0: u}), 3, 'bITS layer 0'
    yield 'bits-groups-of-32', with_words('bITS', {0: 32}), 3, 'bITS layer 0'
    yield 'bits-of-more-rows', with_content(
        'bITS', 0, lambda old: old + old[64:76], indexed), 3, 'bITS layer 0'
    yield 'bits-of-fewer-rows', with_content(
        'bITS', 0, lambda old: old[:76], indexed), 3, 'bITS layer 0'
    for name, at, word in (
            ('zero-infinite', 64 + 12, 0x7c00), ('zero-minus-infinite', 64 + 12 + 2, 0xfc00),
            ('zero-nan', 64, 0x7e00), ('scale-infinite', 64 + 4, 0x7c00),
            ('scale-nan', 64 + 6, 0x7c01), ('scale-negative', 64 + 12 + 6, 0x8001),
            ('scale-minus-zero', 64 + 12 + 4, 0x8000)):
        yield f'bits-{name}', with_halves(at, word), 3, 'bITS layer 0'
    for u in (0, 1, 3, 65537):
        yield f'pages-of-{u}', with_words('pAGE', {0: u}), 3, 'pAGE layer 0'
    yield 'pages-zero-16', with_words('pAGE', {16: 1}), 3, 'zero'
    yield 'bits-zero-16', with_words('bITS', {16: 1}), 3, 'zero'
    yield 'pages-of-more-rows', with_content(
        'pAGE', 0, lambda old: old + old[-8:], indexed), 3, 'pAGE layer 0'
    # C at 64, end at 72, labels at 80
    for name, words in (
            ('entries-of-0', {0: 0}), ('entries-of-2', {0: 2}), ('zero-20', {20: 1}),
            ('sink-more', {16: 4}), ('sink-huge', {16: 0xffffffff}),
            ('more', {64: 5}), ('fewer', {64: 3}), ('huge', {68: 0xffffffff}),
            ('huge-both', {64: 0xffffffff, 68: 0xffffffff}), ('end-beyond', {72: 20}),
            ('end-huge', {76: 0xffffffff}), ('end-less', {76: 18}),
            ('label-beyond', {80: 4}), ('label-huge', {80: 0xffffffff}),
            ('label-of-head-1', {80 + 4 * 31: 4}), ('gap', {64 + 16 + 4 * 32: 1})):
        yield f'clusters-{name}', with_words('cLUS', words), 3, \
            'zero' if name in ('zero-20', 'gap') else 'cLUS layer 0'
    yield 'clusters-without-row', with_words('cLUS', {80 + 4 * i: 0 for i in (1, 5, 9, 13)}), \
        3, 'cLUS layer 0'
    yield 'clusters-more-than-rows', clusters_more_than_rows(), 3, 'cLUS layer 0'
    yield 'clusters-end-of-other-head', with_words(
        'cLUS', {72: 7, 76: 17}, indexed_ragged), 3, 'cLUS layer 0'
    # n at 16, r at 20, x at 24, exact chunks at 64
    for name, words in (
            ('chunks-of-0', {0: 0}), ('chunks-of-3', {0: 3}), ('chunks-of-65537', {0: 65537}),
            ('rows-uneven', {16: 15}), ('rows-more', {16: 20}), ('rows-fewer', {16: 12}),
            ('rows-huge', {16: 0xfffffffc}), ('rank-0', {20: 0}), ('rank-5', {20: 5}),
            ('rank-2', {20: 2}), ('rank-huge', {20: 0xffffffff}), ('exact-more', {24: 5}),
            ('exact-huge', {24: 0xffffffff}), ('exact-beyond', {68: 4}), ('exact-equal', {68: 1}),
            ('exact-descend', {64: 3, 68: 1}), ('exact-huge-chunk', {76: 0xffffffff}),
            ('gap', {80: 1}), ('zero-28', {28: 1})):
        yield f'low-rank-{name}', with_words('lOWR', words), 3, \
            'zero' if name in ('zero-28', 'gap') else 'lOWR layer 0'
    yield 'low-rank-ragged', low_rank_of_other_rows(), 3, 'lOWR layer 0'


def clusters_more_than_rows():
    """Everything there but a row for each cluster: 5 of 4 rows, 4 of 16."""
    out = indexed()
    old = out[place(out, 'cLUS', 0)].content
    out[place(out, 'cLUS', 0)].set(kvwrite.fill(
        old[:64] + u32s([5, 4, 7, 19, *range(4), *[0, 1, 2, 3] * 4])) + bytes(9 * 4))
    return stream(out)


def low_rank_of_other_rows():
    """As many rows in both heads, but not the same."""
    out = indexed()
    out[place(out, 'POSN', 0)].set(kvwrite.positions(
        [list(range(19)), [*range(18), 19]]))
    return stream(out)


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (order, contents):
        yield from group()
