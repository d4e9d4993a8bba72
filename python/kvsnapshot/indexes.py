"""The indexes of a KV snapshot: what they contain, and their rules (kv-snapshot.md, 4.14 to 4.18).

What is in an index is checked here only as far as the document wants it of every reader."""

from __future__ import annotations

import struct
from collections import namedtuple

from .content import ascend, at_most, exactly, need, u32s
from .rowtypes import ITEM_SIZE
from .sequences import Lazy, Pieces

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from typing import Callable, Sequence

    from .container import Section
    from .content import Check, Layer, Parse, Snapshot
    from .sequences import Numbers

FRONT = 64


class Entries(namedtuple('Entries', 'u heads')):
    """bITS, pAGE: the bytes of each KV head"""

    __slots__ = ()
    u: int
    heads: Sequence[bytes]


class Clusters(namedtuple('Clusters', 'sink ends labels means')):
    """labels: [G] numbers; means: [G] bytes dtype[C][E]"""

    __slots__ = ()
    sink: int
    ends: Numbers[int]
    labels: Sequence[Numbers[int]]
    means: Sequence[bytes]


class LowRank(namedtuple('LowRank', 'chunk rows rank exact left right landmarks')):
    __slots__ = ()
    chunk: int
    rows: int
    rank: int
    exact: Sequence[Numbers[int]]
    left: bytes
    right: Sequence[bytes]
    landmarks: Sequence[bytes]


def padded(at: int) -> int:
    return at + -at % 64


def row_size(snapshot: Snapshot) -> int:
    width: int = snapshot.model['head_width']
    return width * ITEM_SIZE[snapshot.head['dtype']]


# ---- sizes, before anything is read ----

def size_of_entries(item: int | None, most: Callable[[Snapshot, Layer], int]) -> Check:
    """most: bytes behind the front, of the snapshot and the rows of all KV heads."""
    def check(snapshot: Snapshot, section: Section) -> None:
        want = item or ITEM_SIZE[snapshot.head['dtype']]
        need(section.element == want, f'element size {section.element} of {want}')
        need(section.raw_size >= FRONT, f'raw size {section.raw_size}')
        at_most(section, FRONT + most(snapshot, snapshot.layers[section.layer]))
    return check


def most_bits(snapshot: Snapshot, layer: Layer) -> int:
    """With the least group, of 16 rows, there are most bytes for a row."""
    width: int = snapshot.model['head_width']
    return layer.total // 16 * width * 6


def most_pages(snapshot: Snapshot, layer: Layer) -> int:
    return layer.total // 2 * 2 * row_size(snapshot)


def most_clusters(snapshot: Snapshot, layer: Layer) -> int:
    """Each row in a cluster of its own."""
    labels = padded(8 * snapshot.model['kv_heads'] + 4 * layer.total)
    return labels + layer.total * row_size(snapshot)


def most_factors(snapshot: Snapshot, layer: Layer) -> int:
    """Of all rows and all ranks, in chunks of one row."""
    heads: int = snapshot.model['kv_heads']
    rank: int = heads * snapshot.model['head_width']
    n = layer.rows[0]
    return padded(4 * heads * n) + heads * row_size(snapshot) * (n + rank + n)


# ---- the contents ----

def front(snapshot: Snapshot, section: Section, content: bytearray, fields: int) -> tuple[int, ...]:
    """u and the fields (u32) of the first 64 bytes; the hash is that of the keys."""
    words = u32s(content[:FRONT])
    keys = snapshot.layers[section.layer].keys_hash
    need(struct.unpack_from('<Q', content, 8)[0] == keys,
         f'made from other keys: those of this layer have the hash {keys:016x}')
    need(words[1] == 0 and not any(words[4 + fields:]), 'a reserved byte is not zero')
    return (words[0], *words[4:4 + fields])


