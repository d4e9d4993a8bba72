"""What the sections of a KV snapshot contain, and its rules (kv-snapshot.md, section 4), but for
HEAD (head.py).

SIZES says what the header of a section may say, before any of its content is read. Each
parse_...() takes the snapshot so far, the section and its content, adds what it says, and raises
Bad. Numbers stay the bytes that they are (sequences.py); arrays.py makes arrays of them."""

from __future__ import annotations

import json
import math
import operator
import re
import struct
from array import array
from collections import namedtuple

from .hashing import xxh3, xxh3_128
from .rowstore import store_of
from .rowtypes import ITEM_SIZE, widen  # noqa: F401
from .sequences import Lazy, Pieces, numbers

TYPE_CHECKING = False       # typing takes time to load, NumPy more
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Mapping, Sequence

    import numpy
    import numpy.typing as npt

    from .container import Section
    from .indexes import Clusters, Entries, LowRank
    from .querystats import QueryStats
    from .rowscores import Scores
    from .rowstore import RowStore
    from .sequences import Bytes, Numbers
    from .valuenorms import ValueNorms
    Rule = Callable[[Any], bool]        # of a value in JSON
    Check = Callable[['Snapshot', Section], None]
    Parse = Callable[['Snapshot', Section, bytearray], None]
    Mass = Sequence[Sequence[Numbers[float]]]       # [G][query heads of it]

END_MAGIC = b'KVSEND\r\n'
NONE = 0xffffffff
MIB = 1 << 20
LABEL = 192                 # bytes of the label of sCOR, gATE, nCAU, pAID and vNRM
INFINITY = 0x7f800000       # the bits of an f32
JSON_DEPTH = 64
UNCOUNTED = ('pADD', 'iNDX', 'ENDS')     # in no digest, no index, no number of sections


class Bad(Exception):
    """The input is damaged or contradicts the document."""
    status = 3


class Unsupported(Bad):
    """A greater version, or a feature, a critical type, a key or text of HEAD that is unknown."""
    status = 5


def need(condition: object, message: str) -> None:
    if not condition:
        raise Bad(message)


class Queries(namedtuple('Queries', 'source positions data own')):
    """data: dtype[H][W][E]; own: [G][K][E]"""

    __slots__ = ()
    source: int
    positions: Numbers[int]
    data: bytes
    own: bytes


class Paid(namedtuple('Paid', 'label values')):
    __slots__ = ()
    label: str
    values: Mass


class HeadKeys(namedtuple('HeadKeys', 'name heads width n features keys')):
    """keys: dtype[heads][n][width]"""

    __slots__ = ()
    name: str
    heads: int
    width: int
    n: int
    features: Numbers[float]
    keys: bytes


class Event(namedtuple('Event', 'kind position n l0 l1 counts')):
    """counts: [l1-l0][G] pairs"""

    __slots__ = ()
    kind: int
    position: int
    n: int
    l0: int
    l1: int
    counts: Sequence[Sequence[tuple[int, int]]] | None

    @property
    def run(self) -> bool:
        """Tokens that were run and not stored."""
        return self.kind != 3 and self.counts is not None and all(
            before == after for layer in self.counts for before, after in layer)


class Layer:
    """What one layer holds. keys and values: the rows of all KV heads, one after the other, as they
    are stored (4.4)."""

    sinks: Numbers[float] | None            # [H] of the softmax, where queries are
    queries: Queries | None
    query_stats: QueryStats | None
    mass: Mass | None
    paid: Paid | None
    value_norms: ValueNorms | None
    scores: Scores | None
    gate_scores: Scores | None
    noncausal: Scores | None
    keys: bytes
    values: bytes
    keys_hash: int | None                   # what an index has of the keys (4.14)
    bits: Entries | None
    pages: Entries | None
    clusters: Clusters | None
    low_rank: LowRank | None

    def __init__(self, positions: Sequence[Numbers[int]], rows: Sequence[int],
                 alike: bool) -> None:
        self.positions = positions           # [G]
        self.rows = rows                     # [G]
        self.total = sum(rows)
        self.alike = alike                   # all KV heads have the same rows
        self.sinks = self.queries = self.query_stats = self.mass = self.paid = None
        self.value_norms = self.scores = self.gate_scores = self.noncausal = None
        self.keys = self.values = b''        # until they have been read
        # 'keys', 'values': [G] bytes of each KV head
        self.heads: dict[str, Sequence[bytes]] = {}
        self.keys_hash = self.bits = self.pages = self.clusters = self.low_rank = None
        # (type, content) of unknown ancillary sections
        self.others: list[tuple[str, bytearray]] = []


