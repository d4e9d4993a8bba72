"""check_residual - the checks of check_vectors.py for full rows behind quantised ones (4.20), of
KIVI's types (4.21) too"""

import os

import kvhead
import kvkivi
import kvread
import kvwrite
from good import numbers as sixteenths
from goodrows import uneven

try:
    import numpy
    from kvsnapshot.rowstore import MOST, TYPES, RowStore
except ImportError:
    numpy = None

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, '..', '..', 'formats', 'vectors', 'passed')
SHAPES = (('f16', 32, 5, 9), ('f32', 64, 3, 3), ('bf16', 32, 1, 4), ('f16', 64, 33, 0),
          ('bf16', 32, 4096, 2))        # dtype, E, R, rows
NARROW = (('f16', 7, 2, 5), ('bf16', 1, 1, 2))
GROUPS = (('f16', 32, 32, 70), ('f32', 64, 64, 64), ('bf16', 96, 32, 31))


def same_numbers(got, want):
    """To the bit, but for what kind of NaN."""
    want = numpy.array(want, '<f4').reshape(got.shape)
    odd = numpy.isnan(want)
    assert got.dtype == numpy.float32 and (numpy.isnan(got) == odd).all()
    assert got[~odd].tobytes() == want[~odd].tobytes()


def residual():
    """Numbers of rows with full ones behind, and rows of numbers: NumPy and the writer agree."""
    seen = set()
    for file in sorted(os.listdir(VECTORS)):
        there = file.startswith(('kivi-', 'residual-')) and file.endswith('.kv')
        if there and 'blocks' not in file:
            with open(os.path.join(VECTORS, file), 'rb') as opened:
                seen |= vector(kvread.read(opened))
    assert seen == {(name, kind) for name in ('keys', 'values') for kind in TYPES}
    assert set(TYPES) == set(kvhead.TYPES) and MOST == 4096
    for name, kind in sorted(seen):
        for shape in shapes(kind):
            for scale in (1, 2.0 ** -9, 2.0 ** -20):
                written(name, kind, *shape, scale)


def shapes(kind):
    if kind in kvkivi.BITS:
        return GROUPS
    return SHAPES + NARROW if kind in ('int8', 'fp8') else SHAPES


def vector(snapshot):
    """(name, type) of the sections that were compared"""
    seen, E, dtype = set(), snapshot.model['head_width'], snapshot.head['dtype']
    R = snapshot.head['row_types']['residual']
    for l, layer in enumerate(snapshot.layers):
        for name in ('keys', 'values'):
            kind, whole = snapshot.row_type(l, name), b''
            for g, n in enumerate(layer.rows if kind != dtype else ()):
                data = snapshot.head_rows(l, name, g)
                whole += data
                same_numbers(snapshot.array(l, name, g),
                             kvhead.head_numbers(data, n, kind, name, dtype, E, R))
                seen.add((name, kind))
            assert kind == dtype or whole == getattr(layer, name)
    return seen


def written(name, kind, dtype, E, R, n, scale):
    """Numbers as rows of a KV head, and these as numbers."""
    end = kvhead.coded(kind, name, n, R)
    flat = sixteenths((n - end) * E, 3)
    rows = [[kvwrite.single(v * scale) for v in one] for one in uneven(end, E, 5)]
    rows += [flat[i:i + E] for i in range(0, len(flat), E)]
    want = kvhead.head_bytes(rows, kind, name, dtype, R)
    store, where = RowStore(name, kind, dtype, E, R), (name, kind, dtype, E, R, n, scale)
    got = store.stored(numpy.array(rows, '<f4').reshape(n, E))
    assert got.tobytes() == want, where
    assert len(want) == store.size(n) and end == store.coded(n), where
    got = store.numbers(want, n)
    assert got.shape == (n, E)
    same_numbers(got, kvhead.head_numbers(want, n, kind, name, dtype, E, R))
    if end < n:
        assert got[end:].ravel().tolist() == flat, where


def residual_refused():
    """What quantised rows may not hold is refused with its place, and full rows hold anything."""
    nan16, nan32 = b'\1\x7e', b'\1\0\x80\x7f'
    for kind in TYPES:
        if kind in kvkivi.BITS:
            continue                    # check_kivi.py
        store = RowStore('values', kind, 'f16', 32, 5)
        size, nan = kvhead.row_size(kind, 32), nan32 if kind[:3] in ('int', 'fp8') else nan16
        x = numpy.ones((9, 32))
        for row in range(9):
            bad = x.copy()
            bad[row, 31] = numpy.nan
            try:
                store.stored(bad)
            except ValueError as error:
                assert row < 4 and f'row {row}: a number is not finite' in str(error), error
            else:
                assert row >= 4, (kind, row)
        heads = [store.stored(part).tobytes() for part in (x[:3], x, x[:6], x)]
        counts, data = (3, 9, 6, 9), b''.join(heads)
        assert store.wrong(data, counts) == ''
        for g, row in (1, 0), (1, 3), (2, 0), (3, 3):
            at = sum(map(len, heads[:g])) + row * size
            false = data[:at] + nan + data[at + len(nan):]
            assert store.wrong(false, counts).startswith(f'KV head {g} row {row}: the scale '), kind
        for g, row in (0, 0), (1, 4), (1, 8), (2, 1), (3, 4):
            codes = max(counts[g] - 5, 0)
            at = sum(map(len, heads[:g])) + codes * size + (row - codes) * 64
            free = data[:at] + nan * (64 // len(nan)) + data[at + 64:]
            assert len(free) == len(data) and store.wrong(free, counts) == '', (kind, g, row)
