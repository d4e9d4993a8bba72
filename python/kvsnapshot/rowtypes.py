"""How rows of keys and values are stored (kv-snapshot.md, 4.4 and 4.20): as elements of a dtype, or
quantised, each by itself. kivi.py has the types that quantise other blocks; rowstore.py has the
full rows behind quantised ones.

numbers() reads rows, stored() writes them; both need NumPy and compute in f32. What a
reader needs for its checks does without it."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False       # typing takes time to load, NumPy more
if TYPE_CHECKING:
    from typing import Any, Callable, Union

    import numpy
    import numpy.typing as npt
    Bytes = Union[bytes, bytearray, memoryview, npt.NDArray[numpy.uint8]]
    # of what is here only, whose steps NumPy types in other ways from version to version
    F32 = npt.NDArray[Any]
    U8 = npt.NDArray[Any]

ITEM_SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}
HADAMARD = '-hadamard'

# width: numbers with scales of their own, None: the whole row; front: bytes of scales (and of the
# fifth bits of q5_0) before the codes; bits: of a code
class Block(namedtuple('Block', 'width front bits')):
    __slots__ = ()
    width: int | None
    front: int
    bits: int


BLOCKS = {'q8_0': Block(32, 2, 8), 'q4_0': Block(32, 2, 4), 'q4_1': Block(32, 4, 4),
          'q5_0': Block(32, 6, 4), 'int8': Block(None, 4, 8), 'fp8': Block(None, 4, 8)}
QUANTISED = tuple(BLOCKS) + tuple(name + HADAMARD for name in BLOCKS)


def plain(kind: str) -> str:
    """The type without -hadamard."""
    return kind[:-len(HADAMARD)] if kind.endswith(HADAMARD) else kind


def blocks_of(kind: str, E: int) -> tuple[int, int]:
    """How many blocks a row of a quantised type has, and the bytes of each."""
    width, front, bits = BLOCKS[plain(kind)]
    width = width or E
    return E // width, front + width * bits // 8


def size(kind: str, E: int) -> int:
    """The bytes of a row of E numbers; the type allows this width."""
    if kind in ITEM_SIZE:
        return E * ITEM_SIZE[kind]
    count, block = blocks_of(kind, E)
    return count * block


def misfit(kind: str, E: int) -> str | None:
    """Why a row of E numbers cannot be stored in this quantised type; None: it can."""
    if BLOCKS[plain(kind)].width and E % 32:
        return f'{kind} wants a head width that is a multiple of 32, not {E}'
    if kind != plain(kind) and E & (E - 1):
        return f'{kind} wants a head width that is a power of 2, not {E}'
    return None


def without_value(high: bytes, low: bytes, exponent: int) -> int | None:
    """The first number of a list that is infinite or NaN, None: there is none. high, low: the two
    upper bytes of each; exponent: the exponent's bits of these, 16 in all."""
    upper, lower = exponent >> 8, exponent & 0xff
    if not any(byte & upper == upper for byte in set(high)):
        return None
    return next((i for i, (a, b) in enumerate(zip(high, low))
                 if a & upper == upper and b & lower == lower), None)


def fault(kind: str, E: int, data: Any) -> tuple[int, str] | None:
    """What may not be in rows of a quantised type (4.20): (row, what), None: nothing."""
    count, block = blocks_of(kind, E)
    kind, data = plain(kind), memoryview(data)
    if kind in ('int8', 'fp8'):
        row = without_value(data[3::block].tobytes(), data[2::block].tobytes(), 0x7f80)
        if row is not None:
            return row, 'the scale is not finite'
    else:
        for at, what in ((0, 'scale'), (2, 'minimum'))[:1 + (kind == 'q4_1')]:
            i = without_value(data[at + 1::block].tobytes(), data[at::block].tobytes(), 0x7c00)
            if i is not None:
                return i // count, f'the {what} of block {i % count} is not finite'
    if kind == 'fp8':
        for row, at in enumerate(range(4, len(data), block)):
            codes = data[at:at + E].tobytes()
            if b'\x7f' in codes or b'\xff' in codes:
                return row, 'a code is NaN'
    return None


# ---- with NumPy ----

def widen(data: bytes, dtype: str) -> npt.NDArray[numpy.float32]:
    """Bytes of dtype as a flat numpy array of f32; exact."""
    import numpy
    if dtype == 'bf16':
        return (numpy.frombuffer(data, '<u2').astype('<u4') << 16).view('<f4')
    return numpy.frombuffer(data, {'f16': '<f2', 'f32': '<f4'}[dtype]).astype('<f4')


