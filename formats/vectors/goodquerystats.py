"""goodquerystats - snapshots with query statistics (4.22) that must be accepted."""

from good import TOOLS, around, head, place, ragged, sections
from kvwrite import Section, query_stats, stream

MOST, LEAST = 1.7976931348623157e308, 5e-324


def beside(codec=0, dtype='f16', **options):
    """Two layers, six query heads on two KV heads of width 6, and all that may stand beside."""
    h = head(2, 6, 2, 6, 11, dtype, 9)
    return sections(h, [[[0, 2, 5]], [[1, 2, 3, 8], [0, 7]]], [7, 0, 10, 3, 3], window=[5, 7, 8],
                    weighed=True, paying='max', scored='snapkv kernel=7', logits=True, tools=TOOLS,
                    stats=[(4, 5), (0, 9)], codec=codec, **options)


def layers(count, E, stats, rope=None, codec=0, dtype='bf16', heads=(3, 3)):
    """A snapshot of so many layers with nothing else beside the rows."""
    h = head(count, *heads, E, 11, dtype, 7, {'theta': 10000.0, 'type': 'default', **(rope or {})})
    return sections(h, ragged(count), [3, 1, 4, 1, 5, 9, 2], stats=stats, codec=codec)


def one_head(E, first, n, sums, moduli, products, codec=0):
    """One layer of one query head with these numbers."""
    out = sections(head(1, 1, 1, E), [[[0]]], [0])
    content = query_stats(first, n, [(sums, moduli, products)])
    out.insert(place(out, 'POSN', 0) + 1, Section('qSTa', content, 0, 4, codec))
    return out


def extremes():
    """Numbers at the end of what is allowed: the greatest and the least of f64, the sign bit where
    a number may be negative, the greatest numbers of queries."""
    return one_head(4, 4294967295, 4294967295, [MOST, -MOST, -0.0, LEAST], [MOST, LEAST],
                    [MOST, -MOST, MOST, LEAST, -LEAST, 0.0, -0.0, 0.0, -0.0, LEAST])


def zeros():
    """Queries all of which are zero are not the same as no query."""
    return one_head(3, 0, 5, [0.0] * 3, [0.0], [0.0] * 6)


def blocks(codec=2):
    """A qSTa of two blocks (3.3): the second begins in the last rows of the triangle."""
    E, values = 512, [abs(v) / 16 for v in range(-40, 40)]
    count = E * (E + 1) // 2
    return one_head(E, 4, 100, steps_of(values, E), steps_of(values, E // 2),
                    steps_of(values, count), codec)


def steps_of(values, count):
    return (values * (count // len(values) + 1))[:count]


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'query-stats', stream(beside())
    yield 'query-stats-lz4', stream(beside(1))
    yield 'query-stats-planes', stream(beside(2))
    yield 'query-stats-f32', stream(beside(dtype='f32'))
    yield 'query-stats-width', stream(layers(2, 8, [(0, 3), (4, 2)], {'width': 6}))
    yield 'query-stats-skip', stream(layers(5, 4, [(4, 3)] * 5, {'skip': 2}, heads=(6, 3)))
    yield 'query-stats-skip-width', stream(layers(3, 7, [(1, 2)] * 3, {'skip': 3, 'width': 2}))
    yield 'query-stats-skip-all', stream(layers(2, 4, [(0, 7)] * 2, {'skip': 1}))
    yield 'query-stats-none', stream(layers(3, 4, [(4, 0), (0, 0), (4, 3)], codec=1))
    yield 'query-stats-one-layer', stream(layers(3, 4, [None, (4, 3), None]))
    yield 'query-stats-odd', stream(layers(1, 7, [(4, 3)]))
    yield 'query-stats-width-1', stream(layers(2, 1, [(4, 3)] * 2))
    yield 'query-stats-extremes', stream(extremes())
    yield 'query-stats-zeros', stream(zeros())
    yield 'query-stats-blocks', stream(blocks())
    yield 'query-stats-unknown', stream(around(beside(), 'qSTa'))