class Snapshot:
    """All that has been read so far; HEAD and TOKS are the first sections."""

    head: dict[str, Any]
    tokens: Numbers[int]

    def __init__(self) -> None:
        self.features = 0
        self.logits: Numbers[float] | None = None
        self.head_keys: HeadKeys | None = None      # of a retrieval head
        self.layers: list[Layer] = []
        self.events: Sequence[Event] | None = None  # when there is a log
        self.provenance: Sequence[dict[str, Any]] = []      # of each line
        self.provenance_text: bytes | bytearray = b''       # as it stands
        self.others: list[tuple[str, bytearray]] = []       # (type, content), without a layer
        self.sections: list[Section] = []           # every one, in order
        self.size = 0
        self.stream_digest: str | None = None       # as hexadecimal
        self.logical_digest: str | None = None

    @property
    def model(self) -> dict[str, Any]:
        model: dict[str, Any] = self.head['model']
        return model

    def row_type(self, layer: int, name: str) -> str:
        """The type of the rows of 'keys' or 'values': 'bf16', 'q8_0', ..."""
        return self.store(layer, name).kind

    def store(self, layer: int, name: str) -> RowStore:
        """How 'keys' or 'values' are stored, a RowStore."""
        return store_of(self.head, layer, name)

    def head_rows(self, layer: int, name: str, g: int) -> bytes:
        """The bytes of 'keys' or 'values' of one KV head, as they are stored."""
        return self.layers[layer].heads[name][g]

    def array(self, layer: int, name: str, g: int) -> npt.NDArray[numpy.float32]:
        """The numbers of these rows, a numpy array [rows][E] of f32. Needs numpy."""
        rank = self.model.get('latent_rank') if name == 'values' else None      # 4.26
        name = 'keys' if rank else name
        return self.store(layer, name).numbers(self.head_rows(layer, name, g),
                                               self.layers[layer].rows[g])[:, :rank]


# ---- sizes, before anything is read (4) ----

def exactly(section: Section, want: int) -> None:
    need(section.raw_size == want, f'raw size {section.raw_size} of {want}')


def at_most(section: Section, most: int) -> None:
    need(section.raw_size <= most, f'raw size {section.raw_size}, at most {most}')


def is_array(section: Section) -> None:
    """Of one u32 at least."""
    need(section.raw_size % 4 == 0, f'{section.raw_size} bytes are no u32 array')
    need(section.raw_size, 'no number')


def size_of_positions(snapshot: Snapshot, section: Section) -> None:
    is_array(section)
    lists = snapshot.model['kv_heads']
    at_most(section, 4 * (1 + lists + lists * snapshot.head['next_position']))


def size_of_mass(before: int) -> Check:
    """f32 for each row and query head, behind so many bytes."""
    def check(snapshot: Snapshot, section: Section) -> None:
        group = snapshot.model['query_heads'] // snapshot.model['kv_heads']
        exactly(section, before + 4 * group * snapshot.layers[section.layer].total)
    return check


def size_of_rows(name: str) -> Check:
    def check(snapshot: Snapshot, section: Section) -> None:
        store, layer = snapshot.store(section.layer, name), snapshot.layers[section.layer]
        need(section.element == store.element, f'element size {section.element} of {store.element}')
        exactly(section, store.size(layer.total) if store.alike
                else sum(map(store.size, layer.rows)))
    return check


def size_of_index(snapshot: Snapshot, section: Section) -> None:
    want = len(index_of(snapshot.sections))
    need(section.raw_size == want,
         f'raw size {section.raw_size} of {want}: does not agree with the sections')


# ---- the contents (4) ----

def u32s(data: Bytes) -> Numbers[int]:
    return numbers(data, 'I')


def f32s(data: Bytes) -> Numbers[float]:
    return numbers(data, 'f')


def ascend(values: Sequence[int]) -> bool:
    """Each is less than the next one."""
    return all(map(operator.lt, values, values[1:]))


def ascending(positions: Sequence[int], end: int, where: str) -> None:
    """Positions are strictly ascending and below next_position."""
    if not ascend(positions):
        row = next(i for i in range(1, len(positions)) if positions[i - 1] >= positions[i])
        a, b = positions[row - 1:row + 1]
        raise Bad(f'{where} row {row}: position {b} after position {a}')
    if positions:
        need(positions[-1] < end,
             f'{where} row {len(positions) - 1}: position {positions[-1]} of next_position {end}')


def whole(digits: str) -> int:
    """An integer of JSON, in the 64 bits that every reader has."""
    need(len(digits) <= 20 and -1 << 63 <= int(digits) < 1 << 63,
         f'JSON: {digits[:40]} is beyond 64 bits')
    return int(digits)


