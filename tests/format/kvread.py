#!/usr/bin/env python3
"""kvread - read one KV snapshot, check every rule of formats/kv-snapshot.md, print it.

This reader is made from that document alone and shares no code with libkvfile: it is the
second opinion in tests. It is written to be read, not to be fast, and keeps a whole snapshot
in memory. Section numbers in comments are those of the document.

	kvread.py [--json] FILE|-      text dump, or JSON; exit 3: bad file, 5: unsupported, 1: I/O

As a module: read(file) returns a Snapshot or raises Bad (of which Unsupported is one kind).
"""

import json
import math
import struct
import sys
from collections import namedtuple

import xxhash

import kvdump

MAGIC = b'\x8bKVS\r\n\x1a\n'
MARK = b'\xabKVS'
END_MAGIC = b'KVSEND\r\n'
NONE = 0xffffffff
MIB = 1 << 20
ITEM_SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}
OF_LAYER = tuple((name, name.isupper()) for name in 'POSN oBSq mASS sCOR KEYS VALS'.split())
AFTER_LAYERS = (('LGTS', False), ('pROv', False), ('iNDX', False), ('ENDS', True))
KNOWN = {'HEAD', 'TOKS', 'pADD'} | {name for name, _ in OF_LAYER + AFTER_LAYERS}
UNCOUNTED = ('pADD', 'iNDX', 'ENDS')     # in no digest, no index, no number of sections


class Bad(Exception):
    """The input is damaged or contradicts the document."""
    status = 3


class Unsupported(Bad):
    """A greater version, an unknown feature or an unknown critical type."""
    status = 5


def need(condition, message):
    if not condition:
        raise Bad(message)


Block = namedtuple('Block', 'stored_size codec raw_hash stored_hash')
Queries = namedtuple('Queries', 'source positions data')        # data: dtype[H][W][E]
Scores = namedtuple('Scores', 'label values')                   # values: one list per KV head


class Section:
    """One section header, with the block table once it has been read."""

    def __init__(self, offset, header):
        self.offset = offset
        (_, kind, self.layer, self.element, self.raw_size, self.stored_size,
         self.table_hash, self.hash) = struct.unpack('<4s4sIB3xQQQ16xQ', header)
        self.type = kind.decode('latin-1')
        self.blocks = []

    @property
    def name(self):
        return self.type if self.layer == NONE else f'{self.type} layer {self.layer}'

    def __str__(self):
        return f'{self.name} at byte {self.offset}'


class Layer:
    """What one layer holds. keys and values: dtype[sum of rows][E], KV head after KV head."""

    def __init__(self, positions):
        self.positions = positions           # one list per KV head
        self.rows = [len(p) for p in positions]
        self.queries = None
        self.mass = None                     # per KV head, per query head of it: a list
        self.scores = None
        self.keys = self.values = None
        self.others = []                     # (type, content) of unknown ancillary sections


class Snapshot:
    def __init__(self):
        self.features = 0
        self.head = self.tokens = self.logits = None
        self.layers = []
        self.provenance = []
        self.others = []                     # (type, content), those without a layer
        self.sections = []                   # every Section, in order
        self.size = 0
        self.stream_digest = self.logical_digest = None    # as hexadecimal

    @property
    def model(self):
        return self.head['model']

    def head_rows(self, layer, name, g):
        """The bytes of 'keys' or 'values' of one KV head: dtype[rows][E]."""
        this = self.layers[layer]
        row = self.model['head_width'] * ITEM_SIZE[self.head['dtype']]
        start = sum(this.rows[:g]) * row
        return getattr(this, name)[start:start + this.rows[g] * row]

    def array(self, layer, name, g):
        """The same as a numpy array [rows][E] of f32. Needs numpy."""
        return widen(self.head_rows(layer, name, g), self.head['dtype']).reshape(
            -1, self.model['head_width'])


def widen(data, dtype):
    """Bytes of dtype as a flat numpy array of f32; exact."""
    import numpy
    if dtype == 'bf16':
        return (numpy.frombuffer(data, '<u2').astype('<u4') << 16).view('<f4')
    return numpy.frombuffer(data, {'f16': '<f2', 'f32': '<f4'}[dtype]).astype('<f4')


