"""badrowvalues - what is false of any section that has a label and numbers of rows, for
badvaluenorms.py, badgatescores.py and badnoncausal.py."""

import struct

import kvwrite
from bad import changed, drop, moved, put, stream, with_content, with_header
from good import place
from kvwrite import NONE

LABEL = 192
NAN, INF = float('nan'), float('inf')


class RowValues:
    """Sections of that kind of layer 1 of what base() makes, each false. count: how many numbers
    it has there, among: one that is neither the first nor the last."""

    def __init__(self, kind, base, count, among):
        self.kind, self.base, self.count, self.among = kind, base, count, among
        self.where = f'{kind} layer 1'

    def edited(self, edit):
        return with_content(self.kind, 1, edit, self.base)

    def with_bits(self, i, bits):
        """Number i replaced."""
        return self.edited(lambda old: kvwrite.patch(old, {LABEL + 4 * i: bits}))

    def numbers(self, *named):
        """Each of these (name, number) in three places, and two NaN of other bits."""
        for name, value in named:
            for at, i in (('', 0), ('-among', self.among), ('-last', self.count - 1)):
                yield name + at, self.with_bits(i, struct.pack('<f', value)), self.where
        # a signalling NaN, and one whose sign is negative
        yield 'other-nan', self.with_bits(1, b'\1\0\x80\x7f'), self.where
        yield 'negative-nan', self.with_bits(self.count - 5, b'\0\0\xc0\xff'), self.where

    def in_second_block(self, blocks, *named):
        """The content beyond the first MiB (3.3)."""
        for name, value in named:
            out = blocks()
            section = out[place(out, self.kind, 0)]
            at = len(section.content) - 8
            section.set(kvwrite.patch(section.content, {at: struct.pack('<f', value)}), 2)
            assert at > 1 << 20
            yield f'block-1-{name}', stream(out), f'{self.kind} layer 0'

    def sizes(self, empty, *more):
        """empty(): a snapshot whose layer 3 has no rows. more: (name, edit) beside those of all."""
        for name, edit in (
                ('short', lambda old: old[:-4]), ('long', lambda old: old + bytes(4)),
                ('half-short', lambda old: old[:-2]), ('byte-long', lambda old: old + b'\0'),
                ('empty', lambda old: b''), ('cut', lambda old: old[:LABEL - 1]),
                ('label-only', lambda old: old[:LABEL]), ('no-label', lambda old: old[LABEL:]),
                ('in-f16', lambda old: old[:LABEL + 2 * self.count]),
                ('short-label', lambda old: old[:64] + old[LABEL:]), *more):
            yield name, self.edited(edit), self.where
        yield 'of-no-rows', with_content(self.kind, 3, lambda old: old + bytes(4), empty), \
            f'{self.kind} layer 3'
        huge = struct.pack('<Q', 1 << 40)
        yield 'huge', with_header(self.kind, 1, {16: huge, 24: huge}, self.base), self.where
        for size in (0, 3, 8):
            yield f'element-size-{size}', with_header(
                self.kind, 1, {12: bytes([size])}, self.base), self.where

    def labels(self, of_layer_0, *named):
        """Each of these (name, label), and one that is false in layer 0 alone."""
        for name, label in named:
            yield f'label-{name}', self.edited(
                lambda old: label.ljust(LABEL, b'\0') + old[LABEL:]), self.where
        yield 'label-of-layer-0', with_content(
            self.kind, 0, lambda old: of_layer_0 + old[len(of_layer_0):], self.base), \
            f'{self.kind} layer 0'

    def order(self, before):
        """before: kinds that must stand before it in a layer."""
        kind, base = self.kind, self.base
        yield 'twice', moved(lambda out: out.insert(
            place(out, kind, 1), out[place(out, kind, 1)]), base), 'order'
        yield 'twice-behind-scores', moved(lambda out: out.insert(
            place(out, 'sCOR', 1) + 1, out[place(out, kind, 1)]), base), 'order'
        for other in before:
            yield f'before-{other.lower()}', put(kind, 1, other, 0, base), 'order'
        for name, other in (('scores', 'sCOR'), ('keys', 'KEYS'), ('vals', 'VALS')):
            yield f'behind-{name}', put(kind, 0, other, 1, base), 'order'
        yield 'before-first-positions', put(kind, 0, 'POSN', 0, base), 'order'
        yield 'without-positions', drop('POSN', 1, base), 'order'
        yield 'without-layer', changed(kind, 0, lambda s: setattr(s, 'layer', NONE), base), 'order'
        for layer in (0, 2):
            yield f'of-layer-{layer}', changed(
                kind, 1, lambda s: setattr(s, 'layer', layer), base), 'order'
        yield 'at-the-end', moved(lambda out: out.append(out.pop(place(out, kind, 1))), base), \
            'order'


def named(prefix, *groups):
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in groups:
        for name, data, word in group:
            yield f'{prefix}-{name}', data, 3, word
