"""goodvaluenorms - snapshots with norms of value outputs (4.23) that must be accepted."""

from good import TOOLS, around, head, place, ragged, sections, steps
from goodrows import quantise, typed
from kvwrite import pack, stream

MOST, LEAST = 3.4028234663852886e38, 1.401298464324817e-45


def beside(codec=0, dtype='f16', norms=('l1', 'l2'), **options):
    """Two layers, six query heads on two KV heads of width 6, and all that may stand beside."""
    h = head(2, 6, 2, 6, 11, dtype, 9)
    return sections(h, [[[0, 2, 5]], [[1, 2, 3, 8], [0, 7]]], [7, 0, 10, 3, 3], window=[8, 9],
                    weighed=True, paying='max', scored='criticalkv', logits=True, tools=TOOLS,
                    stats=[(4, 5), (0, 9)], norms=norms, codec=codec, **options)


def empty(codec=0, **options):
    """Layers in which the first, the second, no and every KV head is without rows."""
    h = head(4, 6, 2, 6, 11, 'bf16', 9)
    return sections(h, [[[], [0, 7]], [[1, 2, 3, 8], []], [[5], [5, 6]], [[]]], [7, 0, 10],
                    weighed=True, paying='sum', scored='x', norms=['l2', 'l1', 'l2', 'l1'],
                    codec=codec, **options)


def alone(heads=(3, 3), layers=3, **what):
    """A snapshot with nothing else beside the rows than `what`."""
    h = head(layers, *heads, 4, 11, 'bf16', 7)
    return sections(h, ragged(layers), [3, 1, 4, 1, 5, 9, 2], **what)


def extremes(kind, values, kv_heads, **what):
    """Numbers at the end of what is allowed."""
    out = sections(head(1, 2, kv_heads, 2, 11, 'f32', 3), [[[0, 1, 2]]], [0], **what)
    section = out[place(out, kind, 0)]
    section.set(section.content[:192] + pack(values, 'f32'))
    return out


def with_element(kind, size, codec, **what):
    """The writer chooses the element size, 4.23 to 4.25 do not give it."""
    out = alone(layers=2, **what)
    for n in (0, 1):
        section = out[place(out, kind, n)]
        section.element = size
        section.set(section.content, codec)
    return out


def long(kind, kv_heads, codec=2, **what):
    """A section of that kind of two blocks (3.3)."""
    rows, H = 4200, 64
    out = sections(head(1, H, kv_heads, 1, 11, 'f16', rows), [[list(range(rows))]], [0],
                   codec=codec, tensor=steps, **what)
    assert len(out[place(out, kind, 0)].blocks) == 2
    return out


def blocks():
    return long('vNRM', 1, norms=['l1'])


def quantised(**what):
    """Of values that are quantised, in one layer of two."""
    h = typed(['bf16', 'int8'], ['fp8', 'bf16'], 'bf16', query_heads=4, kv_heads=2, head_width=8,
              next_position=9)
    return quantise(sections(h, [[[0, 2, 5]], [[1, 2], []]], [1, 2], **what), h)


def vectors():
    """(name, bytes) of all that must be accepted."""
    yield 'vnrm', stream(beside())
    yield 'vnrm-lz4', stream(beside(1))
    yield 'vnrm-planes', stream(beside(2))
    yield 'vnrm-l1', stream(beside(dtype='f32', norms=['l1', 'l1']))
    yield 'vnrm-empty-heads', stream(empty())
    yield 'vnrm-empty-heads-planes', stream(empty(2))
    yield 'vnrm-one-layer', stream(alone(norms=[None, 'l2', None]))
    yield 'vnrm-groups', stream(alone((6, 3), norms=['l1', None, 'l2']))
    yield 'vnrm-extremes', stream(extremes('vNRM', [0.0, LEAST, MOST, MOST, 0.0, 1.0], 1,
                                           norms=['l2']))
    for n in (1, 2):
        yield f'vnrm-element-{n}', stream(with_element('vNRM', n, n, norms=['l1', 'l2']))
    yield 'vnrm-blocks', stream(blocks())
    yield 'vnrm-quantised', stream(quantised(norms=['l2', 'l2']))
    yield 'vnrm-unknown', stream(around(beside(), 'vNRM'))
