"""kvdump - the printed forms of a snapshot that kvread.py has read: text lines and JSON."""

import itertools
import json
import math

import xxhash

NONE = 0xffffffff


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data)


def span(positions):
    return f'{positions[0]}..{positions[-1]}' if positions else '-'


def flat(prefix, value):
    """The leaves of nested objects as (dotted name, JSON text), sorted."""
    for key in sorted(value):
        if type(value[key]) is dict:
            yield from flat(f'{prefix}{key}.', value[key])
        else:
            yield prefix + key, json.dumps(value[key])


def section(s):
    layer = '-' if s.layer == NONE else s.layer
    codecs = ''.join(str(b.codec) for b in s.blocks) or '-'
    return (f'section {s.type} layer {layer} offset {s.offset} element {s.element} '
            f'raw {s.raw_size} stored {s.stored_size} codecs {codecs}')


def padding(run):
    yield f'padding offset {run[0].offset} sections {len(run)}'


def query_heads(n, name, heads):
    for g, lists in enumerate(heads):
        for r, values in enumerate(lists):
            yield f'layer {n} head {g} query {r} {name} {" ".join(map(repr, values[:16])) or "-"}'


def scores(n, name, what):
    if what:
        yield f'layer {n} {name} {json.dumps(what.label, ensure_ascii=False)}'
        for g, values in enumerate(what.values):
            yield f'layer {n} head {g} {name} {" ".join(map(repr, values[:16])) or "-"}'


def query_stats(n, stats):
    """What is before the sums, and a hash of each of the three."""
    if stats:
        parts = ' '.join(f'{name} {xxh3(b"".join(head.view for head in getattr(stats, name))):016x}'
                         for name in ('sums', 'moduli', 'products'))
        yield f'layer {n} query statistics first {stats.first} queries {stats.n} {parts}'


def quantised(snapshot, n):
    """The numbers of rows that are quantised, as f32. Needs NumPy."""
    for name in ('keys', 'values'):
        kind = snapshot.row_type(n, name)
        if kind != snapshot.head['dtype']:
            for g in range(len(snapshot.layers[n].positions)):
                f32 = snapshot.array(n, name, g).astype('<f4').tobytes()
                yield f'layer {n} head {g} {name} in {kind} are f32 {xxh3(f32):016x}'


def indexes(n, layer):
    """The lines of the indexes of one layer."""
    for name, index in (('bits', layer.bits), ('pages', layer.pages)):
        for g, entries in enumerate(index.heads if index else ()):
            yield f'layer {n} head {g} {name} of {index.u} rows: {xxh3(entries):016x}'
    if layer.clusters:
        sink, ends, labels, means = layer.clusters
        for g, own in enumerate(labels):
            yield (f'layer {n} head {g} clusters of rows from {sink} below {ends[g]}: '
                   f'{" ".join(map(str, own[:32])) or "-"} means {xxh3(means[g]):016x}')
    if layer.low_rank:
        low = layer.low_rank
        yield (f'layer {n} low rank {low.rank} of {low.rows} rows in chunks of {low.chunk}: '
               f'{xxh3(low.left):016x}')
        for g, own in enumerate(low.exact):
            yield (f'layer {n} head {g} low rank {xxh3(low.right[g]):016x} landmarks '
                   f'{xxh3(low.landmarks[g]):016x} exact {" ".join(map(str, own)) or "-"}')


