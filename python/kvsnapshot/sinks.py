"""Learned sinks of attention, the section SINk (kv-snapshot.md, 4.27)."""

from __future__ import annotations

import math

from .content import exactly, f32s, need, parse_queries

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from .container import Section
    from .content import Check, Parse, Snapshot


def parse_sinks(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    need(snapshot.model.get('attention_sinks'), 'HEAD has no attention_sinks')
    sinks = f32s(content)
    need(all(map(math.isfinite, sinks)), 'not finite')
    snapshot.layers[section.layer].sinks = sinks


def parse_queries_of(snapshot: Snapshot, section: Section, content: bytearray) -> None:
    """oBSq, which stands behind the sinks of a model that has them."""
    need(not snapshot.model.get('attention_sinks') or
         snapshot.layers[section.layer].sinks is not None, 'order: SINk is due')
    parse_queries(snapshot, section, content)


SIZES: dict[str, Check] = {
    'SINk': lambda snapshot, s: exactly(s, 4 * snapshot.model['query_heads'])}
PARSERS: dict[str, Parse] = {'SINk': parse_sinks, 'oBSq': parse_queries_of}
