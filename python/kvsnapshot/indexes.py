"""The indexes of a KV snapshot: what they contain, and their rules (kv-snapshot.md, 4.14 to 4.18).

What is in an index is checked here only as far as the document wants it of every reader."""

import struct
from collections import namedtuple

from .content import ITEM_SIZE, need, u32s

FRONT = 64
Entries = namedtuple('Entries', 'u heads')      # bITS, pAGE: bytes of each KV head
Clusters = namedtuple('Clusters', 'sink ends labels means')     # lists; means: dtype[C][E] each
LowRank = namedtuple('LowRank', 'chunk rows rank exact left right landmarks')


def front(snapshot, section, content, fields):
    """u and the fields (u32) of the first 64 bytes; the hash is that of the keys."""
    need(len(content) >= FRONT, f'raw size {len(content)}')
    item = 2 if section.type == 'bITS' else ITEM_SIZE[snapshot.head['dtype']]
    need(section.element == item, f'element size {section.element} of {item}')
    words = u32s(content[:FRONT])
    keys = snapshot.layers[section.layer].keys_hash
    need(struct.unpack_from('<Q', content, 8)[0] == keys,
         f'made from other keys: those of this layer have the hash {keys:016x}')
    need(words[1] == 0 and not any(words[4 + fields:]), 'a reserved byte is not zero')
    return (words[0], *words[4:4 + fields])


def exactly(content, want):
    need(len(content) == want, f'raw size {len(content)} of {want}')


def split(data, sizes):
    """The pieces of data, which has just these sizes."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at:at + size])
        at += size
    return pieces


def padded(at):
    return at + -at % 64


def parse_bits(snapshot, section, content):
    layer, E = snapshot.layers[section.layer], snapshot.model['head_width']
    (u,) = front(snapshot, section, content, 0)
    need(u in (16, 32, 64, 128), f'groups of {u} rows')
    size = E * (4 + u // 8)
    exactly(content, FRONT + size * sum(rows // u for rows in layer.rows))
    heads = split(content[FRONT:], [size * (rows // u) for rows in layer.rows])
    for g, head in enumerate(heads):
        for i in range(len(head) // size):
            numbers = struct.unpack_from(f'<{2 * E}H', head, i * size)
            where = f'KV head {g} group {i}: '
            need(all(v & 0x7fff < 0x7c00 for v in numbers[:E]), where + 'a zero is not finite')
            need(all(v < 0x7c00 for v in numbers[E:]), where + 'a scale is negative or not finite')
    layer.bits = Entries(u, heads)


def parse_pages(snapshot, section, content):
    layer = snapshot.layers[section.layer]
    (u,) = front(snapshot, section, content, 0)
    need(2 <= u <= 65536, f'pages of {u} rows')
    size = 2 * snapshot.model['head_width'] * ITEM_SIZE[snapshot.head['dtype']]
    exactly(content, FRONT + size * sum(rows // u for rows in layer.rows))
    layer.pages = Entries(u, split(content[FRONT:], [size * (rows // u) for rows in layer.rows]))


def parse_clusters(snapshot, section, content):
    layer, G = snapshot.layers[section.layer], snapshot.model['kv_heads']
    u, sink = front(snapshot, section, content, 1)
    need(u == 1, f'entries of {u} rows')
    at = FRONT + 8 * G
    need(len(content) >= at, f'raw size {len(content)}')
    counts, ends = u32s(content[FRONT:FRONT + 4 * G]), u32s(content[FRONT + 4 * G:at])
    for g, rows in enumerate(layer.rows):
        need(ends[g] <= rows, f'KV head {g}: rows up to {ends[g]} of {rows}')
    sizes = [max(end - sink, 0) for end in ends]
    end = at + 4 * sum(sizes)
    row = snapshot.model['head_width'] * ITEM_SIZE[snapshot.head['dtype']]
    exactly(content, padded(end) + row * sum(counts))
    need(not any(content[end:padded(end)]), 'the gap after the labels is not zero')
    labels = [u32s(piece) for piece in split(content[at:end], [4 * size for size in sizes])]
    for g, own in enumerate(labels):
        need(all(label < counts[g] for label in own), f'KV head {g}: cluster of {counts[g]}')
        need(len(set(own)) == counts[g], f'KV head {g}: a cluster without a row')
    layer.clusters = Clusters(sink, ends, labels, split(content[padded(end):],
                                                        [row * n for n in counts]))


def parse_low_rank(snapshot, section, content):
    layer, G = snapshot.layers[section.layer], snapshot.model['kv_heads']
    item, E = ITEM_SIZE[snapshot.head['dtype']], snapshot.model['head_width']
    u, n, r, x = front(snapshot, section, content, 3)
    need(1 <= u <= 65536, f'chunks of {u} rows')
    need(all(p == layer.positions[0] for p in layer.positions), 'KV heads have other rows')
    need(n % u == 0 and n <= layer.rows[0], f'{n} of {layer.rows[0]} rows in chunks of {u}')
    need(1 <= r <= G * E, f'rank {r}')
    need(x <= n // u, f'{x} chunks of {n // u}')
    end = FRONT + 4 * G * x
    sizes = [item * n * r] + G * [item * E * r] + G * [item * (n // u) * E]
    exactly(content, padded(end) + sum(sizes))
    need(not any(content[end:padded(end)]), 'the gap after the chunks is not zero')
    exact = [u32s(piece) for piece in split(content[FRONT:end], G * [4 * x])]
    for g, own in enumerate(exact):
        need(all(a < b for a, b in zip(own, own[1:] + [n // u])),
             f'KV head {g}: exact chunks do not ascend, or are beyond {n // u}')
    left, *others = split(content[padded(end):], sizes)
    layer.low_rank = LowRank(u, n, r, exact, left, others[:G], others[G:])


PARSERS = {'bITS': parse_bits, 'pAGE': parse_pages, 'cLUS': parse_clusters, 'lOWR': parse_low_rank}
