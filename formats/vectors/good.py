"""good - the snapshots that must be accepted, each with the reason why it is there."""

from kvwrite import (NONE, Section, canonical, event, mass, pack, paid, positions, queries,
                     scores, stream, u32s)

ITEM_SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}
INF = float('inf')
LLAMA3 = {'type': 'llama3', 'theta': 500000.0, 'factor': 32.0, 'high_freq_factor': 4.0,
          'low_freq_factor': 1.0, 'original_max_position': 8192}
TOOLS = (b'{"options":{"chunk":512,"observe":4},"tool":"kv-prefill","version":"0.1.0"}\n'
         b'{"options":{"method":"snapkv"},"tool":"kv-score","version":"0.1.0"}\n')


def head(layers=1, query_heads=1, kv_heads=1, head_width=2, vocabulary=11, dtype='f32',
         next_position=1, rope=None, **others):
    """A HEAD as Python holds it. others: further keys beside the four."""
    model = {
        'architecture': 'llama', 'attention_bias': False, 'ffn': 40, 'head_width': head_width,
        'hidden': query_heads * head_width, 'kv_heads': kv_heads, 'layers': layers,
        'norm_eps': 1e-05, 'query_heads': query_heads,
        'rope': rope or {'theta': 10000.0, 'type': 'default'}, 'tied_embeddings': True,
        'tokenizer': '00112233445566778899aabbccddeeff', 'vocabulary': vocabulary,
        'weights': 'f0e1d2c3b4a5968778695a4b3c2d1e0f', 'weights_dtype': dtype}
    return dict(others, dtype=dtype, keys='rope', model=model, next_position=next_position)


def numbers(count, seed):
    """Multiples of 1/16 between -3.125 and 3.125: exact in every dtype."""
    return [((i * 37 + seed * 11) % 101 - 50) / 16 for i in range(count)]


