"""badresidual - full rows behind quantised ones (4.20), and their number in HEAD, that must be
refused, as in bad.py. badkivi.py has those of KIVI's types."""

import json

import kvwrite
from bad import changed, stream, with_header
from good import place
from goodresidual import first, not_finite, with_full
from kvhead import row_size
from kvwrite import canonical

R = 5
FULL = 32 * 2                   # bytes of a full row
NAN16, INF16 = b'\x01\x7e', b'\0\x7c'
NAN32, INF32 = b'\1\0\x80\x7f', b'\0\0\x80\xff'


def base(keys='q8_0', values='q4_1'):
    """Two layers, two KV heads of width 32. Keys of the second: seven rows, two of which are
    quantised, and four, all full; values of the first: five, all full, and eight. What has to be
    as it is, is compressed."""
    return with_full(['f16', keys], [values, 'f16'], R, 'f16', [first(5, 8), first(7, 4)], 2, 32,
                     codec=1)


def with_head(edit, out=None):
    """The rows of base(), of which HEAD says something else."""
    out = out or base()
    h = json.loads(out[0].content)
    edit(h['row_types'], h)
    out[0].set(canonical(h).encode())
    return stream(out, features=1)


def heads():
    def false(name, edit, word='residual'):
        return f'residual-{name}', with_head(edit), 5 if word == 'known' else 3, word

    for name, value in (('0', 0), ('negative', -1), ('negative-5', -R), ('4097', 4097),
                        ('2-32', 1 << 32 | R), ('2-62', 1 << 62),
                        ('real', 5.0), ('text', '5'), ('true', True), ('list', [R]),
                        ('empty', ''), ('object', {'keys': R, 'values': R})):
        yield false(name, lambda types, h: types.update(residual=value))
    # a key of HEAD that is not known, and rows without a residual
    yield false('beside-types', lambda types, h: h.update(residual=types.pop('residual')),
                'VALS layer 0')
    yield false('other-name', lambda types, h: types.update(residuals=types.pop('residual')),
                'known')
    yield false('none-quantised', lambda types, h: types.update(
        keys=['f16', 'f16'], values=['f16', 'f16']), 'HEAD')
    # what KIVI's types in another section allow it to be
    for kind in ('kivi2', 'kivi4'):
        yield false(f'{R}-beside-{kind}', lambda types, h: types['keys'].__setitem__(0, kind))


def sizes():
    for size in (2, 4):
        yield f'residual-element-size-{size}', with_header('KEYS', 1, {12: bytes([size])}, base), \
            3, 'KEYS layer 1'
    for kind, layer, code, coded, full in (('KEYS', 1, 34, 2, 9), ('VALS', 0, 20, 3, 10)):
        where = f'{kind} layer {layer}'
        for name, edit in (
                ('short', lambda old: old[:-1]), ('long', lambda old: old + b'\0'),
                ('code-less', lambda old: old[code:]), ('code-more', lambda old: old[:code] + old),
                ('full-less', lambda old: old[:-FULL]),
                ('full-more', lambda old: old + old[-FULL:]),
                # as if the residual of one KV head were one less, and one more
                ('one-more-coded', lambda old: old[:-FULL] + bytes(code)),
                ('one-less-coded', lambda old: old[:-code] + bytes(FULL)),
                ('all-coded', lambda old: bytes(code * (coded + full))),
                ('all-full', lambda old: bytes(FULL * (coded + full))),
                # the last rows of the section, not those of each KV head
                ('of-section', lambda old: bytes(code * (coded + full - R) + FULL * R)),
                ('empty', lambda old: b'')):
            yield f'residual-{kind.lower()}-{name}', changed(
                kind, layer, lambda s: s.set(edit(s.content)), base), 3, where
    # what another residual wants, or none
    for other in (R - 1, R + 1, 4096):
        yield f'residual-{R}-not-{other}', with_head(lambda types, h: types.update(
            residual=other)), 3, 'VALS layer 0'
    yield f'residual-{R}-not-none', with_head(lambda types, h: types.pop('residual')), 3, \
        'VALS layer 0'
    # all rows of a section that is not quantised are full: what a reader may not take for codes
    yield 'residual-plain-short', changed('KEYS', 0, lambda s: s.set(s.content[:-1]), base), \
        3, 'KEYS layer 0'


def numbers():
    """Scales, minimums and codes that are no numbers, in the first and the last quantised row of a
    KV head, behind and before others that are full."""
    def false(name, kind, at, new):
        size = row_size(kind, 32)
        for n in (0, 1):
            out = base(kind, kind)
            section = out[place(out, 'KEYS', 1)]
            section.set(kvwrite.patch(section.content, {n * size + at: new}))
            yield f'residual-{kind}-{name}-{n}', stream(out), 3, f'head 0 row {n}'
        out = base(kind, kind)
        section = out[place(out, 'VALS', 0)]
        section.set(kvwrite.patch(section.content, {5 * FULL + 2 * size + at: new}))
        yield f'residual-{kind}-{name}-values', stream(out), 3, 'head 1 row 2'

    for kind in ('q8_0', 'q4_0-hadamard', 'q5_0'):
        yield from false('infinite', kind, 0, INF16)
        yield from false('nan', kind, 0, NAN16)
    yield from false('minimum-nan', 'q4_1', 2, NAN16)
    for kind in ('int8', 'fp8-hadamard'):
        yield from false('infinite', kind, 0, INF32)
        yield from false('nan', kind, 0, NAN32)
    yield from false('code-7f', 'fp8', 4, b'\x7f')
    yield from false('code-ff', 'fp8', 35, b'\xff')
    # the bytes that are accepted in the rows behind (goodresidual.not_finite())
    for kind, at, new in (('KEYS', 128 + 34, NAN16), ('VALS', 128 + 36, NAN32)):
        out = not_finite()
        section = out[place(out, kind, 0)]
        section.set(kvwrite.patch(section.content, {at: new}))
        yield f'residual-{kind.lower()}-last-coded-nan', stream(out), 3, 'head 1 row 1'


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (heads, sizes, numbers):
        yield from group()
