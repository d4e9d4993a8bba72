"""Rows of one section, KEYS or VALS, whatever their type: elements of dtype, rows that are
quantised each by itself (rowtypes.py), or KIVI's (kivi.py). With a residual the last rows of each
KV head of a quantised section are full: elements of dtype (kv-snapshot.md, 4.20 and 4.21)."""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False       # typing takes time to load, NumPy more
if TYPE_CHECKING:
    from typing import Any, Sequence, Union

    import numpy
    import numpy.typing as npt
    Bytes = Union[bytes, bytearray, memoryview, npt.NDArray[numpy.uint8]]

from . import kivi, rowtypes

TYPES = (*rowtypes.QUANTISED, *kivi.BITS)       # those that are quantised
MOST = 4096                                     # the greatest residual


def misfit(kind: str, E: int) -> str | None:
    """Why rows of E numbers cannot be stored in this quantised type; None: they can."""
    if kind not in kivi.BITS:
        return rowtypes.misfit(kind, E)
    return f'{kind} wants a head width that is a multiple of 32, not {E}' if E % 32 else None


class RowStore(namedtuple('RowStore', 'name kind dtype E residual')):
    """name: 'keys' or 'values'; residual: of row_types, None where it has none, or kind is
    dtype."""

    __slots__ = ()
    name: str
    kind: str
    dtype: str
    E: int
    residual: int | None

    @property
    def alike(self) -> bool:
        """Is each row stored by itself, and all of them in the same way?"""
        return self.residual is None

    @property
    def grouped(self) -> bool:
        """Are rows quantised 32 at a time, and not each by itself?"""
        return self.kind in kivi.BITS and self.name == 'keys'

    @property
    def element(self) -> int:
        """The element size in the header of the section"""
        return rowtypes.ITEM_SIZE.get(self.kind, 1)

    def coded(self, rows: int) -> int:
        """How many rows of a KV head with so many are not full, the first ones. All, if alike."""
        if self.residual is None:
            return rows
        return rows - rows % self.residual if self.grouped else max(rows - self.residual, 0)

    def coded_size(self, rows: int) -> int:
        """The bytes of these"""
        one = kivi.row_size if self.kind in kivi.BITS else rowtypes.size
        return self.coded(rows) * one(self.kind, self.E)

    def size(self, rows: int) -> int:
        """The bytes of the rows of a KV head"""
        full = rows - self.coded(rows)
        return self.coded_size(rows) + full * rowtypes.size(self.dtype, self.E)

    def wrong(self, data: Any, rows: Sequence[int]) -> str:
        """What may not be in the content of a section, whose KV heads have so many rows, [G]: where
        and what, '' for nothing."""
        if self.kind == self.dtype:
            return ''
        if self.alike:
            return self._wrong_rows(data, rows)
        at, data = 0, memoryview(data)
        for g, n in enumerate(rows):
            found = self._fault(data[at:at + self.coded_size(n)])
            if found:
                return f'KV head {g} {found}'
            at += self.size(n)
        return ''

    def _fault(self, codes: memoryview) -> str:
        """The same of the quantised rows of a KV head"""
        if self.kind in kivi.BITS:
            return kivi.fault(self.kind, self.name, self.E, codes)
        found = rowtypes.fault(self.kind, self.E, codes)
        return 'row %d: %s' % found if found else ''

    def _wrong_rows(self, data: Any, rows: Sequence[int]) -> str:
        """As wrong(); one look at all rows, for the sake of many KV heads."""
        found = rowtypes.fault(self.kind, self.E, data)
        if not found:
            return ''
        row, what = found
        for g, count in enumerate(rows):
            if row < count:
                return f'KV head {g} row {row}: {what}'
            row -= count
        return what                     # not reached: some KV head has the row

    def numbers(self, data: Bytes, rows: int) -> npt.NDArray[numpy.float32]:
        """The rows of a KV head, bytes or an array of u1: their numbers, f32 [rows][E]. Needs
        NumPy."""
        import numpy
        if self.alike:
            return rowtypes.numbers(data, self.kind, self.E)
        flat = numpy.frombuffer(data, 'u1') if not isinstance(data, numpy.ndarray) else data
        codes, full = numpy.split(flat, [self.coded_size(rows)])
        if self.kind in kivi.BITS:
            codes = kivi.numbers(codes, self.kind, self.name, self.E)
        else:
            codes = rowtypes.numbers(codes, self.kind, self.E)
        return numpy.concatenate([codes, rowtypes.numbers(full, self.dtype, self.E)])

    def stored(self, x: npt.ArrayLike) -> npt.NDArray[numpy.uint8]:
        """Numbers f32 [rows][E] as the rows of a KV head, an array of u1: [rows][bytes of a row] if
        alike, else flat. ValueError: this type cannot store them. Needs NumPy."""
        import numpy
        if self.alike:
            return rowtypes.stored(x, self.kind)
        x = numpy.asarray(x, '<f4')
        codes, full = numpy.split(x, [self.coded(len(x))])
        if self.kind in kivi.BITS:
            codes = kivi.stored(codes, self.kind, self.name)
        else:
            codes = rowtypes.stored(codes, self.kind)
        return numpy.concatenate([codes.reshape(-1), rowtypes.narrow(full, self.dtype).reshape(-1)])


