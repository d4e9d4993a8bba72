"""What sections of numbers become: sequences that are used as lists are (length, index, slice, ==,
+), and have no more in memory than the section has bytes. What they give is made when it is asked
for."""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate

TYPE_CHECKING = False       # typing takes time to load, NumPy more
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, Literal, TypeVar, Union

    import numpy.typing as npt
    T = TypeVar('T')
    Bytes = Union[bytes, bytearray, memoryview]
else:
    T = Any = object        # nobody asks what they stand for


class Listlike(Sequence[T]):
    """What is common to all: they equal a list of the same items, and added to one give one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __lt__(self, other: Iterable[T]) -> bool:
        return list(self) < list(other)

    def __add__(self, other: Iterable[T]) -> list[T]:
        return [*self, *other]

    def __radd__(self, other: Iterable[T]) -> list[T]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))


class Numbers(Listlike[T]):
    """u32, f32 or f64 numbers. view: a memoryview of them. A slice is one of the same bytes."""

    __slots__ = ('view',)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, at: Any) -> Any:
        return Numbers(self.view[at]) if isinstance(at, slice) else self.view[at]

    def __iter__(self) -> Iterator[T]:
        each: Iterator[Any] = iter(self.view)
        return each

    def __eq__(self, other: object) -> bool:
        return self.view == other.view if isinstance(other, Numbers) else super().__eq__(other)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """NumPy's array of them, a copy; as that of a list of 64 bits, when no type is asked
        for."""
        import numpy
        usual = 'i8' if self.view.format == 'I' else 'f8'
        return numpy.asarray(self.view).astype(dtype or usual)

    def tolist(self) -> list[Any]:
        return self.view.tolist()


def numbers(data: Bytes, code: Literal['I', 'f', 'd']) -> Numbers[Any]:
    """Bytes of u32 (code 'I'), f32 ('f') or f64 ('d'), little-endian on any machine, as
    Numbers."""
    view = memoryview(data)
    if sys.byteorder == 'big':
        swapped = array(code, view.tobytes())
        swapped.byteswap()
        return Numbers(memoryview(swapped))
    each: Any = view.cast(code)
    return Numbers(each)


class Made(Listlike[T]):
    """len(self) items, which self._item(i) makes, each time anew."""

    __slots__ = ()

    def __getitem__(self, at: Any) -> Any:
        which = range(len(self))[at]
        return list(map(self._item, which)) if isinstance(at, slice) else self._item(which)

    def __iter__(self) -> Iterator[T]:
        return map(self._item, range(len(self)))

    if TYPE_CHECKING:       # an attribute, or a function, of each class
        def _item(self, i: int) -> T: ...


class Lazy(Made[T]):
    """n items, which the function item makes of their numbers."""

    __slots__ = ('_n', '_item')

    def __init__(self, n: int, item: Callable[[int], T]) -> None:
        self._n = n
        self._item = item           # type: ignore

    def __len__(self) -> int:
        return self._n


class Pieces(Made[Any]):
    """The pieces of data, bytes or Numbers, of these sizes, one behind the other."""

    __slots__ = ('_data', '_sizes', '_ends')

    def __init__(self, data: Bytes | Numbers[Any], sizes: Sequence[int]) -> None:
        self._data, self._sizes = data, sizes
        self._ends: array[int] | None = None

    def __len__(self) -> int:
        return len(self._sizes)

    def _item(self, i: int) -> Any:
        if self._ends is None:          # of many KV heads without rows nobody may ask for one
            self._ends = array('Q', accumulate(self._sizes))
        piece = self._data[self._ends[i - 1] if i else 0:self._ends[i]]
        return piece if isinstance(piece, Numbers) else bytes(piece)
