"""badvaluenorms - norms of value outputs (4.23) that must be refused, as in bad.py."""

from badrowvalues import INF, LABEL, NAN, RowValues, named
from goodvaluenorms import beside, blocks, empty

# layer 1 of beside(): three query heads of 4 rows, then three of 2
COUNT = 18
NORMS = RowValues('vNRM', beside, COUNT, 7)


def sizes():
    return NORMS.sizes(
        empty, ('of-kv-heads', lambda old: old[:LABEL + 4 * COUNT // 3]),
        ('of-one-head', lambda old: old[:LABEL + 4 * 12]),
        ('of-more-heads', lambda old: old + old[LABEL:]))


def labels():
    return NORMS.labels(
        b'l3', ('none', b''), ('l', b'l'), ('l0', b'l0'), ('l3', b'l3'), ('linf', b'linf'),
        ('upper', b'L2'), ('digit', b'2'), ('l12', b'l12'), ('l22', b'l22'),
        ('blank', b'l2 '), ('blank-before', b' l2'), ('newline', b'l2\n'),
        ('zero-before', b'\0l2'), ('zero-among', b'l\x002'), ('option', b'l2 epsilon=1'),
        ('fill', b'l2\0x'), ('fill-4', b'l1' + bytes(2) + b'\1'),
        ('fill-64', b'l1' + bytes(62) + b'\1'), ('fill-last', b'l1' + bytes(189) + b'\x80'),
        ('both', b'l1\0l2'), ('full', b'l' * LABEL), ('no-zero', b'l2' + b' ' * 190),
        ('utf8', b'\xffl2'), ('utf8-last', b'l2' + bytes(189) + b'\xff'), ('max', b'max'))


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    return named('vnrm', sizes(), labels(), NORMS.numbers(
        ('nan', NAN), ('infinite', INF), ('minus-infinite', -INF), ('negative', -0.5),
        ('least', -1.5e-45), ('minus-zero', -0.0)), NORMS.in_second_block(
            blocks, ('nan', NAN), ('infinite', INF), ('negative', -1.0)), NORMS.order(
                ('pAID', 'mASS', 'qSTa', 'oBSq', 'POSN')))