def entries(content: bytearray, rows: Sequence[int], u: int, size: int) -> Entries:
    """The bytes of each KV head, of so many for u rows."""
    behind = memoryview(content)[FRONT:]
    return Entries(u, Pieces(behind, Lazy(len(rows), lambda g: size * (rows[g] // u))))


def parse_bits(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer, E = snapshot.layers[section.layer], snapshot.model['head_width']
    (u,) = front(snapshot, section, content, 0)
    need(u in (16, 32, 64, 128), f'groups of {u} rows')
    size = E * (4 + u // 8)
    exactly(section, FRONT + size * sum(rows // u for rows in layer.rows))
    layer.bits = entries(content, layer.rows, u, size)
    for g, head in enumerate(layer.bits.heads):
        for i in range(len(head) // size):
            numbers = struct.unpack_from(f'<{2 * E}H', head, i * size)
            where = f'KV head {g} group {i}: '
            need(all(v & 0x7fff < 0x7c00 for v in numbers[:E]), where + 'a zero is not finite')
            need(all(v < 0x7c00 for v in numbers[E:]), where + 'a scale is negative or not finite')


def parse_pages(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer = snapshot.layers[section.layer]
    (u,) = front(snapshot, section, content, 0)
    need(2 <= u <= 65536, f'pages of {u} rows')
    size = 2 * row_size(snapshot)
    exactly(section, FRONT + size * sum(rows // u for rows in layer.rows))
    layer.pages = entries(content, layer.rows, u, size)


def parse_clusters(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer, G = snapshot.layers[section.layer], snapshot.model['kv_heads']
    u, sink = front(snapshot, section, content, 1)
    need(u == 1, f'entries of {u} rows')
    at = FRONT + 8 * G
    need(len(content) >= at, f'raw size {len(content)}')
    bytes_of = memoryview(content)
    counts, ends = u32s(bytes_of[FRONT:FRONT + 4 * G]), u32s(bytes_of[FRONT + 4 * G:at])
    for g, rows in enumerate(layer.rows):
        need(ends[g] <= rows, f'KV head {g}: rows up to {ends[g]} of {rows}')
    sizes = Lazy(G, lambda g: max(ends[g] - sink, 0))
    end, row = at + 4 * sum(sizes), row_size(snapshot)
    exactly(section, padded(end) + row * sum(counts))
    need(not any(bytes_of[end:padded(end)]), 'the gap after the labels is not zero')
    labels = Pieces(u32s(bytes_of[at:end]), sizes)
    for g, own in enumerate(labels):
        need(max(own, default=-1) < counts[g], f'KV head {g}: cluster of {counts[g]}')
        with_row = bytearray(counts[g])
        for label in own:
            with_row[label] = 1
        need(all(with_row), f'KV head {g}: a cluster without a row')
    means = Pieces(bytes_of[padded(end):], Lazy(G, lambda g: row * counts[g]))
    layer.clusters = Clusters(sink, ends, labels, means)


def parse_low_rank(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer, G = snapshot.layers[section.layer], snapshot.model['kv_heads']
    item, row = ITEM_SIZE[snapshot.head['dtype']], row_size(snapshot)
    u, n, r, x = front(snapshot, section, content, 3)
    need(1 <= u <= 65536, f'chunks of {u} rows')
    need(layer.alike or all(p == layer.positions[0] for p in layer.positions),
         'KV heads have other rows')
    need(n % u == 0 and n <= layer.rows[0], f'{n} of {layer.rows[0]} rows in chunks of {u}')
    need(1 <= r <= G * snapshot.model['head_width'], f'rank {r}')
    need(x <= n // u, f'{x} chunks of {n // u}')
    end = FRONT + 4 * G * x
    at, left, right, landmarks = padded(end), item * n * r, row * r, row * (n // u)
    exactly(section, at + left + G * (right + landmarks))
    need(not any(content[end:at]), 'the gap after the chunks is not zero')
    exact = Pieces(u32s(content[FRONT:end]), Lazy(G, lambda g: x))
    for g, own in enumerate(exact):
        need(ascend(own) and max(own, default=-1) < n // u,
             f'KV head {g}: exact chunks do not ascend, or are beyond {n // u}')
    behind = at + left + G * right
    layer.low_rank = LowRank(u, n, r, exact, content[at:at + left],
                             Pieces(content[at + left:behind], Lazy(G, lambda g: right)),
                             Pieces(content[behind:], Lazy(G, lambda g: landmarks)))


SIZES: dict[str, Check] = {
    'bITS': size_of_entries(2, most_bits), 'pAGE': size_of_entries(None, most_pages),
         'cLUS': size_of_entries(None, most_clusters), 'lOWR': size_of_entries(None, most_factors)}
PARSERS: dict[str, Parse] = {
    'bITS': parse_bits, 'pAGE': parse_pages, 'cLUS': parse_clusters, 'lOWR': parse_low_rank}
