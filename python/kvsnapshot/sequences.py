"""What sections of numbers become: sequences that are used as lists are (length, index, slice, ==,
+), and have no more in memory than the section has bytes. What they give is made when it is asked
for."""

import operator
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate


class Listlike(Sequence):
    """What is common to all: they equal a list of the same items, and added to one give one."""

    __slots__ = ()

    def __eq__(self, other):
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __lt__(self, other):
        return list(self) < list(other)

    def __add__(self, other):
        return [*self, *other]

    def __radd__(self, other):
        return [*other, *self]

    def __repr__(self):
        return repr(list(self))


class Numbers(Listlike):
    """u32, f32 or f64 numbers. view: a memoryview of them. A slice is one of the same bytes."""

    __slots__ = ('view',)

    def __init__(self, view):
        self.view = view

    def __len__(self):
        return len(self.view)

    def __getitem__(self, at):
        return Numbers(self.view[at]) if isinstance(at, slice) else self.view[at]

    def __iter__(self):
        return iter(self.view)

    def __eq__(self, other):
        return self.view == other.view if isinstance(other, Numbers) else super().__eq__(other)

    def __array__(self, dtype=None, copy=None):
        """NumPy's array of them, a copy; as that of a list of 64 bits, when no type is asked
        for."""
        import numpy
        usual = 'i8' if self.view.format == 'I' else 'f8'
        return numpy.asarray(self.view).astype(dtype or usual)

    def tolist(self):
        return self.view.tolist()


def numbers(data, code):
    """Bytes of u32 (code 'I'), f32 ('f') or f64 ('d'), little-endian on any machine, as
    Numbers."""
    view = memoryview(data)
    if sys.byteorder == 'big':
        swapped = array(code, view.tobytes())
        swapped.byteswap()
        return Numbers(memoryview(swapped))
    return Numbers(view.cast(code))


class Made(Listlike):
    """len(self) items, which self._item(i) makes, each time anew."""

    __slots__ = ()

    def __getitem__(self, at):
        which = range(len(self))[at]
        return list(map(self._item, which)) if isinstance(at, slice) else self._item(which)

    def __iter__(self):
        return map(self._item, range(len(self)))


class Lazy(Made):
    """n items, which the function item makes of their numbers."""

    __slots__ = ('_n', '_item')

    def __init__(self, n, item):
        self._n, self._item = n, item

    def __len__(self):
        return self._n


class Pieces(Made):
    """The pieces of data, bytes or Numbers, of these sizes, one behind the other."""

    __slots__ = ('_data', '_sizes', '_ends')

    def __init__(self, data, sizes):
        self._data, self._sizes, self._ends = data, sizes, None

    def __len__(self):
        return len(self._sizes)

    def _item(self, i):
        if self._ends is None:          # of many KV heads without rows nobody may ask for one
            self._ends = array('Q', accumulate(self._sizes))
        piece = self._data[self._ends[i - 1] if i else 0:self._ends[i]]
        return piece if isinstance(piece, Numbers) else bytes(piece)