def lines(snapshot):
    """The text form: stable, one fact a line."""
    yield f'snapshot version 1 features {snapshot.features:#x} size {snapshot.size}'
    for is_padding, run in itertools.groupby(snapshot.sections, lambda s: s.type == 'pADD'):
        yield from padding(list(run)) if is_padding else map(section, run)
    for key, value in flat('', snapshot.head):
        yield f'head {key} {value}'
    yield f'tokens {len(snapshot.tokens)}: {" ".join(map(str, snapshot.tokens[:16]))}'
    for n, layer in enumerate(snapshot.layers):
        for g, positions in enumerate(layer.positions):
            yield (f'layer {n} head {g} rows {len(positions)} positions {span(positions)} '
                   f'keys {xxh3(snapshot.head_rows(n, "keys", g)):016x} '
                   f'values {xxh3(snapshot.head_rows(n, "values", g)):016x}')
        if layer.sinks is not None:
            yield f'layer {n} sinks {xxh3(bytes(layer.sinks.view)):016x}'
        if layer.queries:
            yield (f'layer {n} queries {len(layer.queries.positions)} source '
                   f'{layer.queries.source} positions {span(layer.queries.positions)} '
                   f'data {xxh3(layer.queries.data):016x}')
        if layer.queries and layer.queries.source == 2:
            yield f'layer {n} own keys {xxh3(layer.queries.own):016x}'
        yield from query_stats(n, layer.query_stats)
        yield from query_heads(n, 'mass', layer.mass or [])
        if layer.paid:
            yield f'layer {n} paid {json.dumps(layer.paid.label)}'
            yield from query_heads(n, 'paid', layer.paid.values)
        if layer.value_norms:
            yield f'layer {n} value norms {json.dumps(layer.value_norms.label)}'
            yield from query_heads(n, 'value norms', layer.value_norms.values)
        yield from scores(n, 'gate scores', layer.gate_scores)
        yield from scores(n, 'non-causal', layer.noncausal)
        yield from scores(n, 'scores', layer.scores)
        yield from quantised(snapshot, n)
        yield from indexes(n, layer)
        for name, content in layer.others:
            yield f'layer {n} other {name} {len(content)} bytes {xxh3(content):016x}'
    if snapshot.logits is not None:
        yield f'logits {len(snapshot.logits)}: {" ".join(map(repr, snapshot.logits[:16]))}'
    if snapshot.head_keys:
        k = snapshot.head_keys
        yield (f'retrieval head {k.name} keys {k.n} heads {k.heads} width {k.width}: '
               f'{xxh3(k.keys):016x}')
        yield (f'retrieval head features {len(k.features)}: '
               f'{" ".join(map(repr, k.features[:16])) or "-"}')
    for event in snapshot.events or []:
        counts = '' if event.counts is None else f' counts {json.dumps(list(event.counts))}'
        yield (f'event kind {event.kind}{" run" * event.run} position {event.position} '
               f'rows {event.n} layers {event.l0}..{event.l1 - 1}{counts}')
    for entry in snapshot.provenance:
        yield f'provenance {json.dumps(entry, sort_keys=True)}'
    for name, content in snapshot.others:
        yield f'other {name} {len(content)} bytes {xxh3(content):016x}'
    yield f'digest stream {snapshot.stream_digest}'
    yield f'digest logical {snapshot.logical_digest}'


def numbers(values):
    """Numbers as JSON can hold them: what is not finite becomes text."""
    return [v if math.isfinite(v) else repr(v) for v in values]


def indexes_json(layer):
    """Those that there are, by their types."""
    found = {}
    for name, index in (('bITS', layer.bits), ('pAGE', layer.pages)):
        if index:
            found[name] = {'rows': index.u, 'entries': [head.hex() for head in index.heads]}
    if layer.clusters:
        found['cLUS'] = dict(layer.clusters._asdict(),
                             means=[head.hex() for head in layer.clusters.means])
    if layer.low_rank:
        low = layer.low_rank
        found['lOWR'] = dict(low._asdict(), left=low.left.hex(),
                             right=[head.hex() for head in low.right],
                             landmarks=[head.hex() for head in low.landmarks])
    return found


def as_json(snapshot):
    """The same facts as an object for json.dumps; tensors as hexadecimal."""
    layers = []
    for layer in snapshot.layers:
        entry = {'rows': layer.rows, 'positions': layer.positions,
                 'keys': layer.keys.hex(), 'values': layer.values.hex()}
        if layer.sinks is not None:
            entry['sinks'] = layer.sinks
        if layer.queries:
            entry['queries'] = {'source': layer.queries.source, 'data': layer.queries.data.hex(),
                                'own': layer.queries.own.hex(),
                                'positions': layer.queries.positions}
        if layer.query_stats:
            entry['query_stats'] = layer.query_stats._asdict()
        if layer.mass:
            entry['mass'] = layer.mass
        if layer.paid:
            entry['paid'] = {'label': layer.paid.label,
                             'values': [[numbers(v) for v in head] for head in layer.paid.values]}
        if layer.value_norms:
            entry['value_norms'] = layer.value_norms._asdict()
        for name in ('gate_scores', 'noncausal'):
            if getattr(layer, name):
                entry[name] = getattr(layer, name)._asdict()
        if layer.scores:
            entry['scores'] = {'label': layer.scores.label,
                               'values': [numbers(v) for v in layer.scores.values]}
        entry.update(indexes_json(layer))
        layers.append(entry)
    return {
        'head': snapshot.head, 'tokens': snapshot.tokens, 'layers': layers,
        'logits': None if snapshot.logits is None else numbers(snapshot.logits),
        'head_keys': snapshot.head_keys and dict(snapshot.head_keys._asdict(),
                                                 keys=snapshot.head_keys.keys.hex()),
        'events': snapshot.events and [event._asdict() for event in snapshot.events],
        'provenance': snapshot.provenance, 'size': snapshot.size,
        'sections': [{'type': s.type, 'layer': None if s.layer == NONE else s.layer,
                      'offset': s.offset, 'raw': s.raw_size, 'stored': s.stored_size,
                      'codecs': [b.codec for b in s.blocks]} for s in snapshot.sections],
        'stream_digest': snapshot.stream_digest, 'logical_digest': snapshot.logical_digest}
