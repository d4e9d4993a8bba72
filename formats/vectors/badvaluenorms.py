"""badvaluenorms - norms of value outputs (4.23) that must be refused, as in bad.py."""

import struct

import kvwrite
from bad import changed, drop, moved, put, stream, swap, with_content, with_header
from good import place
from goodvaluenorms import beside, blocks, empty
from kvwrite import NONE

# layer 1 of beside(): three query heads of 4 rows, then three of 2
LABEL, COUNT = 192, 18
WHERE = 'vNRM layer 1'
NAN, INF = float('nan'), float('inf')


def edited(edit, base=beside):
    return with_content('vNRM', 1, edit, base)


def with_bits(i, bits):
    """Number i of layer 1 replaced."""
    return edited(lambda old: kvwrite.patch(old, {LABEL + 4 * i: bits}))


def with_number(i, value):
    return with_bits(i, struct.pack('<f', value))


def sizes():
    for name, edit in (
            ('short', lambda old: old[:-4]), ('long', lambda old: old + bytes(4)),
            ('half-short', lambda old: old[:-2]), ('byte-long', lambda old: old + b'\0'),
            ('empty', lambda old: b''), ('cut', lambda old: old[:LABEL - 1]),
            ('label-only', lambda old: old[:LABEL]), ('no-label', lambda old: old[LABEL:]),
            ('of-kv-heads', lambda old: old[:LABEL + 4 * COUNT // 3]),
            ('of-one-head', lambda old: old[:LABEL + 4 * 12]),
            ('of-more-heads', lambda old: old + old[LABEL:]),
            ('in-f16', lambda old: old[:LABEL + 2 * COUNT]),
            ('short-label', lambda old: old[:64] + old[LABEL:])):
        yield name, edited(edit), WHERE
    yield 'of-no-rows', with_content('vNRM', 3, lambda old: old + bytes(4), empty), 'vNRM layer 3'
    huge = struct.pack('<Q', 1 << 40)
    yield 'huge', with_header('vNRM', 1, {16: huge, 24: huge}, beside), WHERE
    for size in (0, 3, 8):
        yield f'element-size-{size}', with_header('vNRM', 1, {12: bytes([size])}, beside), WHERE


def labels():
    for name, label in (
            ('none', b''), ('l', b'l'), ('l0', b'l0'), ('l3', b'l3'), ('linf', b'linf'),
            ('upper', b'L2'), ('digit', b'2'), ('l12', b'l12'), ('l22', b'l22'),
            ('blank', b'l2 '), ('blank-before', b' l2'), ('newline', b'l2\n'),
            ('zero-before', b'\0l2'), ('zero-among', b'l\x002'), ('option', b'l2 epsilon=1'),
            ('fill', b'l2\0x'), ('fill-4', b'l1' + bytes(2) + b'\1'),
            ('fill-64', b'l1' + bytes(62) + b'\1'), ('fill-last', b'l1' + bytes(189) + b'\x80'),
            ('both', b'l1\0l2'), ('full', b'l' * LABEL), ('no-zero', b'l2' + b' ' * 190),
            ('utf8', b'\xffl2'), ('utf8-last', b'l2' + bytes(189) + b'\xff'), ('max', b'max')):
        yield f'label-{name}', edited(lambda old: label.ljust(LABEL, b'\0') + old[LABEL:]), WHERE
    # both layers are looked at
    yield 'label-of-layer-0', with_content(
        'vNRM', 0, lambda old: b'l3' + old[2:], beside), 'vNRM layer 0'


def wrong_numbers():
    for name, value in (('nan', NAN), ('infinite', INF), ('minus-infinite', -INF),
                        ('negative', -0.5), ('least', -1.5e-45), ('minus-zero', -0.0)):
        for place_of, i in (('', 0), ('-among', 7), ('-last', COUNT - 1)):
            yield name + place_of, with_number(i, value), WHERE
    # a signalling NaN, and one whose sign is negative
    yield 'other-nan', with_bits(1, b'\1\0\x80\x7f'), WHERE
    yield 'negative-nan', with_bits(13, b'\0\0\xc0\xff'), WHERE


def in_second_block():
    """The content beyond the first MiB (3.3)."""
    for name, value in (('nan', NAN), ('infinite', INF), ('negative', -1.0)):
        out = blocks()
        section = out[place(out, 'vNRM', 0)]
        at = len(section.content) - 8
        section.set(kvwrite.patch(section.content, {at: struct.pack('<f', value)}), 2)
        assert at > 1 << 20
        yield f'block-1-{name}', stream(out), 'vNRM layer 0'


def order():
    yield 'twice', moved(lambda out: out.insert(
        place(out, 'vNRM', 1), out[place(out, 'vNRM', 1)]), beside), 'order'
    yield 'twice-behind-scores', moved(lambda out: out.insert(
        place(out, 'sCOR', 1) + 1, out[place(out, 'vNRM', 1)]), beside), 'order'
    yield 'before-paid', swap('pAID', 1, 'vNRM', 1, beside), 'order'
    yield 'behind-scores', swap('vNRM', 0, 'sCOR', 0, beside), 'order'
    for kind in ('mASS', 'qSTa', 'oBSq', 'POSN'):
        yield f'before-{kind.lower()}', put('vNRM', 1, kind, 0, beside), 'order'
    for kind in ('KEYS', 'VALS'):
        yield f'behind-{kind.lower()}', put('vNRM', 0, kind, 1, beside), 'order'
    yield 'before-first-positions', put('vNRM', 0, 'POSN', 0, beside), 'order'
    yield 'without-positions', drop('POSN', 1, beside), 'order'
    yield 'without-layer', changed('vNRM', 0, lambda s: setattr(s, 'layer', NONE), beside), 'order'
    for layer in (0, 2):
        yield f'of-layer-{layer}', changed(
            'vNRM', 1, lambda s: setattr(s, 'layer', layer), beside), 'order'
    yield 'at-the-end', moved(lambda out: out.append(out.pop(place(out, 'vNRM', 1))), beside), \
        'order'


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (sizes, labels, wrong_numbers, in_second_block, order):
        for name, data, word in group():
            yield f'vnrm-{name}', data, 3, word
