"""Rows of one section, KEYS or VALS, whatever their type: those that are stored each by itself
(rowtypes.py), and KIVI's (kivi.py)."""

from collections import namedtuple

from . import kivi, rowtypes

TYPES = (*rowtypes.QUANTISED, *kivi.BITS)       # those that are quantised


def misfit(kind, E):
    """Why rows of E numbers cannot be stored in this quantised type; None: they can."""
    if kind not in kivi.BITS:
        return rowtypes.misfit(kind, E)
    return f'{kind} wants a head width that is a multiple of 32, not {E}' if E % 32 else None


class RowStore(namedtuple('RowStore', 'name kind dtype E residual')):
    """name: 'keys' or 'values'; residual: of row_types, None where kind is not KIVI's."""

    __slots__ = ()

    @property
    def grouped(self):
        """Are rows not stored each by itself?"""
        return self.kind in kivi.BITS

    @property
    def element(self):
        """The element size in the header of the section"""
        return rowtypes.ITEM_SIZE.get(self.kind, 1)

    def coded(self, rows):
        """How many rows of a KV head with so many are quantised, the first ones."""
        if self.grouped:
            return kivi.coded(self.name, rows, self.residual)
        return rows if self.kind in rowtypes.QUANTISED else 0

    def size(self, rows):
        """The bytes of the rows of a KV head"""
        if not self.grouped:
            return rows * rowtypes.size(self.kind, self.E)
        return kivi.size(self.kind, self.name, self.E, self.dtype, rows, self.residual)

    def wrong(self, data, rows):
        """What may not be in the content of a section, whose KV heads have so many rows, [G]: where
        and what, '' for nothing."""
        if not self.grouped:
            return self._wrong_rows(data, rows)
        blocks = [kivi.coded_size(self.kind, self.name, self.E, n, self.residual) for n in rows]
        return kivi.wrong_rows(self.kind, self.name, self.E, data,
                               [(b, self.size(n) - b) for b, n in zip(blocks, rows)])

    def _wrong_rows(self, data, rows):
        found = self.kind in rowtypes.QUANTISED and rowtypes.fault(self.kind, self.E, data)
        if not found:
            return ''
        row, what = found
        for g, count in enumerate(rows):
            if row < count:
                return f'KV head {g} row {row}: {what}'
            row -= count

    def numbers(self, data, rows):
        """The rows of a KV head, bytes or an array of u1: their numbers, f32 [rows][E]. Needs
        NumPy."""
        if not self.grouped:
            return rowtypes.numbers(data, self.kind, self.E)
        return kivi.numbers(data, self.kind, self.name, self.E, self.dtype, rows, self.residual)

    def stored(self, x):
        """Numbers f32 [rows][E] as the rows of a KV head, an array of u1. ValueError: this type
        cannot store them. Needs NumPy."""
        if not self.grouped:
            return rowtypes.stored(x, self.kind)
        return kivi.stored(x, self.kind, self.name, self.dtype, self.residual)


def store_of(head, layer, name):
    """How a snapshot with this HEAD stores the 'keys' or 'values' of a layer."""
    types = head.get('row_types', {})
    kind = types[name][layer] if types else head['dtype']
    return RowStore(name, kind, head['dtype'], head['model']['head_width'],
                    types['residual'] if kind in kivi.BITS else None)


def wrong_types(types, dtype, layers, E):
    """What is wrong with row_types of HEAD (4.1), as the end of a message; '' for nothing."""
    if type(types) is not dict:
        return f': {types!r} is no object'
    for name in sorted({'keys', 'values', *types} - {'residual'}):
        if name not in ('keys', 'values'):
            return f'.{name} is not known'
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
    return kivi.residual_fault(types)
