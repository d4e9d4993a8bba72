"""Norms of value outputs, the section vNRM: what it contains, and its rules (kv-snapshot.md,
4.23)."""

from collections import namedtuple

from .content import INFINITY, LABEL, lists_of_rows, need, size_of_mass, u32s

LABELS = ('l1', 'l2')

ValueNorms = namedtuple('ValueNorms', 'label values')       # values: as Layer.mass


def parse_norms(snapshot, section, content):
    layer = snapshot.layers[section.layer]
    label = content[:LABEL].rstrip(b'\0').decode('latin-1')
    need(label in LABELS, 'the label is neither l1 nor l2, filled with zero')
    data = memoryview(content)[LABEL:]
    values = lists_of_rows(snapshot, layer, data)
    need(max(u32s(data), default=0) < INFINITY, 'not finite')
    layer.value_norms = ValueNorms(label, values)


SIZES = {'vNRM': size_of_mass(LABEL)}
PARSERS = {'vNRM': parse_norms}
