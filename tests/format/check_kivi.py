"""check_kivi - the checks of check_vectors.py for rows of kivi2 and kivi4 (4.21); check_residual.py
compares their numbers with the writer's"""

import io
import os

import kvkivi
import kvread

try:
    import numpy
    from kvsnapshot import kivi as reader
    from kvsnapshot.rowstore import RowStore
except ImportError:
    numpy = None

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, '..', '..', 'formats', 'vectors', 'passed')
TYPES = tuple(kvkivi.BITS)
WIDTH = 64                      # of the recorded rows


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
            ours = reader.stored(x, kind, name)
            one = kvkivi.keys_of if name == 'keys' else kvkivi.values_of
            assert one(x.tolist(), kind) == ours.tobytes(), (kind, name)
            ours = ours.reshape(-1, 4 + 4 * bits)
            front = numpy.ascontiguousarray(ours[:, :4]).view('<u2')
            assert len(codes) == len(ours) == 192
            assert (front == numpy.stack([scales, least], axis=1)).all(), (kind, name)
            none = scales == 0
            assert 2 <= none.sum() <= 8 and not ours[none, 4:].any()
            assert (ours[~none, 4:] == codes[~none]).all(), (kind, name)


def stored(x, kind, name, R):
    return RowStore(name, kind, 'f16', len(x[0]), R).stored(numpy.array(x, '<f4'))


def kivi_refused():
    """What KIVI's types cannot hold: messages name the place, and what is in full rows is free."""
    def refused(words, x, kind='kivi2', name='keys', R=32):
        try:
            stored(x, kind, name, R)
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
                stored(full, kind, name, 32)
        refused('wants a head width that is a multiple of 32, not 80', numpy.ones((1, 80)), kind)
    x = numpy.zeros((96, 64))
    x[33, 40], x[34, 40] = 65504, -65504
    refused('rows 32-63: the scale of channel 40 is not finite', x)
    x[33, 41] = -65504
    refused('row 33: the scale of block 1 is not finite', x, 'kivi4', 'values')
    for at, what in ((0, 'scale'), (2, 'minimum')):
        data = bytearray(stored(numpy.zeros((64, 64)), 'kivi4', 'keys', 32))
        data[20 * (64 + 3) + at:20 * (64 + 3) + at + 2] = b'\0\x7c'
        assert reader.fault('kivi4', 'keys', 64, data) == (
            f'rows 32-63: the {what} of channel 3 is not finite')
        assert reader.fault('kivi4', 'values', 64, data) == (
            f'row 33: the {what} of block 1 is not finite')
    assert kvread.read(io.BytesIO(full_rows())).layers[0].rows == [3, 33]


def full_rows():
    with open(os.path.join(VECTORS, 'kivi-full-rows-not-finite.kv'), 'rb') as file:
        return file.read()
