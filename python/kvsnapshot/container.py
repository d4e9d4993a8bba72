"""The stream of a KV snapshot: sections, blocks, hashes, their order (kv-snapshot.md, section 3).

This reader is made from that document alone and shares no code with libkvfile: it is the
second opinion in tests. It checks every rule of the document. Section numbers in comments are
those of the document. What sections contain is in content.py, head.py, indexes.py,
querystats.py, rowscores.py, sinks.py and valuenorms.py."""

from __future__ import annotations

import struct
from collections import namedtuple

from . import head, indexes, querystats, rowscores, sinks, valuenorms
from .content import MIB, NONE, PARSERS, SIZES, Bad, Snapshot, Unsupported, need, parse_other
from .hashing import lz4_block, xxh3

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from typing import BinaryIO, Iterator

MAGIC = b'\x8bKVS\r\n\x1a\n'
MARK = b'\xabKVS'
OF_LAYER = tuple((name, name.isupper()) for name in (
    'POSN SINk oBSq qSTa mASS pAID vNRM gATE nCAU sCOR KEYS bITS pAGE cLUS lOWR VALS').split())
AFTER_LAYERS = (('LGTS', False), ('rHDk', False), ('eVNt', False), ('pROv', False),
                ('iNDX', False), ('ENDS', True))
SIZE_RULES = {**SIZES, **head.SIZES, **indexes.SIZES, **querystats.SIZES, **rowscores.SIZES,
              **sinks.SIZES, **valuenorms.SIZES}
CONTENTS = {**PARSERS, **head.PARSERS, **indexes.PARSERS, **querystats.PARSERS,
            **rowscores.PARSERS, **sinks.PARSERS, **valuenorms.PARSERS}
KNOWN = {'HEAD', 'TOKS', 'pADD'} | {name for name, _ in OF_LAYER + AFTER_LAYERS}

class Block(namedtuple('Block', 'stored_size codec raw_hash stored_hash')):
    __slots__ = ()
    stored_size: int
    codec: int
    raw_hash: int
    stored_hash: int


class Section:
    """One section header, with the block table once it has been read."""

    layer: int
    element: int
    raw_size: int
    stored_size: int
    table_hash: int
    hash: int

    def __init__(self, offset: int, header: bytes) -> None:
        self.offset = offset
        (_, kind, self.layer, self.element, self.raw_size, self.stored_size,
         self.table_hash, self.hash) = struct.unpack('<4s4sIB3xQQQ16xQ', header)
        self.type: str = kind.decode('latin-1')
        self.blocks: list[Block] = []

    @property
    def name(self) -> str:
        return self.type if self.layer == NONE else f'{self.type} layer {self.layer}'

    def __str__(self) -> str:
        return f'{self.name} at byte {self.offset}'


class Source:
    """A stream read front to back, which knows its offset."""

    def __init__(self, file: BinaryIO, tape: list[bytes] | None = None) -> None:
        self.file = file
        self.offset = 0
        self.tape = tape

    def erase(self) -> None:
        if self.tape is not None:
            self.tape.clear()

    def take(self, size: int, what: str) -> bytes:
        """Exactly size bytes, piece by piece: a false size allocates no more than there is."""
        pieces = []
        while size > 0:
            piece = self.file.read(min(size, MIB))
            need(piece, f'{what}: truncated at byte {self.offset}')
            pieces.append(piece)
            self.offset += len(piece)
            size -= len(piece)
        if self.tape is not None:
            self.tape += pieces
        return b''.join(pieces)

    def fill(self, what: str) -> None:
        """The zero bytes up to the next multiple of 64."""
        at = self.offset
        fill = self.take(-at % 64, what)
        need(not any(fill), f'{what}: fill at byte {at} is not zero')


class Order:
    """The order of sections (3.5): a plan of (type, layer, required), walked once."""

    def __init__(self) -> None:
        self.plan = [('HEAD', NONE, True), ('TOKS', NONE, True)]
        self.next = 0
        self.layer = NONE

    def plan_layers(self, layers: int) -> None:
        for n in range(layers):
            self.plan += [(name, n, required) for name, required in OF_LAYER]
        self.plan += [(name, NONE, required) for name, required in AFTER_LAYERS]

    def accept(self, section: Section) -> None:
        if section.type in KNOWN and section.type != 'pADD':
            self.advance(section)
        elif section.type == 'pADD':
            need(self.next >= 1, 'order: before HEAD')
            need(section.layer == NONE, 'belongs to a layer')
        else:
            need(self.next >= 2, 'order: before TOKS')
            need(self.plan[self.next - 1][0] != 'iNDX', 'order: after iNDX')
            need(section.layer in (NONE, self.layer), 'order: not among its layer')

    def advance(self, section: Section) -> None:
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