def received(layer, model, n):
    """Values of mASS for one layer, n the seed."""
    group = model['query_heads'] // model['kv_heads']
    layer = layer * (model['kv_heads'] // len(layer))
    return [[[abs(v) for v in numbers(len(rows), n + g * group + r)] for r in range(group)]
            for g, rows in enumerate(layer)]


def observed(h, window, n):
    """oBSq of layer n: source 2 when a position is not below next_position."""
    model, run = h['model'], sum(p >= h['next_position'] for p in window)
    vectors = model['query_heads'] * len(window) + model['kv_heads'] * run
    data = pack(numbers(vectors * model['head_width'], n + 7), h['dtype'])
    return queries(window, data, 2 if run else 1)


def kept_first(lists):
    """The same with +inf for the first row of each list that has one."""
    return [[[INF, *one[1:]] if one else one for one in head] for head in lists]


def sections(h, lists, tokens, window=None, weighed=False, paying=None, scored=None, logits=False,
             tools=None, codec=0, tensor=None):
    """The sections of a snapshot from its HEAD and, for each layer, its lists of positions.

    window: positions of the observation queries. weighed: with the attention received.
    paying: label of the attention paid. scored: label of the scores.
    tensor: bytes of count elements from (count, seed, dtype), when not numbers().
    """
    model, dtype = h['model'], h['dtype']
    item, E = ITEM_SIZE[dtype], model['head_width']
    tensor = tensor or (lambda count, seed, dtype: pack(numbers(count, seed), dtype))
    out = [Section('HEAD', canonical(h).encode(), codec=min(codec, 1)),
           Section('TOKS', u32s(tokens), element=4, codec=codec)]
    for n, layer in enumerate(lists):
        rows = sum(map(len, layer)) * (model['kv_heads'] if len(layer) == 1 else 1)
        out.append(Section('POSN', positions(layer), n, 4, codec))
        if window:
            out.append(Section('oBSq', observed(h, window, n), n, item, codec))
        if weighed:
            out.append(Section('mASS', mass(received(layer, model, n)), n, 4, codec))
        if paying:
            values = kept_first(received(layer, model, n + 1))
            out.append(Section('pAID', paid(paying, values), n, 4, codec))
        if scored:
            values = [INF if i % 5 == 0 else v for i, v in enumerate(numbers(rows, n + 3))]
            out.append(Section('sCOR', scores(scored, values), n, 4, codec))
        out.append(Section('KEYS', tensor(rows * E, 2 * n, dtype), n, item, codec))
        out.append(Section('VALS', tensor(rows * E, 2 * n + 1, dtype), n, item, codec))
    if logits:
        out.append(Section('LGTS', pack(numbers(model['vocabulary'], 5), 'f32'), NONE, 4, codec))
    if tools:
        out.append(Section('pROv', tools, codec=min(codec, 1)))
    return out


def ragged(layers):
    """Other rows in each layer for three KV heads; the second is empty in the odd layers."""
    return [[list(range(n, 7)), [] if n % 2 else [0, 3, 6], [1, 2 + n]] for n in range(layers)]


def awkward(dtype='bf16', **options):
    """Five layers, seven tokens, six query heads on three KV heads of width 24."""
    h = head(5, 6, 3, 24, 11, dtype, 7, LLAMA3)
    return sections(h, ragged(5), [3, 1, 4, 1, 5, 9, 2], **options)


def small(**options):
    """Two layers, two KV heads, three query heads each, width 6: what bad.py starts from."""
    h = head(2, 6, 2, 6, 11, 'f16', 9)
    return sections(h, [[[0, 2, 5]], [[1, 2, 3, 8], [0, 7]]], [7, 0, 10, 3, 3], **options)


def full(**options):
    return small(window=[5, 7, 8], scored='snapkv kernel=7', logits=True, tools=TOOLS, **options)


def events():
    """What led to the rows of small(): whole layers, single ones, one with a row less, an
    eviction in all and one in layer 1 alone, tokens after that."""
    return [event(1, 1, 1, 0, 2), event(1, 3, 2, 0, 1),
            event(1, 3, 2, 1, 2, [(1, 3), (1, 2)]),
            event(3, 3, 0, 0, 2, [(3, 1), (3, 1), (3, 3), (2, 0)]),
            event(3, 7, 0, 1, 2, [(3, 2), (0, 0)]), event(2, 9, 2, 0, 2)]


def logged(log=None, **options):
    out = full(**options)
    content = b''.join(log if log is not None else events())
    out.insert(place(out, 'pROv'), Section('eVNt', content, element=4,
                                           codec=options.get('codec', 0)))
    return out


def place(sections, kind, layer=NONE):
    """Where in the list that section stands."""
    return [(s.type, s.layer) for s in sections].index((kind, layer))


def with_unknown():
    """Unknown ancillary sections, safe and unsafe, public and private, in every place."""
    out = full()
    out.insert(place(out, 'POSN', 0), Section('qXYz', b'safe, before the layers'))
    out.insert(place(out, 'POSN', 0) + 1, Section('qXYZ', b'unsafe, of layer 0', 0, 2))
    out.insert(place(out, 'VALS', 0) + 1, Section('qpYz', b'safe, private, of layer 0', 0))
    out.insert(place(out, 'KEYS', 1), Section('qXYZ', bytes(range(100)), 1))
    out.insert(place(out, 'KEYS', 1), Section('aBCD', b'unsafe, no layer, among a layer'))
    out.insert(place(out, 'pROv'), Section('qpYZ', b'unsafe, private, before pROv'))
    out.append(Section('zZZz', b'', element=4))
    return out


def with_padding():
    """pADD wherever it may stand, also where nothing needs it."""
    out = []
    for n, section in enumerate(full()):
        out += [section] + [Section('pADD')] * (n % 3)
    return out + [Section('pADD', element=4)]


def steps(count, seed, dtype):
    """Elements that repeat, for content that LZ4 makes small."""
    period = pack(numbers(101, seed), dtype)
    return (period * (count // 101 + 1))[:count * ITEM_SIZE[dtype]]


def blocks(codec):
    """KEYS and VALS of two blocks, the second one short; a page boundary before each."""
    h = head(1, 3, 3, 1024, 11, 'f32', 400)
    lists = [[list(range(0, 240, 2)), [], list(range(100, 237))]]
    return sections(h, lists, [1, 2, 3], codec=codec, tensor=steps)


def mixed_blocks():
    """Blocks of one section with different codecs: 2, then 0."""
    out = blocks(2)
    keys = out[place(out, 'KEYS', 0)]
    keys.blocks[1] = Section('KEYS', keys.content[1 << 20:], 0, 4).blocks[0]
    return out


def vectors():
    """(name, bytes) of all that must be accepted."""
    one = head()
    yield 'minimal', stream(sections(one, [[[0]]], [0]))
    yield 'no-index', stream(sections(one, [[[0]]], [0]), index=False)
    yield 'no-rows', stream(sections(head(kv_heads=3, query_heads=3), [[[]]], [4]))
    yield 'one-list', stream(sections(head(2, 4, 2, 6, next_position=3),
                                      [[[0, 1, 2]], [[2]]], [1, 2, 3]))
    yield 'far-positions', stream(sections(head(next_position=4294967295),
                                           [[[0, 65536, 4294967294]]], [8, 8]))
    yield 'unknown-head-key', stream(sections(
        head(note='"quoted" \\ \u00e9', nested={'b': [1, 2.5, True], 'a': {}}), [[[0]]], [0]))
    for dtype in ('bf16', 'f16', 'f32'):
        yield f'ragged-{dtype}', stream(awkward(dtype))
    yield 'observed', stream(awkward(window=[3, 4, 5, 6]))
    yield 'mass', stream(awkward(weighed=True))
    yield 'mass-one-list', stream(sections(head(1, 4, 2, 6, next_position=3), [[[0, 2]]],
                                           [1, 2, 3], weighed=True, scored='h2o'))
    yield 'mass-planes', stream(awkward('f32', window=[5, 6], weighed=True, scored='h2o', codec=2))
    yield 'scored', stream(awkward(scored='h2o'))
    yield 'own-keys', stream(awkward(window=[7, 8, 10]))
    yield 'own-keys-mixed', stream(awkward('f32', window=[3, 6, 7, 8, 4294967295], codec=2))
    yield 'paid', stream(awkward(paying='max chunk=2000'))
    yield 'paid-beside-mass', stream(sections(head(1, 4, 2, 6, next_position=3), [[[0, 2]]],
                                              [1, 2, 3], window=[2, 3], weighed=True,
                                              paying='sum', scored='observed', codec=2))
    yield 'logits', stream(small(logits=True))
    yield 'provenance', stream(small(tools=TOOLS))
    yield 'full', stream(full())
    yield 'events', stream(logged())
    yield 'events-planes', stream(logged(codec=2))
    yield 'full-lz4', stream(full(codec=1))
    yield 'full-planes', stream(full(codec=2))
    yield 'awkward-planes', stream(awkward(window=[4, 6], scored='keydiff', logits=True,
                                           tools=TOOLS, codec=2))
    yield 'unknown-ancillary', stream(with_unknown())
    yield 'padding', stream(with_padding())
    # iNDX stands directly before ENDS, but the order is judged without pADD
    yield 'padding-before-ends', stream(small(), late=[Section('pADD')] * 2)
    yield 'blocks-planes', stream(blocks(2))
    yield 'blocks-mixed', stream(mixed_blocks())
