"""badnoncausal - non-causal attention (4.25) that must be refused, as in bad.py."""

from badrowvalues import INF, LABEL, NAN, RowValues, named
from goodnoncausal import beside, blocks, empty

# layer 1 of beside(): 4 rows, then 2
COUNT = 6
NONCAUSAL = RowValues('nCAU', beside, COUNT, 3)


def sizes():
    return NONCAUSAL.sizes(empty, ('of-query-heads', lambda old: old + 2 * old[LABEL:]),
                           ('of-one-head', lambda old: old[:LABEL + 4 * 4]))


def labels():
    return NONCAUSAL.labels(
        b'\xff', ('full', b'n' * LABEL), ('fill', b'chunk=256\0x'), ('zero-before', b'\0chunk=256'),
        ('fill-last', b'chunk=256' + bytes(182) + b'\x80'), ('utf8', b'\xffchunk=256'),
        ('utf8-cut-191', b'n' * 190 + b'\xc3'))


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    return named('ncau', sizes(), labels(), NONCAUSAL.numbers(
        ('nan', NAN), ('infinite', INF), ('negative', -0.5), ('minus-zero', -0.0)),
        NONCAUSAL.in_second_block(blocks, ('infinite', INF), ('minus-infinite', -INF),
                                  ('least', -1.5e-45), ('minus-zero', -0.0)),
        NONCAUSAL.order(('gATE', 'vNRM', 'pAID', 'mASS', 'qSTa', 'oBSq', 'POSN')))
