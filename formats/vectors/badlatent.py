"""badlatent - snapshots with latent attention (4.26) that must be refused, as in bad.py."""

from bad import changed, stream
from good import place
from good import small as plain
from goodlatent import head, quantised, small, typed
from kvwrite import canonical, pack
from good import numbers


def false(name, edit, base=small, h=None, features=2, word='HEAD'):
    """HEAD says what it may not; the rows are those of base()."""
    h = h or head(2, dtype='f16', next_position=9)
    edit(h['model'], h)
    out = base()
    out[0].set(canonical(h).encode())
    return f'latent-{name}', stream(out, features=features), 3, word


def heads():
    yield 'latent-without-feature', stream(small(), features=0), 3, 'HEAD'
    yield 'feature-1-without-latent', stream(plain(), features=2), 3, 'HEAD'
    yield 'feature-1-and-2', stream(small(), features=6), 5, 'bit 2 is'
    for name in ('rank', 'nope', 'value'):
        key = f'latent_{name}'
        yield false(f'without-{name}', lambda m, h: m.pop(key), features=2 * (name != 'rank'))
        for word, value in ('0', 0), ('most', 1025), ('real', 6.0), ('text', '6'), ('true', True):
            yield false(f'{name}-{word}', lambda m, h: m.update({key: value}))
    yield false('rank-1023', lambda m, h: m.update(latent_rank=1023))
    yield false('rank-less', lambda m, h: m.update(latent_rank=5))
    yield false('rank-more', lambda m, h: m.update(latent_rank=7))
    yield false('rank-all', lambda m, h: m.update(latent_rank=10))
    yield false('heads', lambda m, h: m.update(kv_heads=3))
    yield false('width-less', lambda m, h: m['rope'].update(width=2))
    yield false('width-more', lambda m, h: m['rope'].update(width=6))
    yield false('width-none', lambda m, h: m['rope'].pop('width'))
    yield false('window', lambda m, h: m.update(window=4))
    yield false('skip', lambda m, h: m['rope'].update(skip=2))


def types():
    """What row_types may not say"""
    def other(name, keys, values, residual=None, E=64):
        h = typed(keys, dtype='bf16', rank=E - 24)
        h['row_types']['values'] = values
        if residual:
            h['row_types']['residual'] = residual
        return false(f'types-{name}', lambda m, h: None, quantised, h, 3)
    kinds = ['q8_0', 'bf16', 'int8-hadamard', 'q4_0']
    yield other('of-values', kinds, ['bf16'] * 4)
    yield other('of-one-layer', kinds, ['q8_0', 'bf16', 'int8-hadamard', 'q8_0'])
    yield other('of-keys', ['bf16'] * 4, kinds)
    yield other('residual', kinds, kinds, 32)
    yield other('kivi', ['kivi2'] * 4, ['kivi2'] * 4, 32)
    yield other('width', kinds, kinds, E=48)


def contents():
    """Values that are stored, and rows of another width"""
    def values(section):
        section.set(pack(numbers(3 * 6, 1), 'f16'))
    yield 'latent-values', changed('VALS', 0, values, small), 3, 'VALS layer 0'
    yield 'latent-values-wide', changed(
        'VALS', 0, lambda s: s.set(pack(numbers(3 * 10, 1), 'f16')), small), 3, 'VALS layer 0'
    yield 'latent-values-element', changed(
        'VALS', 1, lambda s: setattr(s, 'element', 4), small), 3, 'VALS layer 1'
    yield 'latent-keys-of-rank', changed(
        'KEYS', 0, lambda s: s.set(pack(numbers(3 * 6, 1), 'f16')), small), 3, 'KEYS layer 0'
    out = small()
    del out[place(out, 'VALS', 0)]
    yield 'latent-without-values', stream(out), 3, 'order'


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    for group in (heads, types, contents):
        yield from group()
