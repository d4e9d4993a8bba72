"""badsinks - learned sinks (4.27) that must be refused, as in bad.py."""

import struct

from bad import stream
from good import place, small
from goodsinks import observed, sinks, with_flag

SIX = [1.0] * 6


def edited(edit):
    """observed(), whose second layer has been edited: edit(sections, place of its sinks)"""
    out = observed()
    edit(out, place(out, 'SINk', 1))
    return stream(out)


def with_bits(i, bits):
    def edit(out, at):
        content = bytearray(out[at].content)
        content[4 * i:4 * i + 4] = struct.pack('<I', bits)
        out[at].set(bytes(content))
    return edited(edit)


def move(out, at, to):
    out.insert(to, out.pop(at))


def vectors():
    """(name, bytes, exit status, part of the message), as in bad.py."""
    yield 'sinks-missing', edited(lambda out, at: out.pop(at)), 3, 'SINk'
    yield 'sinks-twice', edited(lambda out, at: out.insert(at, out[at])), 3, 'SINk'
    yield 'sinks-behind', edited(lambda out, at: move(out, at, at + 1)), 3, 'SINk'
    yield 'sinks-first', edited(lambda out, at: move(out, at, at - 1)), 3, 'SINk'
    yield 'sinks-few', edited(lambda out, at: out[at].set(bytes(20))), 3, '20'
    yield 'sinks-many', edited(lambda out, at: out[at].set(bytes(28))), 3, '28'
    yield 'sinks-empty', edited(lambda out, at: out[at].set(b'')), 3, 'SINk'
    for name, bits in ('nan', 0x7fc00000), ('infinite', 0x7f800000), ('minus-infinite', 0xff800000):
        yield f'sinks-{name}', with_bits(5, bits), 3, 'finite'
    out = small(window=[5, 7, 8])
    out.insert(place(out, 'POSN', 0) + 1, sinks(SIX, 0))
    yield 'sinks-without-flag', stream(out), 3, 'attention_sinks'
    yield 'sinks-flag-false', stream(with_flag(small(), False)), 3, 'attention_sinks'
    yield 'sinks-flag-text', stream(with_flag(small(), 'yes')), 3, 'attention_sinks'
