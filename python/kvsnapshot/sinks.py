"""Learned sinks of attention, the section SINk (kv-snapshot.md, 4.27)."""

import math

from .content import exactly, f32s, need, parse_queries


def parse_sinks(snapshot, section, content):
    need(snapshot.model.get('attention_sinks'), 'HEAD has no attention_sinks')
    sinks = f32s(content)
    need(all(map(math.isfinite, sinks)), 'not finite')
    snapshot.layers[section.layer].sinks = sinks


def parse_queries_of(snapshot, section, content):
    """oBSq, which stands behind the sinks of a model that has them."""
    need(not snapshot.model.get('attention_sinks') or
         snapshot.layers[section.layer].sinks is not None, 'order: SINk is due')
    parse_queries(snapshot, section, content)


SIZES = {'SINk': lambda snapshot, s: exactly(s, 4 * snapshot.model['query_heads'])}
PARSERS = {'SINk': parse_sinks, 'oBSq': parse_queries_of}
