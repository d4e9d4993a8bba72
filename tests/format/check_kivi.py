"""check_kivi - the checks of check_vectors.py for rows of kivi2 and kivi4 (4.21)"""

import io
import os

import kvkivi
import kvread
import kvwrite
from good import numbers as sixteenths
from goodrows import uneven

try:
    import numpy
    from kvsnapshot import kivi as reader
except ImportError:
    numpy = None

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, '..', '..', 'formats', 'vectors', 'passed')
TYPES = tuple(kvkivi.BITS)
WIDTH = 64                      # of the recorded rows


def same_numbers(got, want):
    """To the bit, but for what kind of NaN."""
    want = numpy.array(want, '<f4').reshape(got.shape)
    odd = numpy.isnan(want)
    assert got.dtype == numpy.float32 and (numpy.isnan(got) == odd).all()
    assert got[~odd].tobytes() == want[~odd].tobytes()


def kivi():
    """Numbers of KIVI's rows, and rows of numbers: NumPy and the writer agree to the bit."""
    seen = set()
    for file in sorted(os.listdir(VECTORS)):
        if file.startswith('kivi-') and file.endswith('.kv') and file != 'kivi-blocks.kv':
            with open(os.path.join(VECTORS, file), 'rb') as opened:
                seen |= vector(kvread.read(opened))
    assert seen == {(name, kind) for name in ('keys', 'values') for kind in TYPES}
    for name, kind in seen:
        for dtype, E, R, n in (('f16', 32, 32, 70), ('f32', 64, 64, 64), ('bf16', 96, 32, 31)):
            for scale in (1, 2.0 ** -9, 2.0 ** -20):
                end = kvkivi.coded(name, n, R)
                flat = sixteenths((n - end) * E, 3)
                rows = [[kvwrite.single(v * scale) for v in one] for one in uneven(end, E, 5)]
                rows += [flat[i:i + E] for i in range(0, len(flat), E)]
                want = kvkivi.head_bytes(rows, kind, name, dtype, R)
                got = reader.stored(numpy.array(rows, '<f4').reshape(n, E), kind, name, dtype, R)
                assert got.tobytes() == want, (name, kind, dtype, scale)
                assert len(want) == reader.size(kind, name, E, dtype, n, R)


def vector(snapshot):
    """(name, type) of the sections that were compared"""
    seen, E, dtype = set(), snapshot.model['head_width'], snapshot.head['dtype']
    for l, layer in enumerate(snapshot.layers):
        for name in ('keys', 'values'):
            kind, whole = snapshot.row_type(l, name), b''
            for g, n in enumerate(layer.rows if kind in TYPES else ()):
                data = snapshot.head_rows(l, name, g)
                whole += data
                same_numbers(snapshot.array(l, name, g), kvkivi.head_numbers(
                    data, n, kind, name, dtype, E, snapshot.head['row_types']['residual']))
                seen.add((name, kind))
            assert kind not in TYPES or whole == getattr(layer, name)
    return seen


def theirs(bits, name):
    """Scales and least numbers, u16 [blocks], and codes, u1 [blocks][bytes], in the order of our
    blocks."""
    with open(os.path.join(HERE, '..', 'fixtures', 'rows', f'kivi{bits}.{name}'), 'rb') as file:
        data = file.read()
    end = len(data) * 4 * bits // (4 * bits + 4)
    codes = numpy.frombuffer(data[:end], '<u4')
    if name == 'keys':                          # [words of a group][channels]
        codes = codes.reshape(-1, bits, WIDTH).transpose(0, 2, 1)
    scales, least = numpy.frombuffer(data[end:], '<u2').reshape(2, -1)
    return scales, least, numpy.ascontiguousarray(codes).view('u1').reshape(-1, 4 * bits)


def kivi_recorded():
    """KIVI's blocks are its authors' (tests/oracle/kivi_rows.py), unless they divide by 0."""
    x = numpy.fromfile(os.path.join(HERE, '..', 'fixtures', 'rows', 'kivi.f16'), '<f2')
    x = x.astype('<f4').reshape(-1, WIDTH)
    for bits in (2, 4):
        for name in ('keys', 'values'):
            kind, (scales, least, codes) = f'kivi{bits}', theirs(bits, name)
            # values of 32 rows more, which are not quantised
            rows = x if name == 'keys' else numpy.concatenate([x, x[:32]])
            ours = reader.stored(rows, kind, name, 'f16', 32)
            ours = ours[:reader.coded_size(kind, name, WIDTH, len(rows), 32)]
            one = kvkivi.keys_of if name == 'keys' else kvkivi.values_of
            assert one(x.tolist(), kind) == ours.tobytes(), (kind, name)
            ours = ours.reshape(-1, 4 + 4 * bits)
            front = numpy.ascontiguousarray(ours[:, :4]).view('<u2')
            assert len(codes) == len(ours) == 192
            assert (front == numpy.stack([scales, least], axis=1)).all(), (kind, name)
            none = scales == 0
            assert 2 <= none.sum() <= 8 and not ours[none, 4:].any()
            assert (ours[~none, 4:] == codes[~none]).all(), (kind, name)


def kivi_refused():
    """What KIVI's types cannot hold: messages name the place, and what is in full rows is free."""
    def refused(words, x, kind='kivi2', name='keys', R=32):
        try:
            reader.stored(numpy.array(x, '<f4'), kind, name, 'f16', R)
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    for kind in TYPES:
        for name in ('keys', 'values'):
            for bad in (numpy.nan, numpy.inf, -numpy.inf, 65520, -7e4):
                x = numpy.ones((97, 64))
                x[70 if name == 'keys' else 50, 40] = bad
                end = 70 if name == 'keys' else 50
                refused(f'row {end}: a number is not finite in f16', x, kind, name)
                full = numpy.ones((97, 64))
                full[96] = bad
                reader.stored(full, kind, name, 'f16', 32)
        refused('wants a head width that is a multiple of 32, not 80', numpy.ones((1, 80)), kind)
    x = numpy.zeros((96, 64))
    x[33, 40], x[34, 40] = 65504, -65504
    refused('rows 32-63: the scale of channel 40 is not finite', x)
    x[33, 41] = -65504
    refused('row 33: the scale of block 1 is not finite', x, 'kivi4', 'values')
    for at, what in ((0, 'scale'), (2, 'minimum')):
        data = bytearray(reader.stored(numpy.zeros((64, 64)), 'kivi4', 'keys', 'f16', 32))
        data[20 * (64 + 3) + at:20 * (64 + 3) + at + 2] = b'\0\x7c'
        assert reader.fault('kivi4', 'keys', 64, data) == (
            f'rows 32-63: the {what} of channel 3 is not finite')
        assert reader.fault('kivi4', 'values', 64, data) == (
            f'row 33: the {what} of block 1 is not finite')
    assert kvread.read(io.BytesIO(full_rows())).layers[0].rows == [3, 33]


def full_rows():
    with open(os.path.join(VECTORS, 'kivi-full-rows-not-finite.kv'), 'rb') as file:
        return file.read()
