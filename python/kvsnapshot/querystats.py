"""Query statistics, the section qSTa: what it contains, and its rules (kv-snapshot.md, 4.22)."""

from __future__ import annotations

import math
import struct
from collections import namedtuple

from .content import exactly, need
from .sequences import Lazy, Pieces, numbers

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from .container import Section
    from .content import Check, Parse, Snapshot
    from .sequences import Numbers

FRONT = 64
ELEMENT = 4


class QueryStats(namedtuple('QueryStats', 'first n sums moduli products')):
    """For each query head numbers in f64: sums [E]; moduli [W/2]; products, the lower triangle of
    [E][E]"""

    __slots__ = ()
    first: int
    n: int
    sums: Sequence[Numbers[float]]
    moduli: Sequence[Numbers[float]]
    products: Sequence[Numbers[float]]


def rotated(model: dict[str, Any], layer: int) -> int:
    """How many channels of a query rotary embedding rotates in this layer (4.1)."""
    rope = model['rope']
    if 'skip' in rope and (layer + 1) % rope['skip'] == 0:
        return 0
    width: int = rope.get('width', model['head_width'])
    return width


def shape(model: dict[str, Any], layer: int) -> tuple[int, int, int]:
    """How many sums, moduli and products there are of a query head."""
    E = model['head_width']
    return E, rotated(model, layer) // 2, E * (E + 1) // 2


def size_of_stats(snapshot: Snapshot, section: Section) -> None:
    need(section.element == ELEMENT, f'element size {section.element} of {ELEMENT}')
    exactly(section, FRONT + 8 * snapshot.model['query_heads'] *
            sum(shape(snapshot.model, section.layer)))


def parse_stats(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    heads, sizes = snapshot.model['query_heads'], shape(snapshot.model, section.layer)
    first, n = struct.unpack_from('<II', content)
    need(not any(content[8:FRONT]), 'a reserved byte is not zero')
    values, at = numbers(memoryview(content)[FRONT:], 'd'), 0
    parts: list[Sequence[Numbers[float]]] = []
    for size in sizes:
        parts.append(heads_of(values[at:at + heads * size], heads, size))
        at += heads * size
    stats = QueryStats(first, n, *parts)
    for name in ('sums', 'moduli', 'products'):
        check_finite(name, getattr(stats, name))
    check_positive(stats)
    need(n or not any(content[FRONT:]), 'no query, and a number that is not zero')
    snapshot.layers[section.layer].query_stats = stats


def heads_of(values: Numbers[float], heads: int, size: int) -> Sequence[Numbers[float]]:
    return Pieces(values, Lazy(heads, lambda h: size))


def check_finite(name: str, heads: Iterable[Numbers[float]]) -> None:
    for h, values in enumerate(heads):
        if not all(map(math.isfinite, values)):
            at = next(i for i, v in enumerate(values) if not math.isfinite(v))
            raise_at(h, name, at, 'is not finite')


def check_positive(stats: QueryStats) -> None:
    """Moduli and the products of a channel with itself have no sign bit."""
    for h, (moduli, products) in enumerate(zip(stats.moduli, stats.products)):
        for i, modulus in enumerate(moduli):
            if math.copysign(1, modulus) < 0:
                raise_at(h, 'moduli', i, 'is negative')
        E = len(stats.sums[h])
        for at in (i * (i + 3) // 2 for i in range(E)):
            if math.copysign(1, products[at]) < 0:
                raise_at(h, 'products', at, 'is negative, and a sum of squares')


def raise_at(h: int, name: str, at: int, what: str) -> None:
    need(False, f'query head {h}: number {at} of the {name} {what}')


SIZES: dict[str, Check] = {'qSTa': size_of_stats}
PARSERS: dict[str, Parse] = {'qSTa': parse_stats}
