"""check_sinks - learned sinks (kv-snapshot.md, 4.27): checks of check_vectors.py."""

import io
import math
import struct

import goodsinks
import kvread
from good import small
from kvwrite import stream

try:
    import numpy
    import kvsnapshot
except ImportError:      # the reader does not need it either
    numpy = None


def sinks():
    """Learned sinks: what the reader returns is what the writer was given, and where none is there
    is none."""
    read = kvread.read(io.BytesIO(stream(goodsinks.observed())))
    for n, layer in enumerate(read.layers):
        want = [struct.unpack('<f', struct.pack('<f', (h - 2) * 1.5 + n / 4))[0] for h in range(6)]
        assert list(layer.sinks) == want
    read = kvread.read(io.BytesIO(stream(goodsinks.with_sinks(small(), layers=[1]))))
    assert read.layers[0].sinks is None and len(read.layers[1].sinks) == 6


def sinks_arrays():
    """Attention with learned sinks: each row's weight is exp(logit) over the sum of all and the
    sink's."""
    snapshot = kvsnapshot.read(io.BytesIO(stream(goodsinks.observed())))
    for layer in snapshot.layers:
        assert layer.sinks.dtype == numpy.float32
        for g in range(2):
            attention = layer.attention(g)
            for r in range(3):
                for w, at in enumerate(layer.query_positions):
                    q = layer.queries[3 * g + r][w].astype(float)
                    weight = [math.exp(q @ k / math.sqrt(6)) if p <= at else 0 for k, p in
                              zip(layer.keys[g].astype(float), layer.positions[g])]
                    whole = sum(weight) + math.exp(float(layer.sinks[3 * g + r]))
                    assert numpy.allclose(attention[r][w], numpy.array(weight) / whole, 1e-5, 1e-7)
