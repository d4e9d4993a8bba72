#!/usr/bin/env python3
"""check_vectors - hold kvread.py, the vectors and their writer against each other.

	check_vectors.py CHECK...      run these checks (each a function below); default: all
	check_vectors.py --update      write passed/*.dump; read the difference before committing

Reader and writer were made from formats/kv-snapshot.md and share no code: where they agree
the document says enough.
"""

import io
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, '..', '..', 'formats', 'vectors')
sys.path.append(VECTORS)

import check_kivi
import check_latent
import check_querystats
import check_residual
import check_rowscores
import check_sinks
import check_valuenorms
import good
import goodrows
import kvdump
import kvread
import kvrow
import kvwrite

try:
    import checkindex
    import numpy
    from kvsnapshot import rowtypes
except ImportError:      # the reader does not need it either
    numpy = None


def names(folder, suffix):
    every = sorted(os.listdir(os.path.join(VECTORS, folder)))
    return [name[:-len(suffix)] for name in every if name.endswith(suffix)]


def load(folder, name):
    with open(os.path.join(VECTORS, folder, name), 'rb') as file:
        return file.read()


def outcome(data):
    """(exit status, message) of reading these bytes."""
    try:
        kvread.read(io.BytesIO(data))
        return 0, 'accepted'
    except kvread.Bad as error:
        return error.status, str(error)


def dump(data):
    return '\n'.join(kvdump.lines(kvread.read(io.BytesIO(data)))) + '\n'


def passed():
    """Every passed vector is accepted, and its dump is the stored one."""
    assert names('passed', '.kv') == names('passed', '.dump')
    for name in names('passed', '.kv'):
        if name.startswith(('rows-', 'kivi-', 'residual-')) and not numpy:
            continue                            # their dumps have numbers of rows
        stored = load('passed', f'{name}.dump').decode()
        assert dump(load('passed', f'{name}.kv')) == stored, name


def failed():
    """Every failed vector is refused with the status and the words of its .why."""
    assert names('failed', '.kv') == names('failed', '.why')
    for name in names('failed', '.kv'):
        want, word = load('failed', f'{name}.why').decode().splitlines()
        status, message = outcome(load('failed', f'{name}.kv'))
        assert status == int(want), f'{name}: exit {status}, {message}'
        assert word.lower() in message.lower(), f'{name}: {word!r} is not in {message!r}'


def regenerate():
    """make.py, run alone, writes the stored bytes, no vector more and none less."""
    with tempfile.TemporaryDirectory() as folder:
        make = os.path.join(VECTORS, 'make.py')
        subprocess.run([sys.executable, make, folder], check=True)
        for kind, suffixes in (('passed', ('.kv',)), ('failed', ('.kv', '.why'))):
            made = sorted(os.listdir(os.path.join(folder, kind)))
            stored = [name for name in sorted(os.listdir(os.path.join(VECTORS, kind)))
                      if name.endswith(suffixes)]
            assert made == stored, set(made) ^ set(stored)
            for name in made:
                with open(os.path.join(folder, kind, name), 'rb') as file:
                    assert file.read() == load(kind, name), f'{kind}/{name}'


def small():
    """Vectors small enough to be damaged at every byte: plain and compressed."""
    return [(name, load('passed', f'{name}.kv'))
            for name in ('minimal', 'full-planes', 'rows-int8', 'kivi-full-rows-not-finite',
                         'residual-width-1', 'query-stats-width-1', 'vnrm-element-2',
                         'gate-element-2', 'ncau-element-2')]


def truncation():
    """A snapshot cut after any byte is refused as truncated."""
    for name, data in small():
        for size in range(len(data)):
            status, message = outcome(data[:size])
            assert status == 3 and 'truncated' in message, f'{name} {size}: {message}'


def flipped():
    """A snapshot with one false bit in any byte is refused as damaged, not as unknown."""
    for name, data in small():
        false = bytearray(data)
        for at in range(len(data)):
            false[at] ^= 1 << at % 8
            status, message = outcome(bytes(false))
            assert status == 3, f'{name} byte {at}: exit {status}, {message}'
            false[at] = data[at]


