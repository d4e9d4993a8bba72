"""check_valuenorms - the checks of check_vectors.py for norms of value outputs (4.23)"""

import io

import good
import goodvaluenorms
import kvread
import kvwrite

try:
    import numpy
    import kvsnapshot
except ImportError:      # the reader does not need it either
    numpy = None


def made():
    """Bytes, the labels of the layers and their lists of positions."""
    for codec in (0, 1, 2):
        for norms in (['l1', 'l2'], ['l2', 'l1'], [None, 'l2'], ['l1', None], [None, None]):
            yield kvwrite.stream(goodvaluenorms.beside(codec, norms=norms)), norms
        yield kvwrite.stream(goodvaluenorms.empty(codec)), ['l2', 'l1', 'l2', 'l1']


def want(layer, model, n):
    return good.received(list(map(list, layer.positions)), model, n + 2)


def value_norms():
    """What the reader returns is what the writer was given, of each query head and layer."""
    for data, norms in made():
        snapshot = kvread.read(io.BytesIO(data))
        for n, layer in enumerate(snapshot.layers):
            assert (layer.value_norms is None) == (norms[n] is None)
            if norms[n]:
                assert layer.value_norms.label == norms[n]
                assert layer.value_norms.values == want(layer, snapshot.model, n)
                assert layer.mass == good.received(list(map(list, layer.positions)),
                                                   snapshot.model, n)
                assert len(layer.paid.values) == len(layer.scores.values) == 2


def value_norms_arrays():
    """As arrays of NumPy."""
    for data, norms in made():
        raw, arrays = kvread.read(io.BytesIO(data)), kvsnapshot.read(io.BytesIO(data))
        for n, (layer, array) in enumerate(zip(raw.layers, arrays.layers)):
            assert array.value_norms_label == norms[n]
            if norms[n] is None:
                assert array.value_norms is None
                continue
            for own, lists in zip(array.value_norms, want(layer, raw.model, n), strict=True):
                assert own.dtype == numpy.float32 and own.shape == (3, len(lists[0]))
                assert own.tolist() == lists
