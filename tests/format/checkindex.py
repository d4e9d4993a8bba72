#!/usr/bin/env python3
"""checkindex - compute the indexes of a snapshot anew from its keys (4.15 to 4.18).

	checkindex.py [--says] SNAPSHOT|- ...     exit 1: an index is not that of its keys

bITS and pAGE have to be what they are to the last bit. Means of clusters and landmarks may be
off by the rounding of their sums. The factors of a low rank are not looked at: how good they
are is no question of the format. --says prints a line for each layer with indexes.

As a module: check(snapshot) raises Wrong; bits(keys, u) and pages(keys, u, dtype) make the
entries of one KV head, keys being an array [rows][E] of f32.
"""

import sys

import numpy

import kvread

LOOSE = {'bf16': 2 ** -7, 'f16': 2 ** -9, 'f32': 2 ** -20}      # of the greatest key of the mean
NAN = {'bf16': 0x7fc0, 'f16': 0x7e00, 'f32': 0x7fc00000}


class Wrong(Exception):
    """An index is not what its keys make it."""


def bounds(keys, u):
    """Keys [n][u][E] by entries, and the least and the greatest [n][E]: NaN where there is no
    number, and no -0."""
    keys = keys[:len(keys) // u * u].reshape(-1, u, keys.shape[1])
    least = greatest = keys[:, 0]
    for i in range(1, u):
        row = keys[:, i]
        least = numpy.where((row < least) | numpy.isnan(least), row, least)
        greatest = numpy.where((row > greatest) | numpy.isnan(greatest), row, greatest)
    return keys, least + numpy.float32(0), greatest + numpy.float32(0)


def half(values):
    """f16, not beyond the greatest; 0 for NaN, and for -0."""
    numbers = numpy.where(numpy.isnan(values), numpy.float32(0), values)
    return numpy.clip(numbers, -65504, 65504).astype('<f2') + numpy.float16(0)


def bits(keys, u):
    """The groups of one KV head, as bytes (4.15)."""
    with numpy.errstate(all='ignore'):
        keys, least, greatest = bounds(keys, u)
        scale = greatest - least
        one = (keys - least[:, None]).astype('f8') > scale[:, None].astype('f8') / 2
    packed = numpy.packbits(one.transpose(0, 2, 1), axis=2, bitorder='little')
    return b''.join(zero.tobytes() + s.tobytes() + b.tobytes()
                    for zero, s, b in zip(half(least), half(scale), packed))


def pages(keys, u, dtype):
    """The pages of one KV head, as bytes (4.16)."""
    pair = numpy.stack(bounds(keys, u)[1:], axis=1)
    if dtype == 'bf16':
        words = (pair.view('<u4') >> 16).astype('<u2')
    else:
        words = pair.astype('<f4' if dtype == 'f32' else '<f2')
        words = words.view('<u4' if dtype == 'f32' else '<u2')
    return numpy.where(numpy.isnan(pair), words.dtype.type(NAN[dtype]), words).tobytes()


def same_entries(where, got, want, count):
    if got != want:
        at, size = next(i for i, (a, b) in enumerate(zip(got, want)) if a != b), len(want) // count
        raise Wrong(f'{where}: entry {at // size} byte {at % size} of {size} is '
                    f'{got[at]:#04x}, not {want[at]:#04x}')


def same_means(where, got, groups, dtype):
    """got [n][E]: each about the mean of its group, an array [rows][E]."""
    for i, (mean, rows) in enumerate(zip(got, groups)):
        rows = rows.astype('f8')
        room = LOOSE[dtype] * numpy.abs(rows).max(axis=0)
        if not (numpy.abs(mean - rows.mean(axis=0)) <= room).all():
            raise Wrong(f'{where} {i}: {mean} is not the mean of {len(rows)} rows')


def array(data, snapshot):
    return kvread.widen(data, snapshot.head['dtype']).reshape(-1, snapshot.model['head_width'])


def check_layer(snapshot, n):
    layer, dtype = snapshot.layers[n], snapshot.head['dtype']
    for g in range(snapshot.model['kv_heads']):
        keys, where = snapshot.array(n, 'keys', g), f'layer {n} head {g}'
        if layer.bits:
            same_entries(f'bITS {where}', layer.bits.heads[g], bits(keys, layer.bits.u),
                         len(keys) // layer.bits.u)
        if layer.pages:
            same_entries(f'pAGE {where}', layer.pages.heads[g],
                         pages(keys, layer.pages.u, dtype), len(keys) // layer.pages.u)
        if layer.clusters:
            means = array(layer.clusters.means[g], snapshot)
            labels = numpy.array(layer.clusters.labels[g])
            rows = keys[layer.clusters.sink:layer.clusters.ends[g]]
            same_means(f'cLUS {where} cluster', means,
                       [rows[labels == c] for c in range(len(means))], dtype)
        if layer.low_rank:
            low = layer.low_rank
            same_means(f'lOWR {where} chunk', array(low.landmarks[g], snapshot),
                       keys[:low.rows].reshape(-1, low.chunk, keys.shape[1]), dtype)


def check(snapshot):
    for n in range(len(snapshot.layers)):
        check_layer(snapshot, n)


def lines(snapshot):
    """What there is, for tests to compare."""
    for n, layer in enumerate(snapshot.layers):
        words = []
        if layer.bits:
            words.append(f'bits {layer.bits.u}')
        if layer.pages:
            words.append(f'pages {layer.pages.u}')
        if layer.clusters:
            row = snapshot.model['head_width'] * kvread.ITEM_SIZE[snapshot.head['dtype']]
            counts = '/'.join(str(len(means) // row) for means in layer.clusters.means)
            words.append(f'clusters {counts} sink {layer.clusters.sink}')
        if layer.low_rank:
            low = layer.low_rank
            words.append(f'rank {low.rank} rows {low.rows} chunks of {low.chunk} '
                         f'exact {len(low.exact[0])}')
        if words:
            yield f'layer {n}: {", ".join(words)}'


def main(arguments):
    says = arguments[:1] == ['--says']
    for name in arguments[says:]:
        try:
            with sys.stdin.buffer if name == '-' else open(name, 'rb') as file:
                snapshot = kvread.read(file)
            check(snapshot)
        except (Wrong, kvread.Bad, OSError) as error:
            print(f'checkindex: {name}: {error}', file=sys.stderr)
            return getattr(error, 'status', 1)
        if says:
            print('\n'.join(lines(snapshot)))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