def logical():
    """Codecs, padding and ancillary sections do not change the logical digest."""
    def digests(*group):
        return {kvread.read(io.BytesIO(load('passed', f'{name}.kv'))).logical_digest
                for name in group}
    assert len(digests('full', 'full-lz4', 'full-planes', 'padding', 'unknown-ancillary',
                       'logits')) == 1
    assert len(digests('minimal', 'no-index')) == 1
    assert len(digests('indexes', 'indexes-planes', 'indexes-one-layer', 'indexes-unknown')) == 1
    assert len(digests('ragged-bf16', 'observed', 'mass', 'scored')) == 1
    assert len(digests('rows-mixed', 'rows-mixed-lz4', 'rows-mixed-planes')) == 1
    assert len(digests('rows-indexes-bf16', 'rows-indexes-lz4')) == 1
    assert len(digests('kivi-ragged', 'kivi-ragged-lz4')) == 1
    assert len(digests('kivi-mixed', 'kivi-mixed-lz4')) == 1
    assert len(digests('residual-types', 'residual-types-lz4')) == 1
    assert len(digests('residual-beside', 'residual-beside-lz4')) == 1
    assert len(digests('query-stats', 'query-stats-lz4', 'query-stats-planes',
                       'query-stats-unknown')) == 1
    assert len(digests('vnrm', 'vnrm-lz4', 'vnrm-planes', 'vnrm-unknown')) == 1
    assert len(digests('vnrm-empty-heads', 'vnrm-empty-heads-planes')) == 1
    assert len(digests('gate', 'gate-lz4', 'gate-planes', 'gate-unknown', 'vnrm')) == 1
    assert len(digests('gate-empty-heads', 'gate-empty-heads-planes')) == 1
    assert len(digests('ncau', 'ncau-planes', 'ncau-unknown', 'gate')) == 1
    assert len(digests('rows-q8_0', 'rows-q8_0-hadamard', 'rows-q4_0', 'rows-int8')) == 4
    assert len(digests('ragged-bf16', 'ragged-f16', 'ragged-f32', 'full', 'minimal')) == 5


def blocks():
    """The plain form of the vector with two blocks: the same content, and on pages."""
    data = kvwrite.stream(good.blocks(0))
    plain = kvread.read(io.BytesIO(data))
    small = kvread.read(io.BytesIO(load('passed', 'blocks-planes.kv')))
    assert len(data) > 2 << 20 and plain.logical_digest == small.logical_digest
    for snapshot in (plain, small):
        for s in snapshot.sections:
            if s.type in ('KEYS', 'VALS'):
                assert len(s.blocks) == 2 and (s.offset + 64 + 64) % 4096 == 0, str(s)
    assert plain.layers[0].keys == small.layers[0].keys
    assert data.index(plain.layers[0].keys) % 4096 == 0


def content():
    """What the reader returns is what was put in, not only what agrees with itself."""
    for codec in (0, 1, 2):
        data = kvwrite.stream(good.awkward('bf16', window=[4, 6], weighed=True, scored='x y=1',
                                           codec=codec))
        snapshot = kvread.read(io.BytesIO(data))
        assert snapshot.tokens == [3, 1, 4, 1, 5, 9, 2]
        for n, layer in enumerate(snapshot.layers):
            assert layer.positions == good.ragged(5)[n]
            rows = sum(layer.rows)
            assert layer.keys == kvwrite.pack(good.numbers(rows * 24, 2 * n), 'bf16')
            assert layer.values == kvwrite.pack(good.numbers(rows * 24, 2 * n + 1), 'bf16')
            assert layer.queries.positions == [4, 6]
            assert layer.queries.data == kvwrite.pack(good.numbers(6 * 2 * 24, n + 7), 'bf16')
            assert layer.mass == good.received(good.ragged(5)[n], snapshot.model, n)
            assert layer.scores.label == 'x y=1'
            flat = [v for values in layer.scores.values for v in values]
            want = good.numbers(rows, n + 3)
            assert flat == [good.INF if i % 5 == 0 else v for i, v in enumerate(want)]
            at = sum(layer.rows[:2]) * 24
            assert snapshot.head_rows(n, 'keys', 2) == layer.keys[2 * at:]
            if numpy:
                rows_2 = snapshot.array(n, 'keys', 2)
                assert rows_2.shape == (layer.rows[2], 24)
                assert rows_2.ravel().tolist() == good.numbers(rows * 24, 2 * n)[at:]


def rows():
    """Numbers of quantised rows, and rows of numbers: NumPy and the writer agree to the bit."""
    kinds = set()
    for name in names('passed', '.kv'):
        snapshot = kvread.read(io.BytesIO(load('passed', f'{name}.kv')))
        E, dtype = snapshot.model['head_width'], snapshot.head['dtype']
        for n, layer in enumerate(snapshot.layers):
            for what, data in (('keys', layer.keys), ('values', layer.values)):
                kind = snapshot.row_type(n, what)
                # with full rows behind: check_residual.py
                in_keys = what == 'values' and 'latent_rank' in snapshot.model      # 4.26
                if kind != dtype and 'residual' not in snapshot.head['row_types'] and not in_keys:
                    size = kvrow.row_size(kind, E)
                    assert len(data) == size * sum(layer.rows)
                    want = [v for i in range(0, min(len(data), 50 * size), size)
                            for v in kvrow.numbers(bytes(data[i:i + size]), kind)]
                    got = numpy.concatenate([snapshot.array(n, what, g)
                                             for g in range(len(layer.rows))]).ravel()
                    assert got.dtype == numpy.float32 and numpy.isfinite(got).all(), name
                    assert got[:len(want)].tobytes() == kvwrite.pack(want, 'f32'), (name, kind)
                    kinds.add(kind)
    assert kinds == set(kvrow.TYPES) == set(rowtypes.QUANTISED)
    for kind in kinds:
        any_width = kind.startswith(('int8', 'fp8'))
        for E in (32, 64) + (1, 2, 128) * any_width:
            for scale in (1, 2.0 ** -30, 2.0 ** -133, 1e9 if any_width else 9):
                x = [[kvwrite.single(v * scale) for v in one] for one in goodrows.uneven(9, E, 5)]
                want = b''.join(kvrow.row(one, kind) for one in x)
                assert rowtypes.stored(x, kind).tobytes() == want, (kind, E, scale)