def narrow(x: npt.NDArray[numpy.float32], dtype: str) -> npt.NDArray[numpy.uint8]:
    """Numbers of f32 as those of dtype, nearest, ties to even, in arrays of u1. A NaN stays one."""
    import numpy
    if dtype == 'bf16':
        bits = numpy.ascontiguousarray(x, '<f4').view('<u4')
        up = (bits >> 16 & 1) + 0x7fff
        bits = numpy.where(numpy.isnan(x), bits | 0x400000, bits + up)
        x = (bits >> 16).astype('<u2')
    else:
        with numpy.errstate(over='ignore'):
            x = x.astype({'f16': '<f2', 'f32': '<f4'}[dtype])
    return numpy.ascontiguousarray(x).view('u1')


def numbers(rows: Bytes, kind: str, E: int) -> npt.NDArray[numpy.float32]:
    """Rows as they are stored, bytes or an array of u1 whose last axis is the bytes of a row: the
    numbers of their type, f32 [rows][E]."""
    import numpy
    data = numpy.frombuffer(rows, 'u1') if not isinstance(rows, numpy.ndarray) else rows
    if kind in ITEM_SIZE:
        return widen(data.tobytes(), kind).reshape(-1, E)
    count, block = blocks_of(kind, E)
    with numpy.errstate(over='ignore', invalid='ignore'):
        y = _DECODE[plain(kind)](data.reshape(-1, block)).reshape(-1, E)
        return y if kind == plain(kind) else transform(y)


def stored(x: npt.ArrayLike, kind: str) -> npt.NDArray[numpy.uint8]:
    """Numbers [rows][E], in f32, as rows of a type: an array of u1 [rows][bytes of a row].
    ValueError: the type does not allow this width, or a row cannot be quantised."""
    import numpy
    x = numpy.ascontiguousarray(x, '<f4')
    rows, E = x.shape
    if kind in ITEM_SIZE:
        return narrow(x, kind)
    if kind not in QUANTISED:
        raise ValueError(f'{kind!r} is no type of rows')
    if misfit(kind, E):
        raise ValueError(misfit(kind, E))
    finite = numpy.isfinite(x).all(axis=1)
    if not finite.all():
        raise ValueError(f'row {int(finite.argmin())}: a number is not finite')
    with numpy.errstate(all='ignore'):
        y = x if kind == plain(kind) else transform(x)
        finite = numpy.isfinite(y).all(axis=1)
        if finite.all():
            count, block = blocks_of(kind, E)
            width = E // count
            out = _ENCODE[plain(kind)](y.reshape(rows * count, width)).reshape(rows, count * block)
    wrong = fault(kind, E, out.ravel()) if finite.all() else (int(finite.argmin()),
                                                      'the transform is not finite')
    if wrong:
        raise ValueError('row %d: %s' % wrong)
    return out