def finite(digits: str) -> float:
    need(math.isfinite(float(digits)), f'JSON: {digits[:40]} is beyond every f64')
    return float(digits)


def check_texts(value: Any) -> None:
    """The keys and texts of a JSON value that nests no deeper than JSON_DEPTH."""
    if type(value) is str:
        need('\0' not in value and not any('\ud800' <= c <= '\udfff' for c in value),
             'JSON: a text with U+0000, or half of a surrogate pair')
    elif type(value) in (dict, list):
        for part in value:
            check_texts(part)
            if type(value) is dict:
                check_texts(value[part])


def check_depth(text: Bytes) -> None:
    """No more than JSON_DEPTH objects and lists inside each other, in text that may be no JSON."""
    depth = 0
    for c in re.finditer(rb'[][{}]', re.sub(rb'"(?:[^"\\]|\\.)*"?', b'', text, flags=re.S)):
        depth += 1 if c[0] in b'[{' else -1
        need(depth <= JSON_DEPTH,
             f'JSON: more than {JSON_DEPTH} objects and lists inside each other')


def parse_json(text: Bytes) -> dict[str, Any]:
    """An object, by the rules for all JSON in a snapshot (4.1)."""
    def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), 'JSON: a key is repeated')
        return dict(pairs)

    def no_constant(name: str) -> None:
        raise Bad(f'JSON: {name}')

    text = bytes(text)
    check_depth(text)
    try:
        value = json.loads(text.decode('utf-8'), object_pairs_hook=no_repeats,
                           parse_constant=no_constant, parse_int=whole, parse_float=finite)
    except ValueError as error:
        raise Bad(f'not JSON: {error}') from None
    if type(value) is not dict:
        raise Bad('not a JSON object')
    check_texts(value)
    return value


def check_keys(where: str, value: dict[str, Any], rules: Mapping[str, Rule], closed: bool,
               spare: Mapping[str, Rule] = {}) -> None:
    """The keys of a JSON object: all of rules, some of spare, and, unless closed, others."""
    for key, rule in rules.items():
        need(key in value, f'{where}{key} is missing')
        need(rule(value[key]), f'{where}{key}: {value[key]!r} is out of range')
    for key in value:
        if key in spare:
            need(spare[key](value[key]), f'{where}{key}: {value[key]!r} is out of range')
        need(not closed or key in rules or key in spare, f'{where}{key} does not go with its type')


