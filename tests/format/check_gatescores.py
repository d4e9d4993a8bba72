"""check_gatescores - the checks of check_vectors.py for gate scores (4.24)"""

import io

import good
import goodgatescores
import kvread
import kvwrite

try:
    import numpy
    import kvsnapshot
except ImportError:      # the reader does not need it either
    numpy = None


def made():
    """Bytes, and the labels of the layers."""
    for codec in (0, 1, 2):
        for gates in (['a', 'b'], ['kvzap', ''], [None, '\u00e9 y=1'], ['x', None], [None, None]):
            yield kvwrite.stream(goodgatescores.beside(codec, gates)), gates
        yield kvwrite.stream(goodgatescores.empty(codec)), ['a', 'b', 'c', 'd']


def want(layer, n):
    """A list for each KV head"""
    flat = iter(good.numbers(sum(layer.rows), n + 4))
    return [[next(flat) for _ in range(rows)] for rows in layer.rows]


def gate_scores():
    """What the reader returns is what the writer was given, of each KV head and layer."""
    for data, gates in made():
        snapshot = kvread.read(io.BytesIO(data))
        for n, layer in enumerate(snapshot.layers):
            assert (layer.gate_scores is None) == (gates[n] is None)
            if gates[n] is not None:
                assert layer.gate_scores.label == gates[n]
                assert layer.gate_scores.values == want(layer, n)
                assert layer.gate_scores != layer.scores and len(layer.scores.values) == 2
                assert layer.value_norms.values == good.received(
                    list(map(list, layer.positions)), snapshot.model, n + 2)


def gate_scores_arrays():
    """As arrays of NumPy."""
    for data, gates in made():
        raw, arrays = kvread.read(io.BytesIO(data)), kvsnapshot.read(io.BytesIO(data))
        for n, (layer, array) in enumerate(zip(raw.layers, arrays.layers)):
            assert array.gate_scores_label == gates[n]
            if gates[n] is None:
                assert array.gate_scores is None
                continue
            for own, values in zip(array.gate_scores, want(layer, n), strict=True):
                assert own.dtype == numpy.float32 and own.shape == (len(values),)
                assert own.tolist() == values
