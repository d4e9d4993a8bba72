"""KIVI's types (kv-snapshot.md, 4.21): keys quantised by channel, values by token, in 2 or 4 bits;
the last rows of a KV head are elements of dtype.

What is here is about one KV head. name is 'keys' or 'values', R the residual of row_types. What a
reader needs for its checks does without NumPy."""

from .rowtypes import ITEM_SIZE, narrow, widen, without_value

BITS = {'kivi2': 2, 'kivi4': 4}         # of a code, by type
GROUP = 32                              # numbers of a block; rows of a group of keys
MOST = 4096                             # the greatest residual
USUAL = 128                             # that of the paper
WAY_ON = ('kivi2 and kivi4 do not store each row by itself: evict before kv-quantize, or '
          'dequantise first: kv-quantize --keys %s --values %s')


def residual_fault(types):
    """What is wrong with residual of row_types, whose types of rows are right: the end of a
    message, '' for nothing."""
    there = any(kind in BITS for name in ('keys', 'values') for kind in types[name])
    if not there:
        return '.residual is there, and no type is kivi2 or kivi4' if 'residual' in types else ''
    if 'residual' not in types:
        return '.residual is missing: a type is kivi2 or kivi4'
    R = types['residual']
    if type(R) is not int or not GROUP <= R <= MOST or R % GROUP:
        return f'.residual: {R!r} is no multiple of {GROUP} from {GROUP} to {MOST}'
    return ''


def coded(name, rows, R):
    """How many of the rows are codes: the first ones."""
    return rows - rows % R if name == 'keys' else max(rows - R, 0)


def block_size(kind):
    return 4 + GROUP * BITS[kind] // 8


def coded_size(kind, name, E, rows, R):
    """The bytes of the blocks."""
    return coded(name, rows, R) * E // GROUP * block_size(kind)


def size(kind, name, E, dtype, rows, R):
    """The bytes of the rows of a KV head."""
    return (coded_size(kind, name, E, rows, R) +
            (rows - coded(name, rows, R)) * E * ITEM_SIZE[dtype])


def fault(kind, name, E, data):
    """What may not be in these blocks: where and what, '' for nothing."""
    data, block = memoryview(data), block_size(kind)
    for at, what in ((0, 'scale'), (2, 'minimum')):
        i = without_value(data[at + 1::block].tobytes(), data[at::block].tobytes(), 0x7c00)
        if i is not None and name == 'keys':
            row = i // E * GROUP
            return f'rows {row}-{row + GROUP - 1}: the {what} of channel {i % E} is not finite'
        if i is not None:
            row, j = divmod(i, E // GROUP)
            return f'row {row}: the {what} of block {j} is not finite'
    return ''


def wrong_rows(kind, name, E, data, sizes):
    """The same of the content of a section, whose KV heads have blocks and elements of so many
    bytes: pairs."""
    at, data = 0, memoryview(data)
    for g, (blocks, elements) in enumerate(sizes):
        found = fault(kind, name, E, data[at:at + blocks])
        if found:
            return f'KV head {g} {found}'
        at += blocks + elements
    return ''


# ---- with NumPy ----

def numbers(data, kind, name, E, dtype, rows, R):
    """The rows of a KV head, bytes or a flat array of u1: their numbers, f32 [rows][E]."""
    import numpy
    flat = numpy.frombuffer(data, 'u1') if not isinstance(data, numpy.ndarray) else data
    end = coded_size(kind, name, E, rows, R)
    first = _read_blocks(flat[:end].reshape(-1, block_size(kind)), BITS[kind])
    if name == 'keys':          # [groups][E][32]
        first = first.reshape(-1, E, GROUP).transpose(0, 2, 1)
    return numpy.concatenate([first.reshape(-1, E), widen(flat[end:].tobytes(),
                                                          dtype).reshape(-1, E)])


def _read_blocks(blocks, bits):
    """u1 [n][bytes of a block] as f32 [n][32]"""
    import numpy
    scale, least = (widen(blocks[:, at:at + 2].tobytes(), 'f16')[:, None] for at in (0, 2))
    shifts = numpy.arange(0, 8, bits, dtype='u1')
    codes = blocks[:, 4:, None] >> shifts & (1 << bits) - 1
    return codes.reshape(-1, GROUP).astype('<f4') * scale + least


def stored(x, kind, name, dtype, R):
    """Numbers [rows][E], in f32, as the rows of a KV head: a flat array of u1. ValueError: E is no
    multiple of 32, or some rows cannot be quantised."""
    import numpy
    x = numpy.ascontiguousarray(x, '<f4')
    rows, E = x.shape
    if E % GROUP:
        raise ValueError(f'{kind} wants a head width that is a multiple of {GROUP}, not {E}')
    end = coded(name, rows, R)
    with numpy.errstate(over='ignore'):
        half = x[:end].astype('<f2')
    finite = numpy.isfinite(half).all(axis=1)
    if not finite.all():
        raise ValueError(f'row {int(finite.argmin())}: a number is not finite in f16')
    if name == 'keys':
        half = half.reshape(-1, GROUP, E).transpose(0, 2, 1)
    blocks = _write_blocks(half.reshape(-1, GROUP), BITS[kind]).reshape(-1)
    found = fault(kind, name, E, blocks)
    if found:
        raise ValueError(found)
    return numpy.concatenate([blocks, narrow(x[end:], dtype).reshape(-1)])


def _write_blocks(x, bits):
    """f16 [n][32] as u1 [n][bytes of a block]. NumPy rounds each operation to f16."""
    import numpy
    most = numpy.float16((1 << bits) - 1)
    with numpy.errstate(all='ignore'):
        least = numpy.take_along_axis(x, x.argmin(axis=1)[:, None], axis=1)
        scale = (x.max(axis=1, keepdims=True) - least) / most
        codes = numpy.rint(numpy.minimum((x - least) / scale, most))
        codes = numpy.where((scale > 0) & numpy.isfinite(scale), codes, 0).astype('u1')
    packed = numpy.zeros((len(x), GROUP * bits // 8), 'u1')
    for i in range(8 // bits):
        packed |= codes[:, i::8 // bits] << bits * i
    return numpy.concatenate([part.astype('<f2').view('u1') for part in (scale, least)] + [packed],
                             axis=1)