def read_preamble(source: Source, snapshot: Snapshot) -> None:
    data = source.take(64, 'preamble')
    need(data[:8] == MAGIC, 'preamble: wrong magic, not a KV snapshot')
    need(struct.unpack_from('<Q', data, 56)[0] == xxh3(data[:56]), 'preamble: checksum')
    version, zero, order, features = struct.unpack_from('<HHIQ', data, 8)
    if version > 1:
        raise Unsupported(f'preamble: version {version} is not known')
    need(version == 1, 'preamble: version 0')
    need(order == 0x01020304, 'preamble: wrong byte order')
    for bit in range(2, 64):            # 0: there is row_types in HEAD; 1: latent_rank
        if features >> bit & 1:
            raise Unsupported(f'preamble: feature bit {bit} is not known')
    need(zero == 0 and not any(data[24:56]), 'preamble: a reserved byte is not zero')
    snapshot.features = features


def read_header(source: Source) -> Section:
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


def check_size(snapshot: Snapshot, section: Section) -> None:
    """Nothing is unpacked that is larger than the rest of the snapshot allows."""
    if section.type in SIZE_RULES:
        SIZE_RULES[section.type](snapshot, section)


def read_content(source: Source, section: Section) -> bytearray:
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
    content = bytearray()
    for n in range(count):
        content += read_block(source, section, n)
    source.fill(f'{section}: payload')
    return content


def block_size(section: Section, n: int) -> int:
    return min(MIB, section.raw_size - n * MIB)


def check_block(section: Section, n: int, size: int, codec: int, raw_hash: int,
                stored_hash: int) -> None:
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


def read_block(source: Source, section: Section, n: int) -> bytes:
    block = section.blocks[n]
    where = f'{section.name} block {n} at byte {source.offset}'
    data = source.take(block.stored_size, where)
    need(xxh3(data) == block.stored_hash, f'{where}: checksum of the stored bytes')
    if block.codec == 0:
        return data
    size = block_size(section, n)
    try:
        data = lz4_block(data, size)
    except ValueError as error:
        raise Bad(f'{where}: LZ4: {error}') from None
    need(len(data) == size, f'{where}: LZ4 gives {len(data)} bytes of {size}')
    if block.codec == 2:
        data = join_planes(data, section.element)
    need(xxh3(data) == block.raw_hash, f'{where}: checksum of the content')
    return data


def join_planes(planes: bytes, e: int) -> bytes:
    n = len(planes) // e
    content = bytearray(len(planes))
    for p in range(e):
        content[p::e] = planes[p * n:(p + 1) * n]
    return bytes(content)


def sections(file: BinaryIO, snapshot: Snapshot,
             tape: list[bytes] | None = None) -> Iterator[Section | None]:
    """Reads one snapshot from a binary file object, front to back, to its end; yields each section
    when the snapshot has what it says. tape: a list, where the bytes of the section are then, or,
    before the first one, those of the preamble."""
    source, order = Source(file, tape), Order()
    read_preamble(source, snapshot)
    section = None
    while section is None or section.type != 'ENDS':
        yield section
        source.erase()
        section = read_header(source)
        try:
            order.accept(section)
            check_size(snapshot, section)
        except Bad as error:
            raise type(error)(f'{section}: {error}') from None
        content = read_content(source, section)
        try:
            CONTENTS.get(section.type, parse_other)(snapshot, section, content)
        except Bad as error:
            raise type(error)(f'{section}: {error}') from None
        snapshot.sections.append(section)
        if section.type == 'HEAD':
            order.plan_layers(snapshot.model['layers'])
    need(not file.read(1), f'bytes after ENDS at byte {source.offset}')
    yield section


def read(file: BinaryIO) -> Snapshot:
    """Reads one snapshot from a binary file object, front to back, to its end."""
    snapshot = Snapshot()
    for _ in sections(file, snapshot):
        pass
    return snapshot
