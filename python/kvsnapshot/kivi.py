"""KIVI's types (kv-snapshot.md, 4.21): keys quantised by channel, values by token, in 2 or 4 bits.

What is here is about the blocks of one KV head, those of its first rows; rowstore.py says how many
these are, and has the full rows behind them. name is 'keys' or 'values'. What a reader needs for
its checks does without NumPy."""

from __future__ import annotations

from .rowtypes import widen, without_value

TYPE_CHECKING = False       # typing takes time to load, NumPy more
if TYPE_CHECKING:
    from typing import Any

    import numpy
    import numpy.typing as npt

BITS = {'kivi2': 2, 'kivi4': 4}         # of a code, by type
GROUP = 32                              # numbers of a block; rows of a group of keys
USUAL = 128                             # residual of the paper


def block_size(kind: str) -> int:
    return 4 + GROUP * BITS[kind] // 8


def row_size(kind: str, E: int) -> int:
    """The bytes of a row: of keys those of a group over its rows"""
    return E // GROUP * block_size(kind)


def fault(kind: str, name: str, E: int, data: Any) -> str:
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


# ---- with NumPy ----

def numbers(blocks: npt.NDArray[numpy.uint8], kind: str, name: str,
            E: int) -> npt.NDArray[numpy.float32]:
    """Blocks, a flat array of u1: their numbers, f32 [rows][E]."""
    first = _read_blocks(blocks.reshape(-1, block_size(kind)), BITS[kind])
    if name == 'keys':          # [groups][E][32]
        first = first.reshape(-1, E, GROUP).transpose(0, 2, 1)
    return first.reshape(-1, E)


def _read_blocks(blocks: npt.NDArray[numpy.uint8], bits: int) -> npt.NDArray[numpy.float32]:
    """u1 [n][bytes of a block] as f32 [n][32]"""
    import numpy
    scale, least = (widen(blocks[:, at:at + 2].tobytes(), 'f16')[:, None] for at in (0, 2))
    shifts = numpy.arange(0, 8, bits, dtype='u1')
    codes = blocks[:, 4:, None] >> shifts & (1 << bits) - 1
    values: npt.NDArray[numpy.float32] = codes.reshape(-1, GROUP).astype('<f4') * scale + least
    return values


def stored(x: npt.ArrayLike, kind: str, name: str) -> npt.NDArray[numpy.uint8]:
    """Numbers [rows][E], in f32, as blocks: a flat array of u1. Keys are whole groups of rows.
    ValueError: E is no multiple of 32, or some rows cannot be quantised."""
    import numpy
    x = numpy.ascontiguousarray(x, '<f4')
    E = x.shape[1]
    if E % GROUP:
        raise ValueError(f'{kind} wants a head width that is a multiple of {GROUP}, not {E}')
    with numpy.errstate(over='ignore'):
        half = x.astype('<f2')
    finite = numpy.isfinite(half).all(axis=1)
    if not finite.all():
        raise ValueError(f'row {int(finite.argmin())}: a number is not finite in f16')
    if name == 'keys':
        half = half.reshape(-1, GROUP, E).transpose(0, 2, 1)
    blocks = _write_blocks(half.reshape(-1, GROUP), BITS[kind]).reshape(-1)
    found = fault(kind, name, E, blocks)
    if found:
        raise ValueError(found)
    return blocks


def _write_blocks(x: npt.NDArray[numpy.float16], bits: int) -> npt.NDArray[numpy.uint8]:
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
