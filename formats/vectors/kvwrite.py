"""kvwrite - put KV snapshots together, also false ones, from ../kv-snapshot.md alone.

It shares no code with libkvfile nor with the reader in tests/format. It has its own LZ4
compressor, so that the vectors do not depend on the version of a library. Only xxhash is
needed beyond the standard library. Section numbers in comments are those of the document.

A snapshot is a list of Section. To break one rule, and no other, change a Section before
stream() puts the list together: every size and hash above the change is then made to agree.
"""

import math
import struct

import xxhash

MIB = 1 << 20
NONE = 0xffffffff
MAGIC = b'\x8bKVS\r\n\x1a\n'
UNCOUNTED = ('pADD', 'iNDX', 'ENDS')


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)


def fill(data):
    return data + bytes(-len(data) % 64)


def patch(data, patches):
    """Replace bytes at the given offsets: {offset: bytes}."""
    data = bytearray(data)
    for offset, new in patches.items():
        data[offset:offset + len(new)] = new
    return bytes(data)


def sealed(data, patches):
    """64 bytes whose last eight are the hash of the others, after the patches to these."""
    data = patch(data, {k: v for k, v in patches.items() if k < 56})
    data = data[:56] + struct.pack('<Q', xxh3(data[:56]))
    return patch(data, {k: v for k, v in patches.items() if k >= 56})


# ---- blocks (3.3) ----

def lz4(src):
    """One LZ4 block: greedy, one candidate for each four bytes."""
    out, seen, anchor, i = bytearray(), {}, 0, 0
    while i <= len(src) - 12:
        word = src[i:i + 4]
        candidate = seen.get(word)
        seen[word] = i
        if candidate is None or i - candidate > 65535:
            i += 1
            continue
        end, k = i + 4, candidate + 4
        while end < len(src) - 5 and src[end] == src[k]:
            end += 1
            k += 1
        lz4_sequence(out, src[anchor:i], i - candidate, end - i)
        anchor = i = end
    lz4_sequence(out, src[anchor:], 0, 0)
    return bytes(out)


def lz4_sequence(out, literals, offset, match):
    """Append literals and, unless it is the last sequence, a match of at least four."""
    more = match - 4 if match else 0
    out.append(min(len(literals), 15) << 4 | min(more, 15))
    lz4_length(out, len(literals))
    out += literals
    if match:
        out += struct.pack('<H', offset)
        lz4_length(out, more)