def parse_tokens(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    snapshot.tokens = u32s(content)


def parse_positions(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    words = u32s(content)
    heads = snapshot.model['kv_heads']
    lists = words[0]
    need(lists in (1, heads), f'{lists} lists for {heads} KV heads')
    need(len(words) > lists and len(words) == 1 + lists + sum(words[1:1 + lists]),
         f'raw size {len(content)} does not fit the rows')
    rows, at = words[1:1 + lists], 1 + lists
    for g, n in enumerate(rows):
        ascending(words[at:at + n], snapshot.head['next_position'], f'KV head {g}')
        at += n
    positions: Sequence[Numbers[int]] = Pieces(words[1 + lists:], rows)
    if lists < heads:
        only, n = positions[0], rows[0]
        rows, positions = Lazy(heads, lambda g: n), Lazy(heads, lambda g: only)
    snapshot.layers.append(Layer(positions, rows, lists == 1))


def parse_rows(name: str) -> Parse:
    def parse(snapshot: Snapshot, section: Section, content: bytearray) -> None:
        layer, store = snapshot.layers[section.layer], snapshot.store(section.layer, name)
        wrong = store.wrong(content, layer.rows)
        need(not wrong, wrong)
        setattr(layer, name, content)
        rows = layer.rows
        layer.heads[name] = Pieces(content, Lazy(len(rows), lambda g: store.size(rows[g])))
        if name == 'keys':
            layer.keys_hash = xxh3(b''.join(
                struct.pack('<Q', b.raw_hash) for b in section.blocks))
    return parse


def parse_queries(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    source, window = struct.unpack_from('<II', content)
    need(source in (1, 2), f'source {source} is not known')
    need(window >= 1, 'no query')
    model = snapshot.model
    row = model['head_width'] * ITEM_SIZE[snapshot.head['dtype']]
    end = 8 + 4 * window
    start = end + -end % 64
    need(len(content) >= start, f'raw size {len(content)}')
    positions, next_position = u32s(content[8:end]), snapshot.head['next_position']
    ascending(positions, next_position if source == 1 else 1 << 32, 'queries')
    own = sum(p >= next_position for p in positions)
    need(own or source == 1, 'no query of a token that was not stored')
    own_at = start + model['query_heads'] * window * row
    want = own_at + model['kv_heads'] * own * row
    need(len(content) == want, f'raw size {len(content)} of {want}')
    need(not any(content[end:start]), 'the gap before the queries is not zero')
    snapshot.layers[section.layer].queries = Queries(
        source, positions, content[start:own_at], content[own_at:])


def parse_mass(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer = snapshot.layers[section.layer]
    layer.mass = lists_of_rows(snapshot, layer, content)
    need(max(u32s(content), default=0) < INFINITY, 'not finite')


def lists_of_rows(snapshot: Snapshot, layer: Layer, content: Bytes) -> Mass:
    """f32 values for each KV head, each of its query heads, each row; none negative, no NaN."""
    group, rows = snapshot.model['query_heads'] // snapshot.model['kv_heads'], layer.rows
    # as an integer a NaN is greater than infinity, and what is negative still more
    need(max(u32s(content), default=0) <= INFINITY, 'negative, or not a number')
    heads = Pieces(f32s(content), Lazy(len(rows), lambda g: group * rows[g]))

    def query_heads(g: int) -> Sequence[Numbers[float]]:
        values, n = heads[g], rows[g]
        return Lazy(group, lambda r: values[r * n:(r + 1) * n])
    return Lazy(len(rows), query_heads)


def parse_paid(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer = snapshot.layers[section.layer]
    values = lists_of_rows(snapshot, layer, memoryview(content)[LABEL:])
    layer.paid = Paid(parse_label(content), values)


def parse_label(content: bytearray) -> str:
    label, _, fill = content[:LABEL].partition(b'\0')
    need(len(label) < LABEL, 'the label ends without a zero')
    need(not any(fill), 'the label is not filled with zero')
    return decode(label)


def decode(text: bytes | bytearray) -> str:
    try:
        return text.decode('utf-8')
    except UnicodeDecodeError as error:
        raise Bad(f'not UTF-8: {error}') from None


def parse_logits(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    snapshot.logits = f32s(content)


def parse_head_keys(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    item = ITEM_SIZE[snapshot.head['dtype']]
    need(section.element == item, f'element size {section.element} of {item}')
    need(len(content) >= 64, f'raw size {len(content)}')
    name = content[:32]
    heads, width, n, features, *zero = u32s(content[32:64])
    need(all(c in b'0123456789abcdef' for c in name), 'the head is not named by hexadecimal digits')
    need(1 <= heads <= 4096 and 2 <= width <= 1024 and width % 2 == 0, f'{heads} of {width}')
    need(1 <= n <= snapshot.head['next_position'], f'keys of {n} tokens')
    need(features <= 1 << 24, f'{features} features')
    end = 64 + 4 * features
    data = end + -end % 64
    want = data + heads * n * width * item
    need(len(content) == want, f'raw size {len(content)} of {want}')
    need(not any(zero) and not any(content[end:data]), 'a reserved byte is not zero')
    values = f32s(content[64:end])
    need(all(map(math.isfinite, values)), 'a feature is not finite')
    snapshot.head_keys = HeadKeys(name.decode(), heads, width, n, values, content[data:])


def parse_events(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    words, at, starts = u32s(content), 0, array('Q')
    G, layers = snapshot.model['kv_heads'], snapshot.model['layers']
    while at < len(words):
        where = f'event {len(starts)}'
        starts.append(at)
        need(at + 6 <= len(words), f'{where}: ends too early')
        kind, position, n, flags, l0, l1 = words[at:at + 6]
        at += 6
        need(kind in (1, 2, 3), f'{where}: kind {kind} is not known')
        need(flags in (0, 1), f'{where}: a flag that must be zero is not')
        need((n == 0) == (kind == 3), f'{where}: {n} rows were run')
        need(l0 < l1 <= layers, f'{where}: layers {l0} to {l1}')
        need(flags or kind != 3, f'{where}: an eviction without counts')
        if flags:
            end = at + 2 * (l1 - l0) * G
            need(end <= len(words), f'{where}: ends in its counts')
            for i, (before, after) in enumerate(zip(words[at:end:2], words[at + 1:end:2])):
                need(after <= before if kind == 3 else before <= after <= before + n,
                     f'{where}: layer {l0 + i // G} head {i % G}: rows {before}, then {after}')
            at = end
    snapshot.events = Lazy(len(starts), lambda i: event_at(words, starts[i], G))


def event_at(words: Numbers[int], at: int, heads: int) -> Event:
    """The event whose first word this is; its counts are right."""
    kind, position, n, flags, l0, l1 = words[at:at + 6]

    def pairs(layer: int) -> list[tuple[int, int]]:
        start = at + 6 + 2 * layer * heads
        counts = words[start:start + 2 * heads]
        return list(zip(counts[::2], counts[1::2]))
    return Event(kind, position, n, l0, l1, Lazy(l1 - l0, pairs) if flags else None)


def parse_provenance(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    need(content.endswith(b'\n'), 'the last line has no end')
    snapshot.provenance_text = content
    starts, at = array('Q'), 0
    while at < len(content):
        starts.append(at)
        at = content.index(b'\n', at) + 1
        check_keys('', parse_json(content[starts[-1]:at - 1]), {
            'options': lambda v: type(v) is dict, 'tool': lambda v: type(v) is str,
            'version': lambda v: type(v) is str}, closed=False)
    starts.append(at)
    snapshot.provenance = Lazy(len(starts) - 1,
                               lambda i: parse_json(content[starts[i]:starts[i + 1] - 1]))


def counted(sections: Iterable[Section]) -> list[Section]:
    return [s for s in sections if s.type not in UNCOUNTED]


def index_of(sections: Iterable[Section]) -> bytes:
    """The content of iNDX (4.9)."""
    return b''.join(struct.pack('<4sIQQQ', s.type.encode(), s.layer, s.offset, s.stored_size,
                                s.raw_size) for s in counted(sections))


def parse_index(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    need(content == index_of(snapshot.sections), 'does not agree with the sections')


def parse_end(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    need(section.blocks[0].codec == 0, 'compressed')
    magic, total, index, number, zero, stream, logical = struct.unpack('<8sQQII16s16s', content)
    need(magic == END_MAGIC, 'wrong magic')
    end = section.offset + 192
    need(total == end, f'total size {total}, but {end} were read')
    at = [s.offset for s in snapshot.sections if s.type == 'iNDX']
    need(index == (at[0] if at else 0), f'iNDX is not at byte {index}')
    here = len(counted(snapshot.sections))
    need(number == here, f'{number} sections of {here}')
    need(zero == 0, 'a reserved byte is not zero')
    need(stream == stream_digest(snapshot.sections), 'stream digest does not agree')
    need(logical == logical_digest(snapshot.sections), 'logical digest does not agree')
    snapshot.stream_digest, snapshot.logical_digest = stream.hex(), logical.hex()
    snapshot.size = total


def stream_digest(sections: Iterable[Section]) -> bytes:
    return xxh3_128(b''.join(struct.pack('<Q', s.hash) for s in counted(sections)))


def logical_digest(sections: Iterable[Section]) -> bytes:
    said: list[bytes] = []
    for s in counted(sections):
        if s.type[0].isupper():
            said.append(struct.pack('<4sIQ', s.type.encode(), s.layer, s.raw_size))
            said += [struct.pack('<Q', b.raw_hash) for b in s.blocks]
    return xxh3_128(b''.join(said))


def parse_other(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    place: Snapshot | Layer = snapshot if section.layer == NONE else snapshot.layers[section.layer]
    place.others.append((section.type, content))


PARSERS: dict[str, Parse] = {
    'TOKS': parse_tokens, 'POSN': parse_positions,
    'oBSq': parse_queries, 'mASS': parse_mass, 'pAID': parse_paid,
    'KEYS': parse_rows('keys'), 'VALS': parse_rows('values'), 'LGTS': parse_logits,
    'rHDk': parse_head_keys, 'eVNt': parse_events, 'pROv': parse_provenance,
    'iNDX': parse_index, 'ENDS': parse_end, 'pADD': lambda *_: None}

# by the type of a section: what its header must say, (snapshot so far, section)
SIZES: dict[str, Check] = {
    'TOKS': lambda _, s: is_array(s), 'POSN': size_of_positions, 'mASS': size_of_mass(0),
    'oBSq': lambda _, s: need(s.raw_size >= 8, f'raw size {s.raw_size}'),
    'pAID': size_of_mass(LABEL), 'KEYS': size_of_rows('keys'), 'VALS': size_of_rows('values'),
    'LGTS': lambda snapshot, s: exactly(s, 4 * snapshot.model['vocabulary']),
    'eVNt': lambda _, s: is_array(s), 'pROv': lambda _, s: need(s.raw_size, 'no line'),
    'iNDX': size_of_index, 'pADD': lambda _, s: need(s.raw_size == 0, 'has content'),
    'ENDS': lambda _, s: exactly(s, 64)}
