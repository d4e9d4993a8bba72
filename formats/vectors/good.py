"""good - the snapshots that must be accepted, each with the reason why it is there."""

import json

from kvwrite import (NONE, Section, bits, canonical, clusters, event, head_keys, low_rank, mass,
                     pack, pages, paid, positions, queries, query_stats, query_sums, scores, stream,
                     u32s, value_norms)

ITEM_SIZE = {'bf16': 2, 'f16': 2, 'f32': 4}
INF = float('inf')
HEAD = '0123456789abcdef0011223344556677'        # what a retrieval head is called
LLAMA3 = {'type': 'llama3', 'theta': 500000.0, 'factor': 32.0, 'high_freq_factor': 4.0,
          'low_freq_factor': 1.0, 'original_max_position': 8192}
TOOLS = (b'{"options":{"chunk":512,"observe":4},"tool":"kv-prefill","version":"0.1.0"}\n'
         b'{"options":{"method":"snapkv"},"tool":"kv-score","version":"0.1.0"}\n')

# what JSON may say at most (4.1), white space, and a key that is not known
LIMITS = (b' { "options" : {"depth":' + b'[' * 62 + b']' * 62 + b',"least":-9223372036854775808,'
          b'"most":9223372036854775807,"real":[1.7976931348623157e308,5e-324,1e-400,-0.0,1E+2],'
          b'"text":"\\ud83d\\ude00 \\uffff \xf0\x9f\x98\x80 \x7f"} , "tool":"\\u006bv-x",'
          b'"version":"","more":null}\t\n')


def head(layers=1, query_heads=1, kv_heads=1, head_width=2, vocabulary=11, dtype='f32',
         next_position=1, rope=None, more=None, **others):
    """A HEAD as Python holds it. more: further keys of the model; others: beside the four."""
    model = {
        'architecture': 'llama', 'attention_bias': False, 'ffn': 40, 'head_width': head_width,
        'hidden': query_heads * head_width, 'kv_heads': kv_heads, 'layers': layers,
        'norm_eps': 1e-05, 'query_heads': query_heads,
        'rope': rope or {'theta': 10000.0, 'type': 'default'}, 'tied_embeddings': True,
        'tokenizer': '00112233445566778899aabbccddeeff', 'vocabulary': vocabulary,
        'weights': 'f0e1d2c3b4a5968778695a4b3c2d1e0f', 'weights_dtype': dtype, **(more or {})}
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


def rotated(model, layer):
    """How many channels of a query are rotated (4.1)."""
    rope = model['rope']
    skipped = (layer + 1) % rope.get('skip', layer + 2) == 0
    return 0 if skipped else rope.get('width', model['head_width'])


def asked(h, n, layer):
    """The n queries of each query head of qSTa of a layer."""
    H, E = h['model']['query_heads'], h['model']['head_width']
    flat = numbers(H * n * E, layer + 13)
    return [[flat[i:i + E] for i in range(g * n * E, (g + 1) * n * E, E)] for g in range(H)]


def stats_of(h, first, n, layer):
    """qSTa of a layer."""
    E, W = h['model']['head_width'], rotated(h['model'], layer)
    b = h['model'].get('latent_rank', 0)
    return query_stats(first, n, [query_sums(own, E, W, b) for own in asked(h, n, layer)])


def kept_first(lists):
    """The same with +inf for the first row of each list that has one."""
    return [[[INF, *one[1:]] if one else one for one in head] for head in lists]