def recorded():
    """Rows are those that ggml has made, and fp8 is ml_dtypes' (tests/oracle/ggml_rows.py)."""
    def fixture(name, dtype):
        return numpy.fromfile(os.path.join(HERE, '..', 'fixtures', 'rows', name), dtype)
    x = fixture('rows.f32', '<f4').reshape(-1, 96)
    for kind in ('q8_0', 'q4_0', 'q4_1', 'q5_0'):
        stored, numbers = fixture(f'{kind}.rows', 'u1'), fixture(f'{kind}.f32', '<f4')
        assert len(stored) == len(x) * rowtypes.size(kind, 96)
        assert rowtypes.stored(x, kind).tobytes() == stored.tobytes(), kind
        assert rowtypes.numbers(stored, kind, 96).tobytes() == numbers.tobytes(), kind
        assert b''.join(kvrow.row(one, kind) for one in x.tolist()) == stored.tobytes(), kind
    one = kvwrite.pack([1.0], 'f32')
    codes, values = fixture('fp8.codes', 'u1').tobytes(), fixture('fp8.f32', '<f4')
    got = rowtypes.numbers(one + codes, 'fp8', len(codes))
    assert len(codes) == 254 and got.tobytes() == values.tobytes()
    # behind 448 the scale of a row is 1, and its codes are those of the numbers themselves
    near, want = fixture('fp8.numbers', '<f4'), fixture('fp8.nearest', 'u1')
    got = rowtypes.stored(numpy.append(numpy.float32(448), near)[None], 'fp8').tobytes()
    assert got == one + b'\x7e' + want.tobytes()
    assert [kvrow.nearest_fp8(v) for v in near.tolist()] == want.tolist()


def indexes():
    """The indexes of the vectors are what numpy makes of their keys; a false bit is seen."""
    for name in names('passed', '.kv'):
        checkindex.check(kvread.read(io.BytesIO(load('passed', f'{name}.kv'))))
    for kind, at in (('bITS', 64 + 24 + 3), ('bITS', 64 + 24), ('pAGE', 65), ('cLUS', -1),
                     ('lOWR', -1)):
        out = good.indexed()
        section = out[good.place(out, kind, 1)]
        wrong = bytearray(section.content)
        wrong[at] ^= 1
        section.set(bytes(wrong))
        try:
            checkindex.check(kvread.read(io.BytesIO(kvwrite.stream(out))))
        except checkindex.Wrong as error:
            assert f'{kind} layer 1' in str(error), error
        else:
            raise AssertionError(f'{kind} byte {at}: a false bit is not seen')


def program():
    """kvread.py as a program: exit status, standard output and standard error."""
    def run(*arguments, data=None):
        done = subprocess.run([sys.executable, os.path.join(HERE, 'kvread.py'), *arguments],
                              input=data, capture_output=True)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    file = os.path.join(VECTORS, 'passed', 'full.kv')
    stored = load('passed', 'full.dump').decode()
    assert run(file) == (0, stored, '')
    assert run('-', data=load('passed', 'full.kv')) == (0, stored, '')
    status, out, _ = run('--json', file)
    assert status == 0 and '"next_position": 9' in out and '"inf"' in out
    for name, want in (('order', 'missing-keys-1'), ('version', 'version-2')):
        status, out, err = run(os.path.join(VECTORS, 'failed', f'{want}.kv'))
        assert status == (5 if name == 'version' else 3) and out == '' and name in err
    assert run(os.path.join(VECTORS, 'none.kv'))[0] == 1
    assert run()[0] == 2


CHECKS = (passed, failed, regenerate, truncation, flipped, logical, blocks, content, rows,
          recorded, indexes, program, check_residual.residual, check_residual.residual_refused,
          check_kivi.kivi_recorded, check_kivi.kivi_refused, check_querystats.query_stats,
          check_querystats.query_stats_arrays, check_valuenorms.value_norms,
          check_valuenorms.value_norms_arrays, check_rowscores.gate_scores,
          check_rowscores.gate_scores_arrays, check_rowscores.noncausal,
          check_rowscores.noncausal_arrays, check_latent.latent,
          check_sinks.sinks, check_sinks.sinks_arrays)


def update():
    for name in names('passed', '.kv'):
        with open(os.path.join(VECTORS, 'passed', f'{name}.dump'), 'w', encoding='utf-8') as file:
            file.write(dump(load('passed', f'{name}.kv')))


def main(arguments):
    if arguments == ['--update']:
        return update()
    known = {check.__name__: check for check in CHECKS}
    for name in arguments or known:
        known[name]()
        print(f'{name}: {known[name].__doc__}')


if __name__ == '__main__':
    main(sys.argv[1:])