class Source:
    """A stream read front to back, which knows its offset."""

    def __init__(self, file):
        self.file = file
        self.offset = 0

    def take(self, size, what):
        """Exactly size bytes, piece by piece: a false size allocates no more than there is."""
        pieces = []
        while size > 0:
            piece = self.file.read(min(size, MIB))
            need(piece, f'{what}: truncated at byte {self.offset}')
            pieces.append(piece)
            self.offset += len(piece)
            size -= len(piece)
        return b''.join(pieces)

    def fill(self, what):
        """The zero bytes up to the next multiple of 64."""
        at = self.offset
        fill = self.take(-at % 64, what)
        need(not any(fill), f'{what}: fill at byte {at} is not zero')


class Order:
    """The order of sections (3.5): a plan of (type, layer, required), walked once."""

    def __init__(self):
        self.plan = [('HEAD', NONE, True), ('TOKS', NONE, True)]
        self.next = 0
        self.layer = NONE

    def plan_layers(self, layers):
        for n in range(layers):
            self.plan += [(name, n, required) for name, required in OF_LAYER]
        self.plan += [(name, NONE, required) for name, required in AFTER_LAYERS]

    def accept(self, section):
        if section.type in KNOWN and section.type != 'pADD':
            self.advance(section)
        elif section.type == 'pADD':
            need(self.next >= 1, 'order: before HEAD')
            need(section.layer == NONE, 'belongs to a layer')
        else:
            need(self.next >= 2, 'order: before TOKS')
            need(self.plan[self.next - 1][0] != 'iNDX', 'order: after iNDX')
            need(section.layer in (NONE, self.layer), 'order: not among its layer')

    def advance(self, section):
        while True:
            name, layer, required = self.plan[self.next]
            self.next += 1
            if (name, layer) == (section.type, section.layer):
                break
            due = name if layer == NONE else f'{name} layer {layer}'
            need(not required, f'order: {due} is due')
        if name == 'POSN':
            self.layer = layer


# ---- the stream (3) ----

def read_preamble(source, snapshot):
    data = source.take(64, 'preamble')
    need(data[:8] == MAGIC, 'preamble: wrong magic, not a KV snapshot')
    need(struct.unpack_from('<Q', data, 56)[0] == xxh3(data[:56]), 'preamble: checksum')
    version, zero, order, features = struct.unpack_from('<HHIQ', data, 8)
    if version > 1:
        raise Unsupported(f'preamble: version {version} is not known')
    need(version == 1, 'preamble: version 0')
    for bit in range(64):
        if features >> bit & 1:
            raise Unsupported(f'preamble: feature bit {bit} is not known')
    need(zero == 0 and not any(data[24:56]), 'preamble: a reserved byte is not zero')
    need(order == 0x01020304, 'preamble: wrong byte order')
    snapshot.features = features


def read_header(source):
    offset = source.offset
    data = source.take(64, f'section header at byte {offset}, no ENDS yet')
    section = Section(offset, data)
    where = f'section header at byte {offset}'
    need(section.hash == xxh3(data[:56]), f'{where}: checksum')
    need(data[:4] == MARK, f'{where}: wrong mark')
    need(not any(data[13:16] + data[40:56]), f'{section}: a reserved byte is not zero')
    need(data[4:8].isalpha(), f'{where}: type {data[4:8]!r} is not four letters')
    need(section.type[2].isupper(), f'{section}: third letter of the type is lower case')
    if section.type not in KNOWN and section.type[0].isupper():
        raise Unsupported(f'{section}: unknown critical type')
    need(section.element in (1, 2, 4), f'{section}: element size {section.element}')
    need(section.raw_size <= 255 * section.stored_size,
         f'{section}: raw size {section.raw_size} of stored size {section.stored_size}')
    return section


