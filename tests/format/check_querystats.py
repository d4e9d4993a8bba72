"""check_querystats - the checks of check_vectors.py for query statistics (4.22)"""

import io

import good
import goodquerystats
import kvread
import kvwrite

try:
    import numpy
    import kvsnapshot
except ImportError:      # the reader does not need it either
    numpy = None

# E, what HEAD says of rotary embedding, and W/2 of each of three layers
SHAPES = ((6, {}, [3, 3, 3]), (8, {'width': 4}, [2, 2, 2]), (8, {'skip': 2}, [4, 0, 4]),
          (8, {'skip': 3, 'width': 6}, [3, 3, 0]), (8, {'skip': 1}, [0, 0, 0]),
          (8, {'skip': 4}, [4, 4, 4]), (7, {}, [3, 3, 3]), (1, {}, [0, 0, 0]))
ASKED = [(4, 3), (0, 7), (2, 0)]


def made(codec=0):
    for E, rope, pairs in SHAPES:
        data = kvwrite.stream(goodquerystats.layers(3, E, ASKED, rope, codec, heads=(6, 3)))
        yield E, pairs, data


def queries(snapshot, layer):
    """Those that the statistics of this layer are of."""
    return good.asked(snapshot.head, ASKED[layer][1], layer)


def query_stats():
    """What the reader returns is what the writer was given, of each query head and layer."""
    for codec in (0, 1, 2):
        for E, pairs, data in made(codec):
            snapshot = kvread.read(io.BytesIO(data))
            for l, layer in enumerate(snapshot.layers):
                stats, where = layer.query_stats, (codec, E, pairs, l)
                assert (stats.first, stats.n) == ASKED[l], where
                assert len(stats.sums) == len(stats.moduli) == len(stats.products) == 6, where
                for h, own in enumerate(queries(snapshot, l)):
                    assert stats.sums[h] == total(own, range(E), lambda q, i: q[i]), where
                    assert stats.moduli[h] == total(
                        own, range(pairs[l]),
                        lambda q, i: (q[i] ** 2 + q[i + pairs[l]] ** 2) ** .5), where
                    assert stats.products[h] == total(
                        own, [(i, j) for i in range(E) for j in range(i + 1)],
                        lambda q, at: q[at[0]] * q[at[1]]), where
    without = kvread.read(io.BytesIO(kvwrite.stream(goodquerystats.layers(2, 4, [None, (0, 1)]))))
    assert without.layers[0].query_stats is None and without.layers[1].query_stats.n == 1


def total(queries, which, what):
    """[what(q, i) added over the queries, one after the other]"""
    sums = []
    for i in which:
        sums.append(0.0)
        for q in queries:
            sums[-1] += what(q, i)
    return sums


def query_stats_arrays():
    """As arrays of NumPy: sums, and mean, covariance and mean modulus of the queries."""
    for E, pairs, data in made():
        snapshot = kvsnapshot.read(io.BytesIO(data))
        for l, layer in enumerate(snapshot.layers):
            stats, (first, n) = layer.query_stats, ASKED[l]
            shapes = {'sums': (6, E), 'moduli': (6, pairs[l]), 'products': (6, E, E)}
            for name, shape in shapes.items():
                array = getattr(stats, name)
                assert array.shape == shape and array.dtype == numpy.float64, (name, array.shape)
            assert (stats.first, stats.n) == (first, n)
            if n == 0:
                assert stats.mean is stats.covariance is stats.mean_modulus is None
                assert not any(getattr(stats, name).any() for name in shapes)
                continue
            q = numpy.array(queries(snapshot, l))
            assert (stats.sums == q.sum(axis=1)).all()
            assert (stats.products == q.transpose(0, 2, 1) @ q).all()
            moduli = numpy.hypot(q[:, :, :pairs[l]], q[:, :, pairs[l]:2 * pairs[l]])
            close(stats.mean, q.mean(axis=1))
            close(stats.mean_modulus, moduli.mean(axis=1))
            for h in range(6):
                close(stats.covariance[h], numpy.cov(q[h].T, bias=True).reshape(E, E))


def close(got, want):
    assert got.shape == want.shape and numpy.allclose(got, want, rtol=1e-12, atol=1e-12)