class InKeys(RowStore):
    """Values that are the first channels of keys (4.26): a row has no bytes here."""

    __slots__ = ()

    def coded_size(self, rows: int) -> int:
        return 0

    def size(self, rows: int) -> int:
        return 0

    def wrong(self, data: Any, rows: Sequence[int]) -> str:
        return ''

    def numbers(self, data: Bytes, rows: int) -> npt.NDArray[numpy.float32]:
        raise ValueError('values are channels of the keys')

    def stored(self, x: npt.ArrayLike) -> npt.NDArray[numpy.uint8]:
        raise ValueError('values are channels of the keys')


def store_of(head: dict[str, Any], layer: int, name: str) -> RowStore:
    """How a snapshot with this HEAD stores the 'keys' or 'values' of a layer."""
    types = head.get('row_types', {})
    kind = types[name][layer] if types else head['dtype']
    make = InKeys if name == 'values' and 'latent_rank' in head['model'] else RowStore
    return make(name, kind, head['dtype'], head['model']['head_width'],
                types.get('residual') if kind in TYPES else None)


def unknown_types(types: Any) -> str:
    """What of row_types of HEAD (4.1) is of a later version, as a part of a message; ''."""
    if type(types) is not dict:
        return ''
    for name in types:
        if name not in ('keys', 'values', 'residual'):
            return f'.{name}'
    for name in ('keys', 'values'):
        kinds = types.get(name)
        for l, kind in enumerate(kinds if type(kinds) is list else ()):
            if type(kind) is str and kind not in TYPES and kind not in rowtypes.ITEM_SIZE:
                return f'.{name} layer {l}: {kind!r}'
    return ''


def wrong_types(types: Any, dtype: str, layers: int, E: int) -> str:
    """What is wrong with row_types of HEAD (4.1), as the end of a message; '' for nothing."""
    if type(types) is not dict:
        return f': {types!r} is no object'
    for name in ('keys', 'values'):
        if type(types.get(name)) is not list:
            return f'.{name} is missing, or no list'
        if len(types[name]) != layers:
            return f'.{name}: types of {len(types[name])} layers of {layers}'
        for l, kind in enumerate(types[name]):
            if type(kind) is not str or kind not in (dtype, *TYPES):
                return f'.{name} layer {l}: {kind!r} is neither dtype nor a quantised type'
            if kind in TYPES and misfit(kind, E):
                return f'.{name} layer {l}: {misfit(kind, E)}'
    if all(kind == dtype for name in ('keys', 'values') for kind in types[name]):
        return ': no type is quantised'
    return _wrong_residual(types)


def _wrong_residual(types: dict[str, Any]) -> str:
    """The same of its residual; the types of rows are right."""
    by_groups = any(kind in kivi.BITS for name in ('keys', 'values') for kind in types[name])
    if 'residual' not in types:
        return '.residual is missing: a type is kivi2 or kivi4' if by_groups else ''
    R, step = types['residual'], kivi.GROUP if by_groups else 1
    if type(R) is int and step <= R <= MOST and R % step == 0:
        return ''
    if by_groups:
        return f'.residual: {R!r} is no multiple of {step} from {step} to {MOST}'
    return f'.residual: {R!r} is no integer from 1 to {MOST}'