def sections(h, lists, tokens, window=None, weighed=False, paying=None, scored=None, logits=False,
             tools=None, codec=0, tensor=None, stats=None, norms=None, gates=None,
             noncausal=None):
    """The sections of a snapshot from its HEAD and, for each layer, its lists of positions.

    window: positions of the observation queries. weighed: with the attention received.
    paying: label of the attention paid. scored: label of the scores. stats: for each layer `first`
    and the number of queries of its query statistics, None for a layer without. norms, gates,
    noncausal: for each layer the label of its norms of value outputs, of its gate scores and of its
    non-causal attention, or None.
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
        if stats and stats[n]:
            out.append(Section('qSTa', stats_of(h, *stats[n], n), n, 4, codec))
        if weighed:
            out.append(Section('mASS', mass(received(layer, model, n)), n, 4, codec))
        if paying:
            values = kept_first(received(layer, model, n + 1))
            out.append(Section('pAID', paid(paying, values), n, 4, codec))
        if norms and norms[n]:
            out.append(Section('vNRM', value_norms(norms[n], received(layer, model, n + 2)), n, 4,
                               codec))
        if gates and gates[n] is not None:
            out.append(Section('gATE', scores(gates[n], numbers(rows, n + 4)), n, 4, codec))
        if noncausal and noncausal[n] is not None:
            values = [abs(v) for v in numbers(rows, n + 5)]
            out.append(Section('nCAU', scores(noncausal[n], values), n, 4, codec))
        if scored:
            values = [INF if i % 5 == 0 else v for i, v in enumerate(numbers(rows, n + 3))]
            out.append(Section('sCOR', scores(scored, values), n, 4, codec))
        out.append(Section('KEYS', tensor(rows * E, 2 * n, dtype), n, item, codec))
        stored = 0 if 'latent_rank' in model else rows * E
        out.append(Section('VALS', tensor(stored, 2 * n + 1, dtype), n, item, codec))
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


def runs():
    """The same with tokens that run and are not stored: after the first rows, in one layer alone,
    and between tokens that are decoded."""
    log = events()
    return (log[:1] + [event(1, 1, 3, 0, 2, [(1, 1)] * 4)] + log[1:3] +
            [event(1, 3, 4294967295, 1, 2, [(3, 3), (2, 2)])] + log[3:5] +
            [event(2, 8, 1, 0, 2), event(1, 8, 1, 0, 2, [(2, 2), (2, 2), (3, 3), (1, 1)]),
             event(2, 9, 1, 0, 2)])


def logged(log=None, **options):
    out = full(**options)
    content = b''.join(log if log is not None else events())
    out.insert(place(out, 'pROv'), Section('eVNt', content, element=4,
                                           codec=options.get('codec', 0)))
    return out


def beside(out, shape=(3, 4, 5), features=0, codec=0):
    """Puts keys of a retrieval head where they belong: behind the layers and the logits."""
    dtype = json.loads(out[0].content)['dtype']
    heads, width, n = shape
    content = head_keys(HEAD, shape, numbers(features, 4),
                        pack(numbers(heads * n * width, 9), dtype))
    kinds = [s.type for s in out]
    at = min(kinds.index(kind) for kind in ('eVNt', 'pROv') if kind in kinds)
    out.insert(at, Section('rHDk', content, element=ITEM_SIZE[dtype], codec=codec))
    return out


def place(sections, kind, layer=NONE):
    """Where in the list that section stands."""
    return [(s.type, s.layer) for s in sections].index((kind, layer))


def around(out, kind):
    """out, with an unknown section before that kind in layer 0, and one behind it in layer 1."""
    out.insert(place(out, kind, 0), Section('qXYZ', b'unsafe, before', 0))
    out.insert(place(out, kind, 1) + 1, Section('qXYz', b'safe, behind', 1))
    return out


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


def add_indexes(out, h, n, counts, values, group=0, page=0, sink=None, low=None, codec=0):
    """Puts indexes of layer n behind its KEYS, whose values are these.

    group, page: rows of an entry. sink: with clusters of four rows each. low: (chunk, rows, rank,
    exact chunks of each KV head)."""
    dtype, E, at = h['dtype'], h['model']['head_width'], place(out, 'KEYS', n) + 1
    keys, item, flat = out[at - 1], ITEM_SIZE[h['dtype']], iter(values)
    heads = [[[next(flat) for _ in range(E)] for _ in range(rows)] for rows in counts]
    new = []
    if group:
        new.append(Section('bITS', bits(group, keys, heads), n, 2, codec))
    if page:
        new.append(Section('pAGE', pages(page, keys, heads, dtype), n, item, codec))
    if sink is not None:
        sizes = [max(rows - sink, 0) // 4 for rows in counts]
        labels = [[i % size for i in range(4 * size)] for size in sizes]
        ends = [sink + 4 * size if size else rows // 2 for size, rows in zip(sizes, counts)]
        new.append(Section('cLUS', clusters(sink, ends, labels, keys, heads, dtype), n, item,
                           codec))
    if low:
        chunk, rows, rank, exact = low
        left = [numbers(rank, i) for i in range(rows)]
        right = [[numbers(rank, 3 * g + e) for e in range(E)] for g in range(len(counts))]
        new.append(Section('lOWR', low_rank(chunk, exact, left, right, keys, heads, dtype), n,
                           item, codec))
    out[at:at] = new
    return out


def indexed(codec=0, layers=(0, 1)):
    """All four in each of these layers, 41 and 20 rows of two KV heads."""
    h, rows = head(2, 4, 2, 6, 11, 'bf16', 50), (41, 20)
    out = sections(h, [[list(range(5, 46))], [list(range(20))]], [1, 2, 3], scored='x',
                   logits=True, codec=codec)
    for n in layers:
        add_indexes(out, h, n, [rows[n]] * 2, numbers(12 * rows[n], 2 * n), 16, 4, 3,
                    (4, 16, 5, [[1, 3], [0, 2]]), codec)
    return out


def indexed_ragged(group=16, page=3, dtype='f16', E=7):
    """Heads with other numbers of rows: none, some, fewer than the sinks; none of them whole
    groups."""
    counts = [37, 0, 70, 9]
    h = head(1, 4, 4, E, 11, dtype, 99)
    out = sections(h, [[list(range(rows)) for rows in counts]], [1])
    return add_indexes(out, h, 0, counts, numbers(E * sum(counts), 0), group, page, 20)


def indexed_empty():
    """No rows: the hash of no bytes. Clusters and chunks of no rows."""
    h = head(1, 2, 2, 3)
    return add_indexes(sections(h, [[[]]], [0]), h, 0, [0, 0], [], 128, 65536, 4,
                       (8, 0, 6, [[], []]))


def extremes(dtype):
    """Two pages, a group: infinities, NaN, both zeros, the middle, what f16 cannot hold."""
    nan, big = float('nan'), 57344.0
    tiny = 2.0 ** {'f16': -24, 'bf16': -133, 'f32': -149}[dtype]
    channels = [[nan] * 16, [nan, 2.0, -1.0, 1.0] * 4, [INF, -INF, 1.0, 0.0] * 4, [INF] * 16,
                [-INF] * 16, [big, -big] * 8, [-0.0, 0.0] * 8, [0.0, -0.0] * 8, [3.0] * 16,
                [0.0, 1.0, 0.5, 0.25] * 4, [0.0, 3 * tiny, tiny, 2 * tiny] * 4,
                [nan] * 8 + [1.0, 2.0] * 4, [1e3, INF] * 8, [-tiny, tiny] * 8, [-0.0, nan] * 8]
    if dtype != 'f16':
        channels.append([2.0 ** 60, -2.0 ** 60, 70144.0, 65536.0] * 4)
    values = [v for row in zip(*channels) for v in row]
    h = head(1, 1, 1, len(channels), 11, dtype, 99)
    out = sections(h, [[list(range(16))]], [1],
                   tensor=lambda count, seed, dtype: pack(values, dtype))
    return add_indexes(out, h, 0, [16], values, 16, 8)


def with_unknown_indexes():
    """What is not known stands among the indexes as well."""
    out = indexed()
    out.insert(place(out, 'pAGE', 0), Section('qXYZ', b'unsafe, between indexes', 0))
    out.insert(place(out, 'VALS', 1), Section('qXYz', b'safe, behind the indexes', 1))
    return out


def families():
    """HEADs of architectures and types of rotary embedding other than Llama's."""
    yield 'linear', head(rope={'type': 'linear', 'theta': 10000.0, 'factor': 4.0})
    yarn = {'type': 'yarn', 'theta': 1000000.0, 'factor': 4.0, 'original_max_position': 32768,
            'beta_fast': 32.0, 'beta_slow': 1.0, 'attention_factor': 1.1386294361119891,
            'truncate': True}
    yield 'yarn', head(rope=yarn, more={'architecture': 'qwen2', 'attention_bias': True})
    yield 'query-beta', head(rope=dict(yarn, original_max_position=16384, attention_factor=1.0,
                                       query_beta=0.1), more={'architecture': 'ministral3'})
    yield 'longrope', head(head_width=8, rope={
        'type': 'longrope', 'theta': 10000.0, 'factors': [1.0, 1.25, 8.5], 'width': 6,
        'original_max_position': 4096, 'attention_factor': 1.1902380714238083}, more={
            'architecture': 'phi3'})
    yield 'width', head(head_width=8, rope={'type': 'default', 'theta': 10000.0, 'width': 6},
                        more={'architecture': 'phi3'})
    yield 'skip', head(5, rope={'type': 'default', 'theta': 5000000.0, 'skip': 4},
                       more={'architecture': 'smollm3', 'mlp_bias': True})
    yield 'multipliers', head(more={
        'architecture': 'granite', 'attention_multiplier': 0.015625, 'embedding_multiplier': 12.0,
        'logits_scaling': 8.0, 'residual_multiplier': 0.22})
    yield 'weights-rule', head(more={'weights_rule': 2})
    yield 'window', head(2, next_position=5000, more={'architecture': 'mistral', 'window': 4096})
    yield 'windows', head(7, rope={
        'type': 'linear', 'theta': 1000000.0, 'factor': 8.0, 'window_theta': 10000.0}, more={
            'architecture': 'gemma3_text', 'window': 512, 'whole_layers': [5],
            'attention_multiplier': 0.0625, 'embedding_multiplier': 25.25})
    yield 'softcap', head(4, more={
        'architecture': 'gemma2', 'window': 4096, 'whole_layers': [1, 3],
        'attention_softcap': 50.0, 'logits_softcap': 30.0})
    yield 'experts', head(more={'architecture': 'mixtral', 'experts': 8, 'experts_chosen': 2})


