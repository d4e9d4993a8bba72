"""goodlatent - snapshots with latent attention (4.26) that must be accepted: values are channels of
keys."""

import good
from good import TOOLS, add_indexes, numbers, place, sections
from goodrows import quantise
from kvwrite import stream


def head(layers=1, query_heads=3, rank=6, width=4, nope=3, value=5, more=None, **options):
    """A HEAD of multi-head latent attention."""
    rope = {'theta': 10000.0, 'type': 'default', 'width': width}
    latent = {'latent_rank': rank, 'latent_nope': nope, 'latent_value': value,
              'architecture': 'deepseek_v3', 'attention_multiplier': 0.375, **(more or {})}
    return good.head(layers, query_heads, 1, rank + width, rope=rope, more=latent, **options)


def small(**options):
    """Two layers of other rows: what badlatent.py starts from."""
    return sections(head(2, dtype='f16', next_position=9), [[[0, 2, 5]], [[1, 2, 3, 8]]],
                    [7, 0, 10, 3, 3], **options)


def typed(kinds, rank=40, width=24, **options):
    """The rows of each layer have these types."""
    return head(len(kinds), rank=rank, width=width, next_position=9,
                row_types={'keys': kinds, 'values': kinds}, **options)


def quantised(**options):
    h = typed(['q8_0', 'bf16', 'int8-hadamard', 'q4_0'], dtype='bf16')
    return quantise(sections(h, [[[0, 2, 5]], [[1]], [[0, 8]], [[3, 4, 5, 6]]], [1, 2], **options),
                    h)


def indexed():
    """Indexes over all channels of keys, some of which are the values"""
    h = head(rank=20, width=12, dtype='bf16', next_position=50)
    out = sections(h, [[list(range(37))]], [1, 2, 3], scored='x')
    return add_indexes(out, h, 0, [37], numbers(37 * 32, 0), 16, 4, 3, (4, 16, 5, [[1, 3]]))


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'latent', stream(small())
    yield 'latent-planes', stream(small(window=[5, 7, 8], weighed=True, scored='snapkv kernel=7',
                                        logits=True, tools=TOOLS, codec=2))
    yield 'latent-stats', stream(small(stats=[(0, 4), (1, 0)], norms=['l1', 'l2'],
                                       gates=['x', None]))
    yield 'latent-no-rows', stream(sections(head(), [[[]]], [4]))
    yield 'latent-quantised', stream(quantised())
    yield 'latent-indexes', stream(indexed())
    h = head(1, 128, 512, 64, 128, 128, dtype='bf16', next_position=3)
    out = sections(h, [[[0, 2]]], [1, 2, 3])
    assert len(out[place(out, 'KEYS', 0)].content) == 2 * 1152         # the table of 4.26
    yield 'latent-deepseek', stream(out)