def lz4_length(out, length):
    if length >= 15:
        length -= 15
        out += b'\xff' * (length // 255)
        out.append(length % 255)


def encode(content, codec, element):
    if codec == 2:
        content = b''.join(content[p::element] for p in range(element))
    return content if codec == 0 else lz4(content)


class Block:
    """codec and stored are as if a writer had chosen them; entry: patches to the table entry."""

    def __init__(self, content, codec, element):
        stored = encode(content, codec, element)
        if codec and len(content) - len(stored) < len(content) / 64:
            codec, stored = 0, content
        self.codec, self.stored, self.raw_hash = codec, stored, xxh3(content)
        self.entry = {}

    def table_entry(self):
        return patch(struct.pack('<IB3xQQ', len(self.stored), self.codec, self.raw_hash,
                                 xxh3(self.stored)), self.entry)


# ---- sections (3.2) ----

class Section:
    """header: patches to the section header. table_fill, payload_fill: what should be zero."""

    def __init__(self, kind, content=b'', layer=NONE, element=1, codec=0):
        self.type, self.layer, self.element = kind, layer, element
        self.header = {}
        self.table_fill = self.payload_fill = None
        self.set(content, codec)

    def set(self, content, codec=0):
        self.content = content
        self.blocks = [Block(content[i:i + MIB], codec, self.element)
                       for i in range(0, len(content), MIB)]
        return self

    def table(self):
        return b''.join(block.table_entry() for block in self.blocks)

    def payload(self):
        return b''.join(block.stored for block in self.blocks)

    def head(self):
        return sealed(struct.pack(
            '<4s4sIB3xQQQ24x', b'\xabKVS', self.type.encode(), self.layer, self.element,
            len(self.content), len(self.payload()), xxh3(self.table())), self.header)

    def bytes(self):
        table, payload = fill(self.table()), fill(self.payload())
        if self.table_fill:
            table = table[:-len(self.table_fill)] + self.table_fill
        if self.payload_fill:
            payload = payload[:-len(self.payload_fill)] + self.payload_fill
        return self.head() + table + payload


# ---- the stream (3, 4.9, 4.10) ----

def stream(sections, index=True, late=(), preamble=None, index_patch=None, ends=None,
           ends_codec=0, features=None):
    """The bytes of a snapshot: preamble, the sections with the pADD they need, iNDX, ENDS.

    late: sections between iNDX and ENDS. preamble, index_patch, ends: patches to what these
    contain. features: None for bit 0 where HEAD has row_types, bit 1 where it has latent_rank.
    """
    if features is None:
        features = sum(
            bit * any(s.type == 'HEAD' and name in s.content for s in sections)
            for bit, name in ((1, b'"row_types":'), (2, b'"latent_rank":')))
    front = struct.pack('<8sHHIQ32x', MAGIC, 1, 0, 0x01020304, features)
    out = bytearray(sealed(front, preamble or {}))
    entries, at_index = [], 0
    for section in sections:
        add_padding(out, section)
        if section.type not in UNCOUNTED:
            head = section.head()
            raw_size, stored_size = struct.unpack_from('<QQ', head, 16)
            entries.append(head[4:12] + struct.pack('<QQQ', len(out), stored_size, raw_size))
        out += section.bytes()
    if index:
        section = Section('iNDX', patch(b''.join(entries), index_patch or {}))
        add_padding(out, section)
        at_index = len(out)
        out += section.bytes()
    for section in late:
        out += section.bytes()
    every = [s for s in [*sections, *late] if s.type not in UNCOUNTED]
    content = struct.pack('<8sQQI4x', b'KVSEND\r\n', len(out) + 192, at_index, len(every))
    content += stream_digest(every) + logical_digest(every)
    out += Section('ENDS', patch(content, ends or {}), codec=ends_codec).bytes()
    return bytes(out)


def stream_digest(sections):
    return xxhash.xxh3_128_digest(b''.join(s.head()[56:] for s in sections))


def logical_digest(sections):
    digest = xxhash.xxh3_128()
    for section in sections:
        if section.type[0].isupper():
            head, table = section.head(), section.table()
            digest.update(head[4:12] + head[16:24])
            for at in range(0, len(table), 24):
                digest.update(table[at + 8:at + 16])
    return digest.digest()


def add_padding(out, section):
    """pADD sections, until the payload of a large section starts on a page (3.4)."""
    if len(section.content) >= 1 << 16 and section.type != 'HEAD':
        while (len(out) + 64 + len(fill(section.table()))) % 4096:
            out += Section('pADD').bytes()


# ---- contents (4) ----

def canonical(value):
    """JSON as HEAD wants it (4.1)."""
    if type(value) is dict:
        return '{' + ','.join(f'{canonical(k)}:{canonical(value[k])}'
                              for k in sorted(value)) + '}'
    if type(value) is list:
        return '[' + ','.join(map(canonical, value)) + ']'
    if type(value) is bool:
        return 'true' if value else 'false'
    if type(value) is float:
        text = '%.17g' % value
        return text if '.' in text or 'e' in text else text + '.0'
    if type(value) is int:
        return str(value)
    return '"' + value.replace('\\', '\\\\').replace('"', '\\"') + '"'


def pack(values, dtype):
    """Numbers as bytes of dtype; for bf16 only those that it can hold."""
    if dtype != 'bf16':
        return struct.pack(f"<{len(values)}{ {'f16': 'e', 'f32': 'f'}[dtype] }", *values)
    words = struct.pack(f'<{len(values)}f', *values)
    assert not any(words[0::4] + words[1::4])
    return b''.join(words[i + 2:i + 4] for i in range(0, len(words), 4))


def u32s(values):
    return struct.pack(f'<{len(values)}I', *values)


def positions(lists):
    """POSN (4.3); one list says that all KV heads agree."""
    return u32s([len(lists)] + [len(p) for p in lists] + [p for one in lists for p in one])


def queries(at, data, source=1):
    """oBSq (4.5). data: the queries, with source 2 followed by the own keys."""
    return fill(u32s([source, len(at)] + at)) + data


def query_sums(queries, E, W, b=0):
    """The sums, moduli and products of one query head (4.22), added one query after the other. b:
    the first channel that is rotated."""
    half, lower = W // 2, [(i, j) for i in range(E) for j in range(i + 1)]
    sums, moduli, products = [0.0] * E, [0.0] * half, [0.0] * len(lower)
    for q in queries:
        sums = [s + v for s, v in zip(sums, q)]
        moduli = [m + math.sqrt(q[i] * q[i] + q[i + half] * q[i + half])
                  for i, m in enumerate(moduli, b)]
        products = [p + q[i] * q[j] for p, (i, j) in zip(products, lower)]
    return sums, moduli, products


def query_stats(first, n, heads):
    """qSTa (4.22). heads: for each query head its sums, moduli and products."""
    flat = [v for part in zip(*heads) for own in part for v in own]
    return fill(u32s([first, n])) + struct.pack(f'<{len(flat)}d', *flat)


def mass(lists):
    """mASS (4.11): for each KV head the lists of its query heads."""
    flat = [v for head in lists for one in head for v in one]
    return struct.pack(f'<{len(flat)}f', *flat)


def event(kind, position, n, l0, l1, counts=None):
    """One event of eVNt (4.12). counts: (before, after) of each head, layer after layer."""
    pairs = [rows for pair in counts or [] for rows in pair]
    return u32s([kind, position, n, int(counts is not None), l0, l1] + pairs)


def paid(label, lists):
    """pAID (4.13), lists as in mass()."""
    return label.encode().ljust(192, b'\0') + mass(lists)


def value_norms(label, lists):
    """vNRM (4.23), lists as in mass()."""
    return label.encode().ljust(192, b'\0') + mass(lists)


def scores(label, values):
    """sCOR (4.6), gATE (4.24) and nCAU (4.25)."""
    return label.encode().ljust(192, b'\0') + struct.pack(f'<{len(values)}f', *values)


def head_keys(name, shape, features, data):
    """rHDk (4.19). shape: KV heads, width, tokens. data: the keys."""
    front = fill(name.encode() + u32s([*shape, len(features)]))
    return fill(front + struct.pack(f'<{len(features)}f', *features)) + data


# ---- indexes (4.14 to 4.18); heads: for each KV head a list of rows, which are lists of keys ----

def index_front(u, keys, *fields):
    """The first 64 bytes; keys: the Section KEYS."""
    raw = b''.join(struct.pack('<Q', block.raw_hash) for block in keys.blocks)
    return fill(struct.pack('<IIQ', u, 0, xxh3(raw)) + u32s(fields))


def groups(u, heads):
    """The channels of each whole entry of u rows."""
    for rows in heads:
        for i in range(len(rows) // u):
            yield list(zip(*rows[i * u:i * u + u]))


def single(v):
    """Rounded to f32."""
    try:
        return struct.unpack('<f', struct.pack('<f', v))[0]
    except OverflowError:
        return float('inf') if v > 0 else -float('inf')


def half(v):
    """As f16, not beyond the greatest; 0 for a NaN, and for -0."""
    word = struct.pack('<e', max(-65504.0, min(65504.0, v)) if v == v else 0.0)
    return b'\0\0' if word == b'\0\x80' else word


def bounds(channel):
    """The least and the greatest, 0 for -0; NaN when there is nothing else."""
    numbers = [v + 0.0 for v in channel if v == v] or [float('nan')]
    return min(numbers), max(numbers)


def bits(u, keys, heads):
    """bITS (4.15)."""
    out = index_front(u, keys)
    for channels in groups(u, heads):
        pairs = [bounds(channel) for channel in channels]
        out += b''.join(half(least) for least, _ in pairs)
        out += b''.join(half(single(greatest - least)) for least, greatest in pairs)
        for channel, (least, greatest) in zip(channels, pairs):
            scale = single(greatest - least)
            word = sum((single(v - least) > scale / 2) << i for i, v in enumerate(channel))
            out += word.to_bytes(u // 8, 'little')
    return out


def pages(u, keys, heads, dtype):
    """pAGE (4.16)."""
    out = index_front(u, keys)
    for channels in groups(u, heads):
        for bound in zip(*map(bounds, channels)):
            out += pack(bound, dtype)
    return out


def mean(rows):
    return [sum(channel) / len(rows) for channel in zip(*rows)]


def clusters(sink, ends, labels, keys, heads, dtype):
    """cLUS (4.17). labels: for each KV head those of its rows from sink on."""
    counts = [len(set(own)) for own in labels]
    out = index_front(1, keys, sink) + u32s(counts + ends)
    out = fill(out + b''.join(map(u32s, labels)))
    for rows, own, n in zip(heads, labels, counts):
        for c in range(n):
            members = [row for row, label in zip(rows[sink:], own) if label == c]
            out += pack(mean(members), dtype)
    return out


def low_rank(u, exact, left, right, keys, heads, dtype):
    """lOWR (4.18). left: [n][r], right: [G][E][r], as lists."""
    n = len(left)
    out = index_front(u, keys, n, len(right[0][0]), len(exact[0]))
    out = fill(out + b''.join(map(u32s, exact)))
    for vectors in (left, *right, *([mean(rows[i:i + u]) for i in range(0, n, u)]
                                    for rows in heads)):
        for vector in vectors:
            out += pack(vector, dtype)
    return out