def vectors():
    """(name, bytes) of all that must be accepted."""
    one = head()
    yield 'minimal', stream(sections(one, [[[0]]], [0]))
    yield 'no-index', stream(sections(one, [[[0]]], [0]), index=False)
    for name, h in families():
        yield f'family-{name}', stream(sections(h, [[[0]]] * h['model']['layers'], [0]))
    yield 'no-rows', stream(sections(head(kv_heads=3, query_heads=3), [[[]]], [4]))
    yield 'one-list', stream(sections(head(2, 4, 2, 6, next_position=3),
                                      [[[0, 1, 2]], [[2]]], [1, 2, 3]))
    yield 'far-positions', stream(sections(head(next_position=4294967295),
                                           [[[0, 65536, 4294967294]]], [8, 8]))
    yield 'unknown-head-key', stream(sections(
        head(note='"quoted" \\ \u00e9', nested={'b': [1, 2.5, True], 'a': {}}), [[[0]]], [0]))
    yield 'documents', stream(sections(head(2, 4, 2, 6, next_position=9, documents=[1, 5, 8]),
                                       [[[0, 1, 2, 8]], [[4]]], [1, 2, 3]))
    yield 'documents-most', stream(sections(
        head(next_position=4294967295, documents=[*range(1, 1023), 4294967294]), [[[0]]], [8]))
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
    yield 'provenance-limits', stream(small(tools=LIMITS))
    yield 'full', stream(full())
    yield 'events', stream(logged())
    yield 'events-planes', stream(logged(codec=2))
    yield 'events-runs', stream(logged(runs()))
    yield 'head-keys', stream(beside(logged(), features=18))
    yield 'head-keys-planes', stream(beside(awkward('f32', tools=TOOLS, codec=2), (1, 2, 7),
                                            16, 2))
    yield 'head-keys-no-features', stream(beside(full()))
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
    yield 'indexes', stream(indexed())
    yield 'indexes-planes', stream(indexed(2))
    yield 'indexes-one-layer', stream(indexed(layers=[1]))
    yield 'indexes-unknown', stream(with_unknown_indexes())
    yield 'indexes-ragged', stream(indexed_ragged())
    yield 'indexes-ragged-64', stream(indexed_ragged(64, 2, 'f32', 10))
    yield 'indexes-ragged-32', stream(indexed_ragged(32, 16, 'bf16', 1))
    yield 'indexes-no-rows', stream(indexed_empty())
    for dtype in ('bf16', 'f16', 'f32'):
        yield f'indexes-extremes-{dtype}', stream(extremes(dtype))
