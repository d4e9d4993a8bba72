"""goodnoncausal - snapshots with non-causal attention (4.25) that must be accepted."""

import goodgatescores
from good import around
from goodresidual import first, with_full
from goodvaluenorms import LEAST, MOST, alone, extremes, long, quantised, with_element
from kvwrite import stream

# 4.25 does not say that layers have the same label
BOTH = ('chunk=256 first=4', 'chunk=256 first=0')


def beside(codec=0, noncausal=BOTH, **options):
    """Two layers, and all that may stand beside, gate scores too."""
    return goodgatescores.beside(codec, noncausal=noncausal, **options)


def empty(codec=0):
    """Layers in which the first, the second, no and every KV head is without rows."""
    return goodgatescores.empty(codec, noncausal=['a', 'b', 'c', 'd'])


def blocks():
    """An nCAU of two blocks (3.3): 64 KV heads of the same 4200 rows."""
    return long('nCAU', 64, noncausal=[BOTH[0]])


def residual():
    """Full rows behind quantised ones: a number is of a row."""
    return with_full(['kivi4', 'int8-hadamard'], ['q5_0', 'kivi2'], 32, 'f16',
                     [first(31, 33, 70), first(32, 0, 65)], 3, 32, noncausal=BOTH)


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'ncau', stream(beside())
    yield 'ncau-planes', stream(beside(2))
    yield 'ncau-empty-heads', stream(empty(1))
    # query heads in groups; no label, the longest one, and a layer without
    yield 'ncau-groups', stream(alone((6, 3), noncausal=['', None, '\u00e9' * 95 + 'x']))
    yield 'ncau-extremes', stream(extremes('nCAU', [MOST, LEAST, 0.0, 1.0, MOST, 0.0], 2,
                                           noncausal=['x']))
    yield 'ncau-element-2', stream(with_element('nCAU', 2, 2, noncausal=BOTH))
    yield 'ncau-blocks', stream(blocks())
    yield 'ncau-quantised', stream(quantised(noncausal=BOTH))
    yield 'residual-ncau', stream(residual())
    yield 'ncau-unknown', stream(around(beside(), 'nCAU'))
