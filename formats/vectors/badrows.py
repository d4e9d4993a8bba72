"""badrows - quantised rows and their types in HEAD that must be refused, as in bad.py."""

import struct

import kvwrite
from bad import changed, stream, with_header
from good import head, place, sections, small
from goodrows import quantise, typed
from kvrow import row_size
from kvwrite import canonical

NAN16, INF16 = b'\x01\x7c', b'\0\x7c'
NAN32, INF32 = b'\1\0\x80\x7f', b'\0\0\x80\x7f'


def base(keys='q8_0', values='q4_1', dtype='f16'):
    """Two layers, two KV heads of width 32, three and one rows in the second layer."""
    h = typed([dtype, keys], [values, dtype], dtype, query_heads=2, kv_heads=2, head_width=32,
              next_position=9)
    return quantise(sections(h, [[[0, 2]], [[1, 2, 8], [0]]], [1, 2]), h)


def heads():
    """HEAD says of the rows what it may not; the rows are those of base()."""
    def false(name, edit, E=32):
        h = typed(['f16', 'q8_0'], ['q4_1', 'f16'], 'f16', query_heads=2, kv_heads=2,
                  head_width=E, next_position=9)
        edit(h['row_types'], h)
        out = base()
        out[0].set(canonical(h).encode())
        status, word = (5, 'known') if name.startswith('unknown-') else (3, 'HEAD')
        return f'row-types-{name}', stream(out, features=1), status, word

    def to(name, n, value):
        return lambda types, h: types[name].__setitem__(n, value)

    def only(kind):
        return lambda types, h: types.update(keys=['f16', 'f16'], values=['f16', kind])

    yield false('missing', lambda types, h: h.pop('row_types'))
    # what an older reader would take for elements
    yield 'row-types-without-feature', stream(base(), features=0), 3, 'HEAD'
    yield 'feature-0-of-plain-rows', stream(small(), features=1), 3, 'HEAD'
    yield 'feature-0-and-1', stream(base(), features=3), 3, 'HEAD'
    yield 'feature-0-and-2', stream(base(), features=5), 5, 'bit 2 is'
    yield 'feature-0-and-63', stream(base(), features=1 << 63 | 1), 5, '63'
    for name, value in ('list', ['q8_0']), ('text', 'q8_0'), ('true', True), ('number', 1):
        yield false(name, lambda types, h: h.update(row_types=value))
    yield false('empty', lambda types, h: types.clear())
    for name in ('keys', 'values'):
        yield false(f'without-{name}', lambda types, h: types.pop(name))
        yield false(f'{name}-short', lambda types, h: types[name].pop())
        yield false(f'{name}-long', lambda types, h: types[name].append('f16'))
        yield false(f'{name}-empty', lambda types, h: types[name].clear())
        yield false(f'{name}-text', lambda types, h: types.update({name: 'q8_0'}))
        yield false(f'{name}-object', lambda types, h: types.update({name: {'0': 'f16'}}))
    for text in ('q8_1', 'Q8_0', 'q4_0 ', 'q8_0-', '-hadamard', 'f16-hadamard', 'fp8-hadamard2',
                 'q8_0-hadamard-hadamard', '', 'int4'):
        yield false(f'unknown-{text.strip() or "empty"}', to('values', 0, text))
    yield false('unknown-fp16', to('keys', 1, 'fp16'))
    for text in 'f32', 'bf16':          # not that of dtype
        yield false(f'other-{text}', to('values', 0, text))
    yield false('number-for-text', to('keys', 1, 4))
    yield false('list-for-text', to('keys', 0, ['f16']))
    yield false('unknown-key', lambda types, h: types.update(queries=['f16', 'f16']))
    yield false('none-quantised', lambda types, h: types.update(
        keys=['f16', 'f16'], values=['f16', 'f16']))
    for kind in ('q8_0', 'q4_0', 'q4_1', 'q5_0', 'q8_0-hadamard'):
        for E in (48, 31, 1):
            yield false(f'width-{E}-{kind}', only(kind), E)
    for kind in ('q8_0-hadamard', 'q5_0-hadamard', 'int8-hadamard', 'fp8-hadamard'):
        yield false(f'width-96-{kind}', only(kind), 96)
    yield false('width-6-int8-hadamard', only('int8-hadamard'), 6)


