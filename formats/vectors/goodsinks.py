"""goodsinks - snapshots of a model with learned sinks (4.27) that must be accepted, and what
badsinks.py edits."""

import json
import struct

from good import around, awkward, place, small
from kvwrite import Section, canonical, stream


def sinks(values, layer):
    return Section('SINk', struct.pack(f'<{len(values)}f', *values), layer, 4)


def with_flag(out, flag=True):
    """HEAD says that the model has sinks."""
    head = json.loads(out[0].content)
    head['model']['attention_sinks'] = flag
    out[0].set(canonical(head).encode())
    return out


def with_sinks(out, values=lambda layer, h: (h - 2) * 1.5 + layer / 4, layers=None):
    """The same with sinks in these layers; None: in those with queries."""
    head = json.loads(with_flag(out)[0].content)['model']
    for n in range(head['layers']):
        asked = any(s.type == 'oBSq' and s.layer == n for s in out)
        if asked if layers is None else n in layers:
            out.insert(place(out, 'POSN', n) + 1,
                       sinks([values(n, h) for h in range(head['query_heads'])], n))
    return out


def observed(**options):
    return with_sinks(small(window=[5, 7, 8], **options))


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'sinks', stream(observed())
    yield 'sinks-planes', stream(observed(codec=2))
    yield 'sinks-ragged', stream(with_sinks(awkward(window=[3, 4, 5, 6])))
    yield 'sinks-none', stream(with_flag(small()))
    yield 'sinks-alone', stream(with_sinks(small(), layers=[1]))
    yield 'sinks-extremes', stream(with_sinks(
        small(window=[8]), lambda _, h: (-3.0e38, 3.0e38, 0.0, -0.0, 1e-40, -1.0)[h]))
    yield 'sinks-unknown', stream(around(observed(), 'SINk'))
