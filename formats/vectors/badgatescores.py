"""badgatescores - gate scores (4.24) that must be refused, as in bad.py."""

from badrowvalues import INF, LABEL, NAN, RowValues, named
from goodgatescores import beside, blocks, empty

# layer 1 of beside(): 4 rows, then 2
COUNT = 6
GATES = RowValues('gATE', beside, COUNT, 3)


def sizes():
    return GATES.sizes(
        empty, ('of-query-heads', lambda old: old + 2 * old[LABEL:]),
        ('of-one-head', lambda old: old[:LABEL + 4 * 4]),
        ('of-more-heads', lambda old: old + old[LABEL:]),
        ('in-f64', lambda old: old[:LABEL] + bytes(8 * COUNT)))


def labels():
    return GATES.labels(
        b'\xff', ('full', b'g' * LABEL), ('no-zero', b'kvzap' + b' ' * 187),
        ('zero-before', b'\0kvzap'), ('fill', b'kvzap\0x'), ('two', b'kvzap\0mlp'),
        ('fill-64', b'kvzap' + bytes(59) + b'\1'), ('fill-last', b'kvzap' + bytes(186) + b'\x80'),
        ('utf8', b'\xffkvzap'), ('utf8-last', b'kvzap\x80'), ('utf8-cut', b'kvzap\xe2\x82'),
        ('utf8-cut-191', b'g' * 190 + b'\xc3'), ('utf8-long', b'kvzap\xc0\x80'),
        ('surrogate', b'\xed\xa0\x80'), ('beyond-unicode', b'\xf4\x90\x80\x80'))


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    wrong = ('nan', NAN), ('infinite', INF), ('minus-infinite', -INF)
    return named('gate', sizes(), labels(), GATES.numbers(*wrong),
                 GATES.in_second_block(blocks, *wrong),
                 GATES.order(('vNRM', 'pAID', 'mASS', 'qSTa', 'oBSq', 'POSN')))
