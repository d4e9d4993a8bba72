"""A stage of a pipe that changes rows: it drops some, or stores them in other types.

Rows that stay, in the type that they have, are passed on as the bytes that they are: what is
quantised is not quantised again. One layer is in memory at a time."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Sequence, Union

import numpy as np

from . import container, indexes, kivi
from .arrays import Layer
from .container import MAGIC
from .content import LABEL, NONE, Event, Snapshot
from .hashing import xxh3
from .head import HEAD_KEYS, SPARE_HEAD_KEYS
from .pipe import Signature, Writer, make_section, release, run_stage
from .latent import wrong_latent_types
from .rowstore import TYPES, RowStore, store_of, wrong_types

if TYPE_CHECKING:
    import numpy.typing as npt
    Keep = Callable[[Layer], Sequence[npt.ArrayLike]]
    Types = Union[str, Sequence[str], None]
    I64 = npt.NDArray[np.int64]
    U8 = npt.NDArray[np.uint8]

EVICTION = 3        # kind of event
ELEMENTS = 'kv-quantize --keys {0} --values {0}'        # dequantises a snapshot of this dtype


def canonical(value: Any) -> str:
    """JSON as HEAD wants it (4.1)."""
    if type(value) is dict:
        return '{' + ','.join(f'{canonical(k)}:{canonical(value[k])}' for k in sorted(value)) + '}'
    if type(value) is list:
        return '[' + ','.join(map(canonical, value)) + ']'
    if type(value) is float:
        text = '%.17g' % value
        return text if '.' in text or 'e' in text else text + '.0'
    return json.dumps(value, ensure_ascii=False)


def types_of(given: Types, snapshot: Snapshot, name: str) -> list[str]:
    """The type of 'keys' or 'values' of each layer: given for all, or for each; None: as it is."""
    layers = range(snapshot.model['layers'])
    if given is None or isinstance(given, str):
        return [given or snapshot.row_type(l, name) for l in layers]
    if len(given) != len(layers):
        raise ValueError(f'{name}: types of {len(given)} layers, and there are {len(layers)}')
    return list(given)


def residual_of(given: int | None, snapshot: Snapshot, types: dict[str, list[str]]) -> int | None:
    """How many rows of a KV head are full behind quantised ones, None: there is no residual. given:
    0 is none, unless there are KIVI's types; None: that of the snapshot, if something of it stays
    quantised or is KIVI's, or what KIVI's types usually have. ValueError: what stays has another
    residual."""
    old = snapshot.head.get('row_types', {}).get('residual')
    pairs = [(kind, snapshot.row_type(l, name)) for name in types
             for l, kind in enumerate(types[name])]
    stays = any(kind == before and kind in TYPES for kind, before in pairs)
    groups = any(kind in kivi.BITS for kind, _ in pairs)
    residual = given if given or groups else None
    if given is None:
        residual = old if stays or groups else None
        if groups and residual is None:
            residual = kivi.USUAL
    if stays and residual != old:
        raise ValueError(f'residual {residual or 0}: the snapshot leaves {old or "no"} rows full; '
                         f'dequantise it first: {ELEMENTS.format(snapshot.head["dtype"])}')
    return residual


def with_types(snapshot: Snapshot, types: dict[str, list[str]],
               residual: int | None) -> dict[str, Any]:
    """HEAD that says so; ValueError: these types cannot be."""
    head = {key: value for key, value in snapshot.head.items()
            if key in HEAD_KEYS or key in SPARE_HEAD_KEYS}
    if all(kind == head['dtype'] for kinds in types.values() for kind in kinds):
        if residual is not None:
            raise ValueError(f'residual {residual}: no type is quantised, so every row is full')
        return head
    head['row_types'] = dict(types)
    if residual is not None:
        head['row_types']['residual'] = residual
    wrong = wrong_types(head['row_types'], head['dtype'], head['model']['layers'],
                        head['model']['head_width'])
    if not wrong and 'latent_rank' in head['model']:
        wrong = wrong_latent_types(head['row_types'])
    if wrong:
        raise ValueError(f'types{wrong}')
    return head


def front_of(head: dict[str, Any]) -> tuple[bytes, container.Section, bytes]:
    """Preamble, HEAD and its bytes"""
    features = int('row_types' in head) | ('latent_rank' in head['model']) << 1
    front = struct.pack('<8sHHIQ32x', MAGIC, 1, 0, 0x01020304, features)
    return (front + struct.pack('<Q', xxh3(front)),
            *make_section('HEAD', NONE, 1, canonical(head).encode()))


def chosen(keep: Keep | None, layer: Layer) -> list[I64]:
    """The rows that stay, [G] arrays of indexes, ascending; keep: as in change_rows()."""
    counts = [len(p) for p in layer.positions]
    heads = list(map(np.arange, counts)) if keep is None else keep(layer)
    if len(heads) != len(counts):
        raise ValueError(f'layer {layer.index}: rows of {len(heads)} KV heads, and there are '
                         f'{len(counts)}')
    out = []
    for g, (rows, n) in enumerate(zip(heads, counts)):
        rows, where = np.asarray(rows), f'layer {layer.index} KV head {g}'
        if rows.dtype == bool:
            if rows.shape != (n,):
                raise ValueError(f'{where}: a mask of shape {rows.shape} for {n} rows')
            rows = rows.nonzero()[0]
        if rows.size and rows.dtype.kind not in 'iu':
            raise ValueError(f'{where}: rows are indexes or a mask, not {rows.dtype}')
        rows = np.unique(rows.astype(np.int64))
        if rows.size and not 0 <= rows[0] <= rows[-1] < n:
            raise ValueError(f'{where}: rows {rows[0]} to {rows[-1]} of {n}')
        out.append(rows)
    return out


def positions_of(heads: Sequence[npt.NDArray[Any]]) -> bytes:
    """POSN (4.3)"""
    if all(np.array_equal(head, heads[0]) for head in heads):
        heads = heads[:1]
    return np.concatenate([[len(heads)], [len(head) for head in heads], *heads]).astype(
        '<u4').tobytes()


def lists_of(heads: Sequence[npt.NDArray[Any]] | None, rows: Sequence[I64]) -> bytes:
    """f32 lists, [G][R][S] or [G][S], of the rows that stay"""
    return b''.join(np.ascontiguousarray(head[..., own], '<f4').tobytes()
                    for head, own in zip(heads or (), rows))


def labelled(label: str | None, heads: Sequence[npt.NDArray[Any]] | None,
             rows: Sequence[I64]) -> bytes:
    """The same behind a label"""
    assert label is not None
    return label.encode().ljust(LABEL, b'\0') + lists_of(heads, rows)


def head_in(data: U8, n: int, own: I64, old: RowStore, new: RowStore) -> U8:
    """The n rows of a KV head, those that stay, as `new` stores them."""
    if old.alike:
        data, n = data[own], len(own)
        if old.size(1) == 0:
            return data
        return data if old == new else new.stored(old.numbers(data, n))
    if old != new:
        return new.stored(old.numbers(data, n)[own])
    if len(own) != n:
        raise ValueError(f'has full rows behind quantised ones (residual {old.residual}): no '
                         f'single row can be dropped: evict before kv-quantize; or dequantise it: '
                         f'{ELEMENTS.format(old.dtype)}')
    return data


def rows_in(where: str, stored: Sequence[U8], old: RowStore, new: RowStore,
            counts: Sequence[int], rows: Sequence[I64]) -> bytes:
    """The bytes of the rows that stay, of [G] arrays of u1, as the RowStore `new` has them."""
    heads = []
    for g, (data, n, own) in enumerate(zip(stored, counts, rows)):
        try:
            heads.append(head_in(data, n, own, old, new).tobytes())
        except ValueError as error:
            raise ValueError(f'{where} KV head {g} {error}') from None
    return b''.join(heads)


class Change:
    """What is to be done, and what was."""

    def __init__(self, keep: Keep | None, keys: Types, values: Types, label: str,
                 residual: int | None) -> None:
        self.keep, self.label, self.residual = keep, label, residual
        self.given: dict[str, Types] = {'keys': keys, 'values': values}
        self.head: dict[str, Any] = {}                          # as it is written
        self.counts: list[list[tuple[int, int]]] = []           # [L][G] rows before and after
        self.dropped: set[str] = set()                          # types of sections

    @property
    def options(self) -> dict[str, Any]:
        named = {name: given for name, given in
                 {**self.given, 'residual': self.residual}.items() if given is not None}
        return {**({'method': self.label} if self.keep else {}), **named}

    @property
    def fewer(self) -> bool:
        return any(before != after for layer in self.counts for before, after in layer)

    def front(self, snapshot: Snapshot, preamble: bytes, section: container.Section,
              data: bytes) -> tuple[bytes, container.Section, bytes]:
        """Preamble, HEAD and its bytes."""
        types = {name: types_of(kinds, snapshot, name) for name, kinds in self.given.items()}
        residual = residual_of(self.residual, snapshot, types)
        self.head = with_types(snapshot, types, residual)
        if all(kinds is None for kinds in self.given.values()):
            self.head = snapshot.head
            return preamble, section, data
        return front_of(self.head)

    def unknown(self, section: container.Section) -> bool:
        """Is it a section that depends on rows in a way that nobody here knows?"""
        return section.type not in container.KNOWN and section.type[3].isupper()

    def layer(self, writer: Writer, waiting: list[tuple[container.Section, bytes]],
              snapshot: Snapshot, index: int) -> None:
        """Writes the sections of a layer, POSN to VALS."""
        layer = Layer(snapshot, index)
        rows = chosen(self.keep, layer)
        self.counts.append([(len(p), len(own)) for p, own in zip(layer.positions, rows)])
        same = all(before == after for before, after in self.counts[-1])
        counts = [before for before, _ in self.counts[-1]]
        keys, values = (store_of(self.head, index, name) for name in ('keys', 'values'))
        make: dict[str, Callable[[], bytes]] = {
            'POSN': lambda: positions_of([p[own] for p, own in zip(layer.positions, rows)]),
            'mASS': lambda: lists_of(layer.mass, rows),
            'pAID': lambda: labelled(layer.probe_mass_label, layer.probe_mass, rows),
            'vNRM': lambda: labelled(layer.value_norms_label, layer.value_norms, rows),
            'gATE': lambda: labelled(layer.gate_scores_label, layer.gate_scores, rows),
            'nCAU': lambda: labelled(layer.noncausal_label, layer.noncausal, rows),
            'sCOR': lambda: labelled(layer.score_label, layer.scores, rows),
            'KEYS': lambda: rows_in(f'KEYS layer {index}', layer.stored_keys, layer.key_store,
                                    keys, counts, rows),
            'VALS': lambda: rows_in(f'VALS layer {index}', layer.stored_values, layer.value_store,
                                    values, counts, rows)}
        retyped = {'KEYS': layer.key_store != keys, 'VALS': layer.value_store != values}
        for section, data in waiting:
            kind, element = section.type, section.element
            if kind in indexes.PARSERS and not (same and not retyped['KEYS']):
                self.dropped.add(kind)
            elif kind == 'vNRM' and retyped['VALS']:        # of the values as they were (4.23)
                self.dropped.add(kind)
            elif kind in make and not (same and not retyped.get(kind)):
                if kind in retyped:
                    element = (keys if kind == 'KEYS' else values).element
                writer.put(*make_section(kind, index, element, make[kind]()))
            else:
                writer.put(section, data)
        waiting.clear()
        release(snapshot, index)

    def events(self, snapshot: Snapshot) -> bytes:
        """The log, and that rows were dropped."""
        eviction = Event(EVICTION, snapshot.head['next_position'], 0, 0, len(self.counts),
                         self.counts)
        return b''.join(map(event_bytes, [*(snapshot.events or ()), eviction]))


def event_bytes(event: Event) -> bytes:
    """One event of eVNt (4.12)."""
    flat = [rows for layer in event.counts or () for pair in layer for rows in pair]
    flags = int(event.counts is not None)
    return struct.pack(f'<{6 + len(flat)}I', event.kind, event.position, event.n, flags, event.l0,
                       event.l1, *flat)


def change_rows(source: BinaryIO, target: BinaryIO, keep: Keep | None = None, keys: Types = None,
                values: Types = None, label: str = 'external',
                residual: int | None = None) -> list[str]:
    """Copies a snapshot from one binary file object to another, with some of its rows, and in other
    types.

    keep: a function that gets a Layer and returns for each KV head the rows that stay, as indexes
    or as a mask [S]; None: all stay. keys, values: the type of rows, as Layer.key_type has it, for
    all layers, or a list for each; None: the types that they have. residual: how many of the last
    rows of each KV head stay full behind quantised ones, 0: none; None: as in the snapshot, where
    something of it stays quantised, else with kivi2 and kivi4 as in the snapshot, or 128, and with
    other types none. Returns the types of the sections that it has dropped, since they depend
    on rows, keys or values that have changed. Raises Bad for what is read, ValueError for what
    keep() returns, for rows that a type cannot hold, for rows that do not all stay where the
    snapshot has a residual and they keep their type, and for another residual beside rows that
    keep theirs; then the output has no end."""
    change = Change(keep, keys, values, label, residual)
    snapshot = Snapshot()
    tape: list[bytes] = []
    waiting: list[tuple[container.Section, bytes]] = []
    signature, preamble = Signature(change.options), b''
    writer: Any = None              # from HEAD on
    for section in container.sections(source, snapshot, tape):
        data = b''.join(tape)
        if section is None:
            preamble = data
        elif section.type == 'HEAD':
            preamble, section, data = change.front(snapshot, preamble, section, data)
            writer = Writer(target, preamble)
            writer.put(section, data)
        elif section.type in ('pADD', 'iNDX'):
            pass                    # made anew
        elif keep and change.unknown(section):
            change.dropped.add(section.type)
        elif section.type == 'eVNt' and change.fewer:
            writer.put(*make_section('eVNt', NONE, 4, change.events(snapshot)))
        elif signature.takes(writer, section, snapshot):
            pass
        elif section.type == 'POSN' or waiting:
            waiting.append((section, data))
            if section.type == 'VALS':
                change.layer(writer, waiting, snapshot, section.layer)
        else:
            writer.put(section, data)
    return sorted(change.dropped)


def row_stage(keep: Keep | None = None, keys: Types = None, values: Types = None,
              label: str = 'external', residual: int | None = None) -> None:
    """The whole of a program that is a stage of a pipe: change_rows() from standard input to
    standard output, and the messages and exit codes of kvpipe(7)."""
    run_stage(lambda source, target: change_rows(source, target, keep, keys, values, label,
                                                 residual))