def headers():
    for size in (2, 4):
        yield f'rows-element-size-{size}', with_header('KEYS', 1, {12: bytes([size])}, base), \
            3, 'KEYS layer 1'
    yield 'rows-values-element-size', with_header('VALS', 0, {12: b'\2'}, base), 3, 'VALS layer 0'
    # a section that is not quantised beside one that is
    yield 'rows-plain-element-size', with_header('VALS', 1, {12: b'\1'}, base), 3, 'VALS layer 1'
    for kind, layer in (('KEYS', 1), ('VALS', 0)):
        where = f'{kind} layer {layer}'
        for name, edit in (('short', lambda old: old[:-1]), ('long', lambda old: old + b'\0'),
                           ('row-less', lambda old: old[:-(34 if kind == 'KEYS' else 20)]),
                           ('empty', lambda old: b'')):
            yield f'rows-{kind.lower()}-{name}', changed(
                kind, layer, lambda s: s.set(edit(s.content)), base), 3, where
    # as many bytes as elements would have
    yield 'rows-of-elements', changed('KEYS', 1, lambda s: s.set(bytes(4 * 64)), base), \
        3, 'KEYS layer 1'
    yield 'rows-in-planes', changed('KEYS', 1, planes, base), 3, 'KEYS layer 1'


def planes(section):
    section.set(bytes(len(section.content)), 1)
    section.blocks[0].codec = 2


def numbers():
    """Scales, minima and codes that are no numbers, in the first row and in the last one."""
    def false(name, kind, at, new):
        row = row_size(kind, 32)
        for where, row_at in (('first', 0), ('last', 3 * row)):
            out = base(kind, kind)
            section = out[place(out, 'KEYS', 1)]
            section.set(kvwrite.patch(section.content, {row_at + at: new}))
            yield f'rows-{kind}-{name}-{where}', stream(out), 3, 'KEYS layer 1'
        out = base(kind, kind)
        section = out[place(out, 'VALS', 0)]
        section.set(kvwrite.patch(section.content, {row + at: new}))
        yield f'rows-{kind}-{name}-values', stream(out), 3, 'VALS layer 0'

    for kind in ('q8_0', 'q4_0', 'q4_1', 'q5_0', 'q8_0-hadamard'):
        yield from false('infinite', kind, 0, INF16)
        yield from false('nan', kind, 0, NAN16)
    yield from false('minimum-infinite', 'q4_1', 2, b'\0\xfc')
    yield from false('minimum-nan', 'q4_1', 2, b'\0\xfe')
    for kind in ('int8', 'fp8', 'int8-hadamard', 'fp8-hadamard'):
        yield from false('infinite', kind, 0, INF32)
        yield from false('nan', kind, 0, NAN32)
    for kind in ('fp8', 'fp8-hadamard'):
        yield from false('code-7f', kind, 4, b'\x7f')
        yield from false('code-ff', kind, 35, b'\xff')
    yield 'rows-second-block-infinite', second_block(), 3, 'KEYS layer 0'


def second_block():
    """The scale of the last block of a row, in a head of width 64."""
    h = typed(['q4_0'], ['f16'], 'f16', head_width=64, next_position=3)
    out = quantise(sections(h, [[[0, 2]]], [1]), h)
    section = out[place(out, 'KEYS', 0)]
    section.set(kvwrite.patch(section.content, {36 + 18: struct.pack('<H', 0xfc00)}))
    return stream(out)


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (heads, headers, numbers):
        yield from group()