def read_content(source, section):
    """The checked and decoded content of a section whose header has been read (3.3)."""
    count = -(-section.raw_size // MIB)
    table = source.take(24 * count, f'{section}: block table')
    need(section.table_hash == xxh3(table), f'{section}: checksum of the block table')
    source.fill(f'{section}: block table')
    stored_size = 0
    for n in range(count):
        size, codec, zero, raw, stored = struct.unpack_from('<IB3sQQ', table, 24 * n)
        need(not any(zero), f'{section.name} block {n}: a reserved byte is not zero')
        check_block(section, n, size, codec, raw, stored)
        section.blocks.append(Block(size, codec, raw, stored))
        stored_size += size
    need(stored_size == section.stored_size,
         f'{section}: stored size {section.stored_size}, but {stored_size} in the table')
    content = b''.join(read_block(source, section, n) for n in range(count))
    source.fill(f'{section}: payload')
    return content


def block_size(section, n):
    return min(MIB, section.raw_size - n * MIB)


def check_block(section, n, size, codec, raw_hash, stored_hash):
    content = block_size(section, n)
    where = f'{section.name} block {n} at byte {section.offset + 64 + 24 * n}'
    need(codec <= 2, f'{where}: codec {codec} is not known')
    need(size >= 1, f'{where}: stored size 0')
    if codec == 0:
        need(size == content, f'{where}: codec 0, stored size {size} of {content}')
        need(raw_hash == stored_hash, f'{where}: codec 0 with two hashes')
    else:
        need(size < content, f'{where}: codec {codec}, stored size {size} of {content}')
    if codec == 2:
        need(section.element > 1 and content % section.element == 0,
             f'{where}: codec 2 with element size {section.element}, content {content}')


def read_block(source, section, n):
    block = section.blocks[n]
    where = f'{section.name} block {n} at byte {source.offset}'
    data = source.take(block.stored_size, where)
    need(xxh3(data) == block.stored_hash, f'{where}: checksum of the stored bytes')
    if block.codec == 0:
        return data
    import lz4.block
    size = block_size(section, n)
    try:
        data = lz4.block.decompress(data, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise Bad(f'{where}: LZ4: {error}') from None
    need(len(data) == size, f'{where}: LZ4 gives {len(data)} bytes of {size}')
    if block.codec == 2:
        data = join_planes(data, section.element)
    need(xxh3(data) == block.raw_hash, f'{where}: checksum of the content')
    return data


def join_planes(planes, e):
    n = len(planes) // e
    content = bytearray(len(planes))
    for p in range(e):
        content[p::e] = planes[p * n:(p + 1) * n]
    return bytes(content)


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)


# ---- the contents (4) ----

def u32s(data):
    need(len(data) % 4 == 0, f'{len(data)} bytes are no u32 array')
    return list(struct.unpack(f'<{len(data) // 4}I', data))


def f32s(data):
    return list(struct.unpack(f'<{len(data) // 4}f', data))


def ascending(positions, end, where):
    """Positions are strictly ascending and below next_position."""
    for row, (a, b) in enumerate(zip(positions, positions[1:])):
        need(a < b, f'{where} row {row + 1}: position {b} after position {a}')
    if positions:
        need(positions[-1] < end,
             f'{where} row {len(positions) - 1}: position {positions[-1]} of next_position {end}')


def parse_json(text):
    def no_repeats(pairs):
        need(len(dict(pairs)) == len(pairs), 'JSON: a key is repeated')
        return dict(pairs)

    def no_constant(name):
        raise Bad(f'JSON: {name}')

    try:
        value = json.loads(text.decode('utf-8'), object_pairs_hook=no_repeats,
                           parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise Bad(f'not JSON: {error}') from None
    need(type(value) is dict, 'not a JSON object')
    return value


def count(low, high):
    return lambda v: type(v) is int and low <= v <= high


def one_of(*values):
    return lambda v: type(v) is str and v in values


def real(v):
    try:
        return type(v) in (int, float) and math.isfinite(v)
    except OverflowError:        # an integer beyond every f64
        return False


def boolean(v):
    return type(v) is bool


def hash_text(v):
    return type(v) is str and len(v) == 32 and all(c in '0123456789abcdef' for c in v)


def name_text(v):
    return type(v) is str and 1 <= len(v.encode('utf-8', 'surrogatepass')) <= 31


HEAD_KEYS = {
    'dtype': one_of('bf16', 'f16', 'f32'), 'keys': one_of('rope'),
    'model': lambda v: type(v) is dict, 'next_position': count(1, (1 << 32) - 1)}
MODEL_KEYS = {
    'architecture': name_text, 'attention_bias': boolean, 'tied_embeddings': boolean,
    'ffn': count(1, 1 << 24), 'hidden': count(1, 1 << 24), 'vocabulary': count(1, 1 << 24),
    'head_width': count(1, 1024), 'kv_heads': count(1, 4096), 'query_heads': count(1, 4096),
    'layers': count(1, 4096), 'norm_eps': real, 'rope': lambda v: type(v) is dict,
    'tokenizer': hash_text, 'weights': hash_text,
    'weights_dtype': one_of('bf16', 'f16', 'f32')}
ROPE_KEYS = {'type': one_of('default', 'llama3'), 'theta': real}
LLAMA3_KEYS = {
    'factor': real, 'high_freq_factor': real, 'low_freq_factor': real,
    'original_max_position': count(1, (1 << 32) - 1)}


def check_keys(where, value, rules, closed):
    for key, rule in rules.items():
        need(key in value, f'{where}{key} is missing')
        need(rule(value[key]), f'{where}{key}: {value[key]!r} is out of range')
    for key in value:
        need(not closed or key in rules, f'{where}{key} is not known')


def parse_head(snapshot, section, content):
    need(len(content) <= MIB, 'longer than 1 MiB')
    head = parse_json(content)
    check_keys('', head, HEAD_KEYS, closed=False)
    model = head['model']
    check_keys('model.', model, MODEL_KEYS, closed=True)
    need(model['query_heads'] % model['kv_heads'] == 0,
         f"query_heads {model['query_heads']} of kv_heads {model['kv_heads']}")
    rope = model['rope']
    keys = dict(ROPE_KEYS, **(LLAMA3_KEYS if rope.get('type') == 'llama3' else {}))
    check_keys('model.rope.', rope, keys, closed=True)
    snapshot.head = head


def parse_tokens(snapshot, section, content):
    snapshot.tokens = u32s(content)
    need(snapshot.tokens, 'no token')


def parse_positions(snapshot, section, content):
    words = u32s(content)
    heads = snapshot.model['kv_heads']
    need(words, 'empty')
    lists = words[0]
    need(lists in (1, heads), f'{lists} lists for {heads} KV heads')
    need(len(words) > lists and len(words) == 1 + lists + sum(words[1:1 + lists]),
         f'raw size {len(content)} does not fit the rows')
    positions, at = [], 1 + lists
    for g, rows in enumerate(words[1:1 + lists]):
        positions.append(words[at:at + rows])
        ascending(positions[-1], snapshot.head['next_position'], f'KV head {g}')
        at += rows
    snapshot.layers.append(Layer(positions if lists == heads else positions * heads))


def parse_tensor(name):
    def parse(snapshot, section, content):
        item = ITEM_SIZE[snapshot.head['dtype']]
        layer = snapshot.layers[section.layer]
        want = sum(layer.rows) * snapshot.model['head_width'] * item
        need(section.element == item, f'element size {section.element} of {item}')
        need(len(content) == want, f'raw size {len(content)} of {want}')
        setattr(layer, name, content)
    return parse


def parse_queries(snapshot, section, content):
    need(len(content) >= 8, f'raw size {len(content)}')
    source, window = struct.unpack_from('<II', content)
    need(source == 1, f'source {source} is not known')
    need(window >= 1, 'no query')
    model = snapshot.model
    row = model['head_width'] * ITEM_SIZE[snapshot.head['dtype']]
    end = 8 + 4 * window
    start = end + -end % 64
    want = start + model['query_heads'] * window * row
    need(len(content) == want, f'raw size {len(content)} of {want}')
    positions = u32s(content[8:end])
    ascending(positions, snapshot.head['next_position'], 'queries')
    need(not any(content[end:start]), 'the gap before the queries is not zero')
    snapshot.layers[section.layer].queries = Queries(source, positions, content[start:])


def parse_mass(snapshot, section, content):
    layer, model = snapshot.layers[section.layer], snapshot.model
    group = model['query_heads'] // model['kv_heads']
    need(len(content) == 4 * group * sum(layer.rows), f'raw size {len(content)}')
    values, layer.mass = iter(f32s(content)), []
    for rows in layer.rows:
        layer.mass.append([[next(values) for _ in range(rows)] for _ in range(group)])
        need(all(math.isfinite(v) and math.copysign(1, v) > 0
                 for one in layer.mass[-1] for v in one), 'negative, or not finite')


def parse_scores(snapshot, section, content):
    layer = snapshot.layers[section.layer]
    want = 192 + 4 * sum(layer.rows)
    need(len(content) == want, f'raw size {len(content)} of {want}')
    label, _, fill = content[:192].partition(b'\0')
    need(len(label) < 192, 'the label ends without a zero')
    need(not any(fill), 'the label is not filled with zero')
    values, at = f32s(content[192:]), 0
    heads = []
    for g, rows in enumerate(layer.rows):
        heads.append(values[at:at + rows])
        for row, value in enumerate(heads[-1]):
            need(value == value, f'KV head {g} row {row}: NaN')
        at += rows
    layer.scores = Scores(decode(label), heads)


def decode(text):
    try:
        return text.decode('utf-8')
    except UnicodeDecodeError as error:
        raise Bad(f'not UTF-8: {error}') from None


def parse_logits(snapshot, section, content):
    want = 4 * snapshot.model['vocabulary']
    need(len(content) == want, f'raw size {len(content)} of {want}')
    snapshot.logits = f32s(content)


def parse_provenance(snapshot, section, content):
    need(content.endswith(b'\n'), 'the last line has no end')
    for line in content[:-1].split(b'\n'):
        entry = parse_json(line)
        check_keys('', entry, {'options': lambda v: type(v) is dict,
                               'tool': lambda v: type(v) is str,
                               'version': lambda v: type(v) is str}, closed=False)
        snapshot.provenance.append(entry)


def counted(snapshot):
    return [s for s in snapshot.sections if s.type not in UNCOUNTED]


def parse_index(snapshot, section, content):
    want = b''.join(struct.pack('<4sIQQQ', s.type.encode(), s.layer, s.offset, s.stored_size,
                                s.raw_size) for s in counted(snapshot))
    need(content == want, 'does not agree with the sections')


def parse_end(snapshot, section, content):
    need(len(content) == 64, f'raw size {len(content)} of 64')
    need(section.blocks[0].codec == 0, 'compressed')
    magic, total, index, number, zero, stream, logical = struct.unpack('<8sQQII16s16s', content)
    need(magic == END_MAGIC, 'wrong magic')
    end = section.offset + 192
    need(total == end, f'total size {total}, but {end} were read')
    at = [s.offset for s in snapshot.sections if s.type == 'iNDX']
    need(index == (at[0] if at else 0), f'iNDX is not at byte {index}')
    need(number == len(counted(snapshot)), f'{number} sections of {len(counted(snapshot))}')
    need(zero == 0, 'a reserved byte is not zero')
    need(stream == stream_digest(snapshot), 'stream digest does not agree')
    need(logical == logical_digest(snapshot), 'logical digest does not agree')
    snapshot.stream_digest, snapshot.logical_digest = stream.hex(), logical.hex()
    snapshot.size = total


def stream_digest(snapshot):
    return xxhash.xxh3_128_digest(b''.join(
        struct.pack('<Q', s.hash) for s in counted(snapshot)))


def logical_digest(snapshot):
    digest = xxhash.xxh3_128()
    for s in counted(snapshot):
        if s.type[0].isupper():
            digest.update(struct.pack('<4sIQ', s.type.encode(), s.layer, s.raw_size))
            digest.update(b''.join(struct.pack('<Q', b.raw_hash) for b in s.blocks))
    return digest.digest()


def parse_padding(snapshot, section, content):
    need(not content, 'has content')


def parse_other(snapshot, section, content):
    place = snapshot if section.layer == NONE else snapshot.layers[section.layer]
    place.others.append((section.type, content))


PARSERS = {
    'HEAD': parse_head, 'TOKS': parse_tokens, 'POSN': parse_positions,
    'oBSq': parse_queries, 'mASS': parse_mass, 'sCOR': parse_scores, 'KEYS': parse_tensor('keys'),
    'VALS': parse_tensor('values'), 'LGTS': parse_logits, 'pROv': parse_provenance,
    'iNDX': parse_index, 'ENDS': parse_end, 'pADD': parse_padding}


def read(file):
    """Read one snapshot from a binary file object, front to back, to its end."""
    source, snapshot, order = Source(file), Snapshot(), Order()
    read_preamble(source, snapshot)
    section = None
    while section is None or section.type != 'ENDS':
        section = read_header(source)
        try:
            order.accept(section)
        except Bad as error:
            raise Bad(f'{section}: {error}') from None
        content = read_content(source, section)
        try:
            PARSERS.get(section.type, parse_other)(snapshot, section, content)
        except Bad as error:
            raise Bad(f'{section}: {error}') from None
        snapshot.sections.append(section)
        if section.type == 'HEAD':
            order.plan_layers(snapshot.model['layers'])
    need(not file.read(1), f'bytes after ENDS at byte {source.offset}')
    return snapshot


# ---- the program ----

def main(arguments):
    want_json = arguments[:1] == ['--json']
    names = arguments[want_json:]
    if len(names) != 1 or (names[0].startswith('-') and names[0] != '-'):
        print('usage: kvread.py [--json] FILE|-', file=sys.stderr)
        return 2
    try:
        if names[0] == '-':
            snapshot = read(sys.stdin.buffer)
        else:
            with open(names[0], 'rb') as file:
                snapshot = read(file)
    except OSError as error:
        print(f'kvread: {error}', file=sys.stderr)
        return 1
    except Bad as error:
        print(f'kvread: {names[0]}: {error}', file=sys.stderr)
        return error.status
    if want_json:
        print(json.dumps(kvdump.as_json(snapshot), sort_keys=True))
    else:
        print('\n'.join(kvdump.lines(snapshot)))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
