"""Norms of value outputs, the section vNRM: what it contains, and its rules (kv-snapshot.md,
4.23)."""

from __future__ import annotations

from collections import namedtuple

from .content import INFINITY, LABEL, lists_of_rows, need, size_of_mass, u32s

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from .container import Section
    from .content import Check, Mass, Parse, Snapshot

LABELS = ('l1', 'l2')


class ValueNorms(namedtuple('ValueNorms', 'label values')):
    __slots__ = ()
    label: str
    values: Mass


def parse_norms(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    layer = snapshot.layers[section.layer]
    label = content[:LABEL].rstrip(b'\0').decode('latin-1')
    need(label in LABELS, 'the label is neither l1 nor l2, filled with zero')
    data = memoryview(content)[LABEL:]
    values = lists_of_rows(snapshot, layer, data)
    need(max(u32s(data), default=0) < INFINITY, 'not finite')
    layer.value_norms = ValueNorms(label, values)


SIZES: dict[str, Check] = {'vNRM': size_of_mass(LABEL)}
PARSERS: dict[str, Parse] = {'vNRM': parse_norms}