def transform(x: npt.NDArray[numpy.float32]) -> npt.NDArray[numpy.float32]:
    """The Walsh-Hadamard transform of each row over sqrt(E): f32 [rows][E], every operation
    rounded."""
    import numpy
    rows, E = x.shape
    y, h = x.astype('<f4'), 1
    while h < E:
        pairs = y.reshape(rows, E // (2 * h), 2, h)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        y = numpy.stack((a + b, a - b), axis=2).reshape(rows, E)
        h *= 2
    return y * numpy.float32(1 / numpy.sqrt(numpy.float64(E)))


def _floats(data: U8, at: int, dtype: str) -> F32:
    """The number that stands at this byte of each block, f32 [blocks][1]"""
    item = ITEM_SIZE[dtype]
    return widen(data[:, at:at + item].tobytes(), dtype).reshape(-1, 1)


def _nibbles(data: U8) -> F32:
    """u1 [blocks][16] as codes f32 [blocks][32]: those of the low bits, then of the high bits"""
    import numpy
    codes: F32 = numpy.concatenate((data & 15, data >> 4), axis=1).astype('<f4')
    return codes


def _signed(data: U8) -> F32:
    import numpy
    codes: F32 = numpy.ascontiguousarray(data).view('i1').astype('<f4')
    return codes


def _read_q5_0(data: U8) -> F32:
    import numpy
    fifth = numpy.unpackbits(data[:, 2:6], axis=1, bitorder='little').astype('<f4')
    codes: F32 = _nibbles(data[:, 6:]) + 16 * fifth - 16
    return codes * _floats(data, 0, 'f16')


def _fp8_values() -> F32:
    """The value of each code; of the NaN codes that which they would have."""
    import numpy
    code = numpy.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    value: F32 = numpy.where(exponent, numpy.ldexp(8.0 + fraction, exponent - 10),
                             numpy.ldexp(1.0 * fraction, -9))
    return numpy.where(code & 128, -value, value).astype('<f4')


_DECODE: dict[str, Callable[[U8], F32]] = {
    'q8_0': lambda data: _signed(data[:, 2:]) * _floats(data, 0, 'f16'),
    'q4_0': lambda data: (_nibbles(data[:, 2:]) - 8) * _floats(data, 0, 'f16'),
    'q4_1': lambda data: (_nibbles(data[:, 4:]) * _floats(data, 0, 'f16') +
                          _floats(data, 2, 'f16')),
    'q5_0': _read_q5_0,
    'int8': lambda data: _signed(data[:, 4:]) * _floats(data, 0, 'f32'),
    'fp8': lambda data: _fp8_values()[data[:, 4:]] * _floats(data, 0, 'f32')}


def _first(x: F32, order: F32) -> F32:
    """x [blocks][n] where order, an array of the same shape, is greatest, the first of equals: f32
    [blocks][1]"""
    import numpy
    return numpy.take_along_axis(x, order.argmax(axis=1)[:, None], axis=1)


def _inverse(d: F32) -> F32:
    """1 / d; 0 where that is not finite."""
    import numpy
    inverse = numpy.float32(1) / d
    return numpy.where(numpy.isfinite(inverse), inverse, numpy.float32(0))


def _over(x: F32, s: F32) -> F32:
    """x / s; 0 where s is 0"""
    import numpy
    return numpy.where(s == 0, numpy.float32(0), x / s)


def _away(x: F32) -> F32:
    """To the nearest integer, ties away from 0."""
    import numpy
    whole = numpy.trunc(x)
    nearest: F32 = whole + numpy.copysign(numpy.abs(x - whole) >= numpy.float32(0.5), x)
    return nearest


def _packed(codes: U8) -> U8:
    """Codes [blocks][32] of four bits as u1 [blocks][16]"""
    packed: U8 = codes[:, :16] | codes[:, 16:] << 4
    return packed


def _joined(*parts: U8 | tuple[F32, str]) -> U8:
    import numpy
    return numpy.concatenate([narrow(*part) if isinstance(part, tuple) else part
                              for part in parts], axis=1)


def _write_q8_0(x: F32) -> U8:
    import numpy
    d = numpy.abs(x).max(axis=1, keepdims=True) / numpy.float32(127)
    return _joined((d, 'f16'), _away(x * _inverse(d)).astype('i1').view('u1'))


def _offset_codes(x: F32, most: int) -> tuple[F32, U8]:
    """d, and codes of up to `most` for x / d + (most + 1) / 2 (q4_0, q5_0)"""
    import numpy
    half = (most + 1) // 2
    m = _first(x, numpy.abs(x))
    d = numpy.where(m == 0, numpy.float32(0), m) / numpy.float32(-half)
    codes = numpy.trunc(x * _inverse(d) + numpy.float32(half + 0.5))
    return d, numpy.minimum(codes, numpy.float32(most)).astype('u1')


def _write_q4_0(x: F32) -> U8:
    d, codes = _offset_codes(x, 15)
    return _joined((d, 'f16'), _packed(codes))


def _write_q4_1(x: F32) -> U8:
    import numpy
    m = _first(x, -x)
    d = (_first(x, x) - m) / numpy.float32(15)
    codes = numpy.trunc((x - m) * _inverse(d) + numpy.float32(0.5))
    codes = numpy.minimum(codes, numpy.float32(15)).astype('u1')
    return _joined((d, 'f16'), (m, 'f16'), _packed(codes))


def _write_q5_0(x: F32) -> U8:
    import numpy
    d, codes = _offset_codes(x, 31)
    fifth = numpy.packbits(codes >> 4, axis=1, bitorder='little')
    return _joined((d, 'f16'), fifth, _packed(codes & 15))


def _write_int8(x: F32) -> U8:
    import numpy
    s = numpy.abs(x).max(axis=1, keepdims=True) / numpy.float32(127)
    codes = numpy.rint(numpy.clip(_over(x, s), -127, 127)).astype('i1')
    return _joined((s, 'f32'), codes.view('u1'))


def _write_fp8(x: F32) -> U8:
    import numpy
    s = numpy.abs(x).max(axis=1, keepdims=True) / numpy.float32(448)
    return _joined((s, 'f32'), _nearest_fp8(_over(x, s)))


def _nearest_fp8(v: F32) -> U8:
    """The codes of the values nearest to v, with the sign of v; 448 beyond that."""
    import numpy
    size = numpy.minimum(numpy.abs(v), numpy.float32(448))
    exponent = numpy.where(size == 0, -6, numpy.maximum(numpy.frexp(size)[1] - 1, -6))
    steps = numpy.rint(numpy.ldexp(size, 3 - exponent)).astype('i4')     # to 8, of its exponent
    codes: F32 = 8 * (exponent + 6) + steps | numpy.signbit(v) * 128
    return codes.astype('u1')


_ENCODE: dict[str, Callable[[F32], U8]] = {
    'q8_0': _write_q8_0, 'q4_0': _write_q4_0, 'q4_1': _write_q4_1, 'q5_0': _write_q5_0,
           'int8': _write_int8, 'fp8': _write_fp8}
