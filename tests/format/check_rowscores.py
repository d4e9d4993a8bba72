"""check_rowscores - the checks of check_vectors.py for gate scores (4.24) and non-causal attention
(4.25)"""

import io

import good
import goodgatescores
import goodnoncausal
import kvread
import kvwrite

try:
    import numpy
    import kvsnapshot
except ImportError:      # the reader does not need it either
    numpy = None


def made(beside, empty):
    """Bytes, and the labels of the layers."""
    for codec in (0, 1, 2):
        for labels in (['a', 'b'], ['kvzap', ''], [None, '\u00e9 y=1'], ['x', None], [None, None]):
            yield kvwrite.stream(beside(codec, labels)), labels
        yield kvwrite.stream(empty(codec)), ['a', 'b', 'c', 'd']


def want(layer, seed):
    """A list for each KV head"""
    flat = iter(good.numbers(sum(layer.rows), seed))
    return [[next(flat) for _ in range(rows)] for rows in layer.rows]


def want_gates(layer, n):
    return want(layer, n + 4)


def want_noncausal(layer, n):
    return [[abs(value) for value in own] for own in want(layer, n + 5)]


GATES = 'gate_scores', goodgatescores, want_gates
NONCAUSAL = 'noncausal', goodnoncausal, want_noncausal


def returned(name, good_of, wanted):
    """What the reader returns is what the writer was given, of each KV head and layer."""
    for data, labels in made(good_of.beside, good_of.empty):
        snapshot = kvread.read(io.BytesIO(data))
        for n, layer in enumerate(snapshot.layers):
            found = getattr(layer, name)
            assert (found is None) == (labels[n] is None)
            if found is not None:
                assert found.label == labels[n]
                assert found.values == wanted(layer, n)
                assert found != layer.scores and len(layer.scores.values) == 2
                assert layer.value_norms.values == good.received(
                    list(map(list, layer.positions)), snapshot.model, n + 2)
                if name == 'noncausal':
                    assert layer.gate_scores.values == want_gates(layer, n)


def as_arrays(name, good_of, wanted):
    """As arrays of NumPy."""
    for data, labels in made(good_of.beside, good_of.empty):
        raw, arrays = kvread.read(io.BytesIO(data)), kvsnapshot.read(io.BytesIO(data))
        for n, (layer, array) in enumerate(zip(raw.layers, arrays.layers)):
            assert getattr(array, name + '_label') == labels[n]
            if labels[n] is None:
                assert getattr(array, name) is None
                continue
            for own, values in zip(getattr(array, name), wanted(layer, n), strict=True):
                assert own.dtype == numpy.float32 and own.shape == (len(values),)
                assert own.tolist() == values


def gate_scores():
    """Gate scores: what the reader returns is what the writer was given."""
    returned(*GATES)


def gate_scores_arrays():
    """Gate scores as arrays of NumPy."""
    as_arrays(*GATES)


def noncausal():
    """Non-causal attention: what the reader returns is what the writer was given."""
    returned(*NONCAUSAL)


def noncausal_arrays():
    """Non-causal attention as arrays of NumPy."""
    as_arrays(*NONCAUSAL)
