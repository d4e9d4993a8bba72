"""goodgatescores - snapshots with gate scores (4.24) that must be accepted."""

import goodvaluenorms
from good import around
from goodresidual import first, with_full
from goodvaluenorms import LEAST, MOST, alone, extremes, long, quantised, with_element
from kvwrite import stream

# two gates of one method
BOTH = ('kvzap 0123456789abcdef', 'kvzap fedcba9876543210')


def beside(codec=0, gates=BOTH, **options):
    """Two layers, and all that may stand beside, norms of value outputs too."""
    return goodvaluenorms.beside(codec, gates=gates, **options)


def empty(codec=0, **options):
    """Layers in which the first, the second, no and every KV head is without rows."""
    return goodvaluenorms.empty(codec, gates=['a', 'b', 'c', 'd'], **options)


def blocks():
    """A gATE of two blocks (3.3): 64 KV heads of the same 4200 rows."""
    return long('gATE', 64, gates=['kvzap'])


def residual():
    """Full rows behind quantised ones, KIVI's groups among them: a number is of a row."""
    return with_full(['kivi4', 'int8-hadamard', 'q4_0'], ['q5_0', 'kivi2', 'fp8'], 32, 'f16',
                     [first(31, 33, 70), first(32, 0, 65), first(40)], 3, 32,
                     gates=['kvzap', 'kvzap', None])


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'gate', stream(beside())
    yield 'gate-lz4', stream(beside(1))
    yield 'gate-planes', stream(beside(2))
    yield 'gate-without-norms', stream(beside(dtype='f32', norms=None))
    yield 'gate-empty-heads', stream(empty())
    yield 'gate-empty-heads-planes', stream(empty(2))
    yield 'gate-one-layer', stream(alone(gates=[None, 'kvzap', None]))
    yield 'gate-groups', stream(alone((6, 3), gates=['kvzap', None, 'kvzap']))
    # none, the longest one, one whose last character has four bytes
    yield 'gate-labels', stream(alone(gates=['', 'g' * 191, '\u00e9' * 93 + 'x\U0001f600']))
    yield 'gate-extremes', stream(extremes('gATE', [MOST, -MOST, LEAST, -LEAST, -0.0, 0.0], 2,
                                           gates=['x']))
    for n in (1, 2):
        yield f'gate-element-{n}', stream(with_element('gATE', n, n, gates=BOTH))
    yield 'gate-blocks', stream(blocks())
    yield 'gate-quantised', stream(quantised(gates=BOTH))
    yield 'residual-gate', stream(residual())
    yield 'gate-unknown', stream(around(beside(), 'gATE'))
