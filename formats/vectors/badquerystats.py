"""badquerystats - query statistics (4.22) that must be refused, as in bad.py."""

import struct

import kvwrite
from bad import changed, drop, moved, put, stream, swap, with_content, with_header
from good import head, place, sections
from goodquerystats import beside, blocks, layers
from kvwrite import NONE, u32s

# of one of the six query heads of lean(): sums, moduli, products
E, PAIRS, TRIANGLE = 6, 3, 21
H = 6
SUMS, MODULI = 64, 64 + 8 * H * E
PRODUCTS = MODULI + 8 * H * PAIRS
END = PRODUCTS + 8 * H * TRIANGLE
NAN, INF = float('nan'), float('inf')


def lean():
    """Two layers of one row; query statistics in the second."""
    return sections(head(2, 6, 2, 6, 11, 'f16', 9), [[[0]]] * 2, [7],
                    stats=[None, (4, 5)])


def product(h, i, j):
    """Where the product of two channels of a query head stands."""
    return PRODUCTS + 8 * (h * TRIANGLE + i * (i + 1) // 2 + j)


def patched(at, new, base=lean):
    return with_content('qSTa', 1, lambda old: kvwrite.patch(old, {at: new}), base)


def with_number(at, value, base=lean):
    """An f64 replaced."""
    return patched(at, struct.pack('<d', value), base)


def sizes():
    for name, edit in (
            ('short', lambda old: old[:-8]), ('long', lambda old: old + bytes(8)),
            ('half-short', lambda old: old[:-4]), ('byte-long', lambda old: old + b'\0'),
            ('empty', lambda old: b''), ('cut', lambda old: old[:63]),
            ('front-only', lambda old: old[:64]),
            ('without-moduli', lambda old: old[:MODULI] + old[PRODUCTS:]),
            ('without-products', lambda old: old[:PRODUCTS]),
            ('of-kv-heads', lambda old: old[:64] + bytes((END - 64) // 3)),
            ('of-more-heads', lambda old: old + bytes((END - 64) // 6)),
            ('whole-products', lambda old: old[:PRODUCTS] + bytes(8 * H * E * E)),
            ('in-f32', lambda old: old[:64] + bytes((END - 64) // 2)),
            ('modulus-of-each-channel', lambda old: old + bytes(8 * H * PAIRS))):
        yield name, with_content('qSTa', 1, edit, lean), 'qSTa layer 1'
    # 1 << 40 bytes, of which there are none
    huge = struct.pack('<Q', 1 << 40)
    yield 'huge', with_header('qSTa', 1, {16: huge, 24: huge}, lean), 'qSTa layer 1'
    for size in (0, 1, 2, 3, 8):
        yield f'element-size-{size}', with_header('qSTa', 1, {12: bytes([size])}, lean), \
            'qSTa layer 1'


def widths():
    """Of a layer in which other channels are rotated than those whose moduli are there."""
    def other(name, layer, pairs, there, base):
        """As if so many pairs were rotated in each of three heads, and not what there are."""
        return name, with_content('qSTa', layer, lambda old: old + bytes(24 * (pairs - there))
                                  if pairs > there else old[:24 * (pairs - there)],
                                  base), f'qSTa layer {layer}'

    def partial():
        return layers(1, 8, [(0, 3)], {'width': 6})

    def skipping():
        return layers(2, 8, [(0, 3)] * 2, {'skip': 2})

    yield other('width-6-as-8', 0, 4, 3, partial)
    yield other('width-6-as-4', 0, 2, 3, partial)
    yield other('width-6-as-0', 0, 0, 3, partial)
    yield other('skip-as-8', 1, 4, 0, skipping)
    yield other('no-skip-as-0', 0, 0, 4, skipping)
    yield other('odd-as-8', 0, 4, 3, lambda: layers(1, 7, [(0, 3)]))


def zeros():
    for at in (8, 9, 11, 12, 16, 24, 32, 62, 63):
        yield f'zero-{at}', patched(at, b'\1'), 'zero'
    yield 'zero-of-none', patched(8, b'\x80', lambda: without_queries()), 'zero'


def without_queries():
    return layers(3, 4, [(4, 0)] * 3)


def numbers():
    where = 'qSTa layer 1'
    for name, value in (('nan', NAN), ('infinite', INF), ('minus-infinite', -INF)):
        for part, first, last in (('sums', SUMS, MODULI - 8), ('moduli', MODULI, PRODUCTS - 8),
                                  ('products', PRODUCTS, END - 8)):
            yield f'{part}-{name}', with_number(first, value), where
            yield f'{part}-last-{name}', with_number(last, value), where
        yield f'product-5-4-{name}', with_number(product(3, 5, 4), value), where
    # a signalling NaN, and one whose sign is negative
    yield 'sums-other-nan', patched(SUMS + 8, b'\1\0\0\0\0\0\xf0\x7f'), where
    yield 'sums-negative-nan', patched(SUMS + 16, b'\0\0\0\0\0\0\xf8\xff'), where
    for name, value in (('negative', -0.5), ('least', -5e-324), ('minus-zero', -0.0)):
        yield f'modulus-{name}', with_number(MODULI, value), where
        yield f'modulus-last-{name}', with_number(PRODUCTS - 8, value), where
        yield f'square-{name}', with_number(product(0, 0, 0), value), where
        yield f'square-last-{name}', with_number(product(H - 1, E - 1, E - 1), value), where
        for h, i in ((0, 1), (2, 3), (5, 0), (5, 4)):
            yield f'square-{h}-{i}-{name}', with_number(product(h, i, i), value), where


def no_query():
    """Of three heads of width 4, without a query: sums at 64, moduli at 160, products at 208."""
    for name, at, value in (
            ('sum', 64, 1.0), ('negative-sum', 152, -1.0), ('minus-zero-sum', 72, -0.0),
            ('modulus', 160, 0.5), ('last-modulus', 200, 5e-324), ('square', 208, 2.0),
            ('product', 216, -1.0), ('minus-zero-product', 216, -0.0), ('last', 440, 1e-300)):
        yield f'none-{name}', with_number(at, value, without_queries), 'qSTa layer 1'
    yield 'none-of-some', patched(4, u32s([0])), 'qSTa layer 1'


def in_second_block():
    """The content beyond the first MiB (3.3), the last row of the triangle among it."""
    def with_last(back, value):
        out = blocks()
        section = out[place(out, 'qSTa', 0)]
        at = len(section.content) - back
        section.set(kvwrite.patch(section.content, {at: struct.pack('<d', value)}), 2)
        assert len(section.blocks) == 2 and at > 1 << 20
        return stream(out)

    yield 'block-1-nan', with_last(16, NAN), 'qSTa layer 0'
    yield 'block-1-negative', with_last(8, -1.0), 'qSTa layer 0'
    yield 'block-1-last-but-one', with_last(8 + 8 * 512, -1.0), 'qSTa layer 0'


def order():
    yield 'twice', moved(lambda out: out.insert(
        place(out, 'qSTa', 1), out[place(out, 'qSTa', 1)]), beside), 'order'
    yield 'twice-behind-mass', moved(lambda out: out.insert(
        place(out, 'mASS', 1) + 1, out[place(out, 'qSTa', 1)]), beside), 'order'
    yield 'behind-mass', swap('qSTa', 1, 'mASS', 1, beside), 'order'
    yield 'before-queries', swap('oBSq', 0, 'qSTa', 0, beside), 'order'
    for kind, after in (('pAID', 1), ('sCOR', 1), ('KEYS', 1), ('VALS', 1)):
        yield f'behind-{kind.lower()}', put('qSTa', 0, kind, after, beside), 'order'
    yield 'before-positions', put('qSTa', 1, 'POSN', 0, beside), 'order'
    yield 'before-first-positions', put('qSTa', 0, 'POSN', 0, beside), 'order'
    yield 'without-positions', drop('POSN', 1, beside), 'order'
    yield 'without-positions-of-layer', drop('POSN', 1, lean), 'order'
    yield 'without-layer', changed('qSTa', 0, lambda s: setattr(s, 'layer', NONE), beside), 'order'
    for layer in (0, 2):
        yield f'of-layer-{layer}', changed(
            'qSTa', 1, lambda s: setattr(s, 'layer', layer), beside), 'order'
    yield 'at-the-end', moved(lambda out: out.append(out.pop(place(out, 'qSTa', 1))), beside), \
        'order'


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (sizes, widths, zeros, numbers, no_query, in_second_block, order):
        for name, data, word in group():
            yield f'query-stats-{name}', data, 3, word
