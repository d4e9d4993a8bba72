"""check_latent - the checks of check_vectors.py for values that are channels of keys (4.26)"""

import io

import goodlatent
import kvread
from good import numbers
from kvwrite import stream

try:
    import numpy
    from kvsnapshot.arrays import Layer
except ImportError:
    numpy = None


def latent():
    """Values are the first channels of the keys that the writer put in, and have no bytes."""
    rank, width = 6, 4
    snapshot = kvread.read(io.BytesIO(stream(goodlatent.small())))
    for n, rows in enumerate((3, 4)):
        assert bytes(snapshot.layers[n].values) == b''
        keys = numpy.array(numbers(rows * (rank + width), 2 * n), '<f4').reshape(rows, -1)
        assert (snapshot.array(n, 'keys', 0) == keys).all()
        assert (snapshot.array(n, 'values', 0) == keys[:, :rank]).all()
        layer = Layer(snapshot, n)
        assert (layer.values[0] == keys[:, :rank]).all()
        assert layer.stored_values[0].shape == (rows, 0)
