"""Scores of rows, the sections sCOR, of a gate gATE and, of non-causal attention, nCAU: what they
contain, and their rules (kv-snapshot.md, 4.6, 4.24 and 4.25)."""

from __future__ import annotations

import math
from collections import namedtuple

from .content import LABEL, Bad, exactly, f32s, parse_label
from .sequences import Pieces

TYPE_CHECKING = False       # typing takes time to load
if TYPE_CHECKING:
    from typing import Callable, Sequence

    from .container import Section
    from .content import Check, Parse, Snapshot
    from .sequences import Numbers


class Scores(namedtuple('Scores', 'label values')):
    """values: of each KV head"""

    __slots__ = ()
    label: str
    values: Sequence[Numbers[float]]


def size_of_scores(snapshot: Snapshot, section: Section) -> None:
    exactly(section, LABEL + 4 * snapshot.layers[section.layer].total)


def parse_scores(name: str, wrong: Callable[[float], bool], what: str) -> Parse:
    """A label, and f32 for each row, of which none is wrong(); the layer has them by this name."""
    def parse(snapshot: Snapshot, section: Section, content: bytearray) -> None:
        layer = snapshot.layers[section.layer]
        values = f32s(memoryview(content)[LABEL:])
        scores = Scores(parse_label(content), Pieces(values, layer.rows))
        if any(map(wrong, values)):
            g, row = next((g, row) for g, own in enumerate(scores.values)
                          for row, value in enumerate(own) if wrong(value))
            raise Bad(f'KV head {g} row {row}: {what}')
        setattr(layer, name, scores)
    return parse


def signed(value: float) -> bool:
    return math.copysign(1, value) < 0


SIZES: dict[str, Check] = {'gATE': size_of_scores, 'nCAU': size_of_scores, 'sCOR': size_of_scores}
PARSERS: dict[str, Parse] = {
    'gATE': parse_scores('gate_scores', lambda v: not math.isfinite(v), 'not finite'),
           'nCAU': parse_scores('noncausal', lambda v: signed(v) or not math.isfinite(v),
                                'negative, or not finite'),
           'sCOR': parse_scores('scores', math.isnan, 'NaN')}
