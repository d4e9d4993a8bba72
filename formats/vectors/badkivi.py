"""badkivi - rows of kivi2 and kivi4, and their residual in HEAD, that must be refused, as in
bad.py."""

import json
import struct

import kvwrite
from bad import changed, stream, with_header
from good import place
from goodresidual import first, with_full
from kvkivi import block_size
from kvwrite import canonical

NAN, INF = b'\x01\xfe', b'\0\x7c'
ROW = 32 * 2                    # bytes of a row of elements


def base(keys='kivi2', values='kivi4'):
    """Two layers, two KV heads of width 32; values of the first, keys of the second are KIVI's.
    What has to be as it is, is compressed, since there are many of these."""
    return with_full(['q4_0', keys], [values, 'q4_0'], 32, 'f16', [first(34, 1), first(3, 37)], 2,
                     32, codec=1)


def heads():
    """HEAD says of the rows what it may not; the rows are those of base()."""
    def false(name, edit):
        out = base()
        h = json.loads(out[0].content)
        edit(h['row_types'], h)
        out[0].set(canonical(h).encode())
        if name.startswith('unknown-'):
            return f'kivi-{name}', stream(out), 5, 'known'
        return f'kivi-{name}', stream(out), 3, 'residual' if 'residual' in name else 'HEAD'

    yield false('residual-missing', lambda types, h: types.pop('residual'))
    yield false('residual-negative', lambda types, h: types.update(residual=-32))
    for value in (48, 0, 16, 31, 33, 4097, 4128, 1 << 32, 1 << 62):
        yield false(f'residual-{value}', lambda types, h: types.update(residual=value))
    for name, value in (('real', 32.0), ('text', '32'), ('true', True), ('list', [32]),
                        ('object', {'keys': 32})):
        yield false(f'residual-{name}', lambda types, h: types.update(residual=value))
    yield false('residual-beside-types', lambda types, h: h.update(residual=types.pop('residual')))
    yield false('none-quantised', lambda types, h: types.update(
        keys=['f16', 'f16'], values=['f16', 'f16']))
    yield false('unknown-key', lambda types, h: types.update(group=32))
    for name in ('kivi', 'kivi3', 'kivi8', 'KIVI2', 'kivi2-hadamard', 'kivi4-hadamard'):
        yield false(f'unknown-{name}', lambda types, h: types['keys'].__setitem__(1, name))
    for E in (80, 48, 33):
        for name, kind in ('keys', 'kivi2'), ('values', 'kivi4'):
            yield false(f'width-{E}-{name}', lambda types, h: (
                h['model'].update(head_width=E), types.update(
                    {'keys': ['f16', 'f16'], 'values': ['f16', 'f16'], name: ['f16', kind]})))


def sizes():
    for size in (2, 4):
        yield f'kivi-element-size-{size}', with_header('KEYS', 1, {12: bytes([size])}, base), \
            3, 'KEYS layer 1'
    yield 'kivi-values-element-size', with_header('VALS', 0, {12: b'\2'}, base), 3, 'VALS layer 0'
    for kind, layer, size in (('KEYS', 1, 12), ('VALS', 0, 20)):
        where = f'{kind} layer {layer}'
        for name, edit in (('short', lambda old: old[:-1]), ('long', lambda old: old + b'\0'),
                           ('block-less', lambda old: old[size:]),
                           ('block-more', lambda old: old + old[:size]),
                           ('row-less', lambda old: old[:-ROW]),
                           ('all-coded', lambda old: old[:size] * (40 if layer else 35)),
                           ('empty', lambda old: b'')):
            yield f'kivi-{kind.lower()}-{name}', changed(
                kind, layer, lambda s: s.set(edit(s.content)), base), 3, where
    # what another residual wants
    for R in (64, 4096):
        out = base()
        h = json.loads(out[0].content)
        h['row_types']['residual'] = R
        out[0].set(canonical(h).encode())
        yield f'kivi-rows-of-residual-32-not-{R}', stream(out), 3, 'KEYS layer 0'


def numbers():
    """Scales and minimums that are not finite, in the first block and in the last one."""
    def false(name, at, new):
        for keys, values in (('kivi2', 'kivi4'), ('kivi4', 'kivi2')):
            for where in ('first', 'last'):
                out = base(keys, values)
                section, size = out[place(out, 'KEYS', 1)], block_size(keys)
                begin = 3 * ROW if where == 'first' else len(section.content) - 5 * ROW - size
                section.set(kvwrite.patch(section.content, {begin + at: new}))
                yield f'kivi-{keys}-{name}-{where}', stream(out), 3, 'KEYS layer 1'
                out = base(keys, values)
                section, size = out[place(out, 'VALS', 0)], block_size(values)
                begin = 0 if where == 'first' else size
                section.set(kvwrite.patch(section.content, {begin + at: new}))
                yield f'kivi-{values}-{name}-{where}-values', stream(out), 3, 'VALS layer 0'

    yield from false('infinite', 0, INF)
    yield from false('nan', 0, NAN)
    yield from false('minimum-infinite', 2, struct.pack('<H', 0xfc00))
    yield from false('minimum-nan', 2, NAN)


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (heads, sizes, numbers):
        yield from group()
