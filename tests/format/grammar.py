#!/usr/bin/env python3
"""grammar.py - snapshots from a grammar, most of them false in one place: kv-check and kvsnapshot
must agree on each

usage: grammar.py KV_CHECK FOLDER COUNT [SEED]

The sections of a small snapshot are made, and one thing of them is made otherwise, seldom two: what
JSON says and how it is written, a field, a number of rows, events, the order of sections. All sizes
and hashes agree, so that every difference is one of rules. Writes them to FOLDER, which it makes,
and lets both readers judge: by their exit status (0, 3 or 5). Prints the files on which they differ
with both messages, and how many were judged how; exits with 1 when there are any."""

import json
import os
import random
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', '..', 'formats', 'vectors')]

import good                                       # noqa: E402
import goodgatescores                             # noqa: E402
import goodlatent                                 # noqa: E402
import goodsinks                                  # noqa: E402
import goodnoncausal                              # noqa: E402
import goodquerystats                             # noqa: E402
import goodresidual                               # noqa: E402
import goodrows                                   # noqa: E402
import goodvaluenorms                             # noqa: E402
import kvkivi                                     # noqa: E402
import kvread                                     # noqa: E402
import kvrow                                      # noqa: E402
from kvwrite import NONE, Section, event, stream, u32s  # noqa: E402

KNOWN = ('TOKS POSN SINk oBSq qSTa mASS pAID vNRM gATE nCAU sCOR KEYS bITS pAGE cLUS lOWR VALS '
         'LGTS rHDk eVNt pROv pADD qXYz qXYZ qpYZ XTRA').split()
COUNTS = (0, 1, 2, 3, 4, 7, 8, 9, 11, 64, 1023, 1024, 1025, 4095, 4096, 4097, (1 << 24) - 1,
          1 << 24, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1, 1 << 32,
          (1 << 53) + 1,
          (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 10 ** 30, -1, -(1 << 63), -(1 << 63) - 1)
REALS = ('0.0', '-0.0', '0', '-0', '1e308', '1e309', '-1e400', '5e-324', '1e-400', '1E5', '1e+5',
         '1.5', '-1.5',
         '1.0', '10', '1e0', '0e1', '00', '01', '1.', '.5', '+1', '1e', '0x10', 'NaN', 'Infinity',
         '-Infinity',
         '1' * 400, '1' * 5000, '0.' + '3' * 400, '1_000')
TEXTS = (b'""', b'"x"', b'"a\\u0000b"', b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"',
         b'"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"',
         b'"\xed\xa0\x80"', b'"\xc0\xaf"', b'"\xff"', b'"\xef\xbf\xbf"', b'"\xf4\x90\x80\x80"',
         b'"a\tb"', b'"\x7f"', b'"\\/"',
         b'"\\x41"', b'"\\u00e"', b'"' + b'a' * 31 + b'"', b'"' + b'a' * 32 + b'"',
         b'"' + '\u00e9'.encode() * 16 + b'"',
         b'"rope"', b'"rop\\u0065"', b'"f32"', b'"f16"', b'"bf16"', b'"F32"', b'"llama3"', b"'x'",
         b'"0123456789abcdef0123456789abcdef"',
         b'"0123456789ABCDEF0123456789abcdef"', b'"x', b'"\\ud800\\u0041"', b'"\\uFFFF"',
         b'"a\x00b"', b'"\xe2\x80\xa8"')
OTHERS = (b'true', b'false', b'null', b'[]', b'{}', b'[1]', b'{"a":1}', b'[1.0,2.5]', b'[0]',
          b'[0,1]', b'[1,0]', b'[0,0]', b'["x"]',
          b'True', b'nul', b'', b'[1,]', b'{"a":1,}', b'[,]', b'{"a":1,"a":2}', b'{"":0}',
          b'{"a\\u0000":1}', b'{"a":{"b":1,"b":2}}',
          b'[' * 40 + b']' * 40, b'[' * 900 + b']' * 900, b'[' * 2040 + b']' * 2040,
          b'[' * 2100 + b']' * 2100, b'{"\\ud800":1}',
          b'/**/1', b'[9223372036854775808]', b'{"a":-9223372036854775809}', b'[1e999]', b'[-0]')
BESIDE = (b' ', b'\n', b'\t', b'\r', b'\x0b', b'\x0c', b'\xc2\xa0', b'\xef\xbb\xbf', b'\0', b'x',
          b',', b'{}', b'//')
F64S = (0.0, -0.0, 1.0, -1.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308,
        float('inf'), -float('inf'), float('nan'), -float('nan'))
F32_BITS = (0, 1 << 31, 1, 0x80000001, 0x3f800000, 0xbf800000, 0x7f7fffff, 0x7f800000, 0xff800000,
            0x7f800001, 0x7fc00000, 0xffc00000)
NORMS = (b'l1', b'l2', b'l1', b'l2', b'', b'l', b'l3', b'L1', b'l1 ', b' l2', b'l12', b'l2\0x',
         b'l1' + bytes(189) + b'\1', b'l' * 192, b'l2' + b' ' * 190, b'\0l1', b'\xff', b'max')
LABELS = (b'', b'x', b'\xff', b'a' * 191, b'a' * 192, b'\xed\xa0\x80', b'\xf0\x9f\x98\x80', b'a\0b',
          b'\n', '\u00e9'.encode() * 95, b'\xef\xbf\xbe', b'\xf4\x90\x80\x80', b'\xc0\x80',
          b'\xe2\x82')
OF_ROWS = {'vNRM': NORMS, 'gATE': LABELS, 'nCAU': LABELS}        # the label of a section, then f32
RESIDUALS = (32, 64, 96, 128, 4096, 0, 1, 2, 5, 16, 31, 33, 48, 4095, 4097, 4128, -32, 1 << 31,
             1 << 32, 1 << 64)
ROPES = ('default', 'linear', 'llama3', 'longrope', 'yarn')
ROPE_KEYS = ('attention_factor', 'beta_fast', 'beta_slow', 'factor', 'factors', 'high_freq_factor',
             'low_freq_factor', 'original_max_position', 'query_beta', 'skip', 'theta', 'truncate',
             'width', 'window_theta')
MODEL_KEYS = ('attention_multiplier', 'embedding_multiplier', 'logits_scaling',
              'residual_multiplier', 'attention_softcap',
              'logits_softcap', 'mlp_bias', 'whole_layers', 'window', 'heads', 'experts',
              'experts_chosen', 'latent_nope', 'latent_rank', 'latent_value')


# ---- JSON: a tree whose leaves may be bytes, as they are to stand ----

def text(r, value):
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b'{' + b','.join(text(r, k if isinstance(k, bytes) else json.dumps(k).encode()) +
                                b':' + text(r, v) for k, v in value.items()) + b'}'
    if isinstance(value, list):
        return b'[' + b','.join(text(r, v) for v in value) + b']'
    return json.dumps(value).encode()


def leaf(r):
    kind = r.randrange(4)
    if kind == 0:
        return str(r.choice(COUNTS)).encode()
    if kind == 1:
        return r.choice(REALS).encode()
    return r.choice(TEXTS if kind == 2 else OTHERS)


def objects(value):
    """All objects of a tree."""
    found = [value]
    for v in value.values():
        if isinstance(v, dict):
            found += objects(v)
    return found


def edit_object(r, o, more=()):
    """One key gone, otherwise, new, or twice."""
    what, keys = r.randrange(5), list(o)
    if what == 0 and keys:
        del o[r.choice(keys)]
    elif what == 1:
        o[r.choice(more) if more and r.random() < .8
          else r.choice(('note', '', 'z', '\u00e9'))] = leaf(r)
    elif what == 2 and keys:
        key = r.choice(keys)
        value = o[key] if r.random() < .5 else leaf(r)
        names = (key,)
        if key and isinstance(key, str):
            names = (text(r, key), text(r, key) + b' ',
                     b'"\\u%04x%s"' % (ord(key[0]), key[1:].encode()))
        o[r.choice(names)] = value
    elif keys:
        o[r.choice(keys)] = leaf(r)


def beside(r, line):
    """White space, and what looks like it, somewhere between two characters that are no part of a
    text or number."""
    at = r.choice([0, len(line)] + [i for i, c in enumerate(line) if c in b',:{}'])
    return line[:at] + r.choice(BESIDE) + line[at:]


def edit_head(r, h):
    model, rope = h['model'], h['model']['rope']
    if r.random() < .3:
        rope['type'] = r.choice(ROPES)
        for key in good_rope(r, rope['type']):
            rope.setdefault(*key)
    if r.random() < .3:
        model['window'] = r.choice((1, 4, 4096, 0, 1 << 32))
        if r.random() < .6:
            model['whole_layers'] = r.choice(([], [0], [1], [0, 1], [1, 0], [2], [1, 1], [True],
                                              [0.0], [4096]))
    if r.random() < .3:
        h['documents'] = edit_documents(r, h.get('next_position'))
    if 'row_types' in h and r.random() < .7:
        edit_types(r, h)
    for _ in range(r.choice((0, 1, 1, 2))):
        o = r.choice(objects(h))
        edit_object(r, o, ROPE_KEYS if o is rope else MODEL_KEYS if o is model else ())
    line = text(r, h)
    return beside(r, line) if r.random() < .1 else line


def edit_documents(r, end):
    """Where documents begin, and what looks like it"""
    end = end if type(end) is int and 1 < end < 1 << 33 else 9
    starts = sorted(r.sample(range(1, min(end, 1 << 20)), min(r.choice((1, 1, 2, 3)), end - 1)))
    what = r.randrange(9)
    if what < 4:
        return starts
    if what == 4:
        return list(range(1, r.choice((1022, 1023, 1024, 1025)) + 1))
    starts[r.randrange(len(starts))] = r.choice((0, -1, end, end - 1, 1 << 32, 1.0, True, '1', [1],
                                                 starts[0], starts[-1]))
    return r.choice((starts, starts, starts[::-1], [], {'1': 1}, 1))


def edit_types(r, h):
    """A type otherwise, a list longer or shorter, another residual or width of the head."""
    types, what = h['row_types'][r.choice(('keys', 'values'))], r.randrange(9)
    R = h['row_types'].get('residual')
    if R is not None and r.random() < .3:
        h['row_types']['residual'] = other_residual(r, R)
    elif R is not None and r.random() < .1:
        del h['row_types']['residual']
    elif what == 8:
        h['row_types']['residual'] = r.choice(RESIDUALS)
    elif what == 0:
        h['model']['head_width'] = r.choice((1, 16, 31, 33, 64, 96, 1024))
    elif what == 1:
        types.append(r.choice(types))
    elif what == 2:
        types.pop()
    else:
        types[r.randrange(len(types))] = r.choice(
            (*kvrow.TYPES, *kvkivi.BITS, *kvrow.TYPES, *kvkivi.BITS, 'bf16', 'f16', 'f32', 'q8_1',
             'f16-hadamard', 'kivi2-hadamard', leaf(r)))


def other_residual(r, R):
    return r.choice((r.choice((R - 1, R + 1, R + 32, -R)), leaf(r), r.choice(RESIDUALS),
                     r.choice(RESIDUALS)))


def good_rope(r, kind):
    keys = {'linear': ['factor'], 'llama3': ['factor', 'high_freq_factor', 'low_freq_factor',
                                             'original_max_position'],
            'longrope': ['attention_factor', 'factors', 'original_max_position'],
            'yarn': ['attention_factor', 'beta_fast', 'beta_slow', 'factor',
                     'original_max_position', 'truncate']}
    for key in keys.get(kind, ()):
        yield key, {'factors': [1.0, r.choice((2.5, 8, 1e300)), 1.25],
                    'original_max_position': 8192, 'truncate': True}.get(key, 1.5)


def provenance(r):
    lines = []
    for _ in range(r.choice((0, 1, 1, 1, 2, 3))):
        entry = {'options': {'chunk': 512, 'policy': 'x'}, 'tool': 'kv-prefill', 'version': '0.1.0'}
        if r.random() < .7:
            edit_object(r, r.choice(objects(entry)), ('tool', 'options', 'version', 'note'))
        line = text(r, entry)
        if r.random() < .2:
            line = beside(r, line)
        if r.random() < .05:
            line = leaf(r)
        lines.append(line + (b'\n' if r.random() < .95
                             else r.choice((b'', b'\r\n', b'\n\n', b'\0\n'))))
    return b''.join(lines)


# ---- sections of numbers ----

def edit_words(r, content):
    """A u32 otherwise; or some more, or fewer bytes."""
    content = bytearray(content)
    if len(content) < 4 or r.random() < .15:
        cut = r.choice((1, 2, 3, 4, 8, len(content)))
        if r.random() < .5:
            return bytes(content[:-cut])
        return bytes(content) + bytes(r.randrange(256) for _ in range(cut))
    words = len(content) // 4
    at = 4 * (r.randrange(words) if r.random() < .5 else min(r.randrange(20), words - 1))
    old = struct.unpack_from('<I', content, at)[0]
    struct.pack_into('<I', content, at,
                     r.choice((0, 1, 2, 3, old ^ 1, (old + 1) & NONE, (old - 1) & NONE,
                               old ^ 1 << 31, 0x7f800000, 0xff800000, 0x7fc00000, 0x80000000,
                               0x7f7fffff, NONE, 1 << 31, r.getrandbits(32))))
    return bytes(content)


def edit_label(r, content):
    return r.choice(LABELS).ljust(192, b'\0') + content[192:]


def log(r, layers, heads):
    """Events that agree with each other, or nearly."""
    rows, out, position = [[0] * heads for _ in range(layers)], b'', 0
    for _ in range(r.randrange(1, 6)):
        kind = r.choice((1, 1, 2, 3))
        l0 = r.randrange(layers)
        l1 = r.randrange(l0 + 1, layers + 1)
        n = 0 if kind == 3 else r.randrange(1, 5)
        after = [[r.randrange(b + 1) if kind == 3 else b + r.randrange(n + 1) for b in one]
                 for one in rows[l0:l1]]
        whole = kind != 3 and r.random() < .4
        if whole:
            after = [[b + n for b in one] for one in rows[l0:l1]]
        counts = [(b, a) for old, new in zip(rows[l0:l1], after) for b, a in zip(old, new)]
        rows[l0:l1] = after
        position += n
        out += event(kind, position, n, l0, l1, None if whole else counts)
    return out


def edit_half(r, content):
    """What may be a scale or minimum is none, or the greatest; or a code is."""
    content = bytearray(content)
    struct.pack_into('<H', content, 2 * r.randrange(len(content) // 2),
                     r.choice((0x7c00, 0xfc00, 0x7e01, 0xfdff, 0x7bff, 0xfbff, 0x7fff)))
    return bytes(content)


def edit_stats(r, content):
    """An f64 otherwise, often a sum of squares or the last one; first, or how many queries; some
    more numbers, or fewer."""
    content, what = bytearray(content), r.randrange(8)
    count = len(content) // 8 - 8
    if what == 0 and len(content) >= 8:
        struct.pack_into('<I', content, 4 * r.randrange(2), r.choice((0, 0, 0, 1, 7, NONE)))
    elif what == 1:
        return bytes(content[:-8]) if r.random() < .5 else bytes(content) + bytes(8)
    elif count > 0:
        at = r.choice((0, count - 1, r.randrange(count), r.randrange(count), r.randrange(count)))
        struct.pack_into('<d', content, 64 + 8 * at, r.choice(F64S))
    return bytes(content)


def edit_of_rows(r, section):
    """Another label, which may be right; an f32 otherwise, often the first or the last one; one
    more, or one less."""
    content, what = bytearray(section.content), r.randrange(6)
    count = len(content) // 4 - 48
    if what < 2:
        return r.choice(OF_ROWS[section.type]).ljust(192, b'\0') + bytes(content[192:])
    if what == 2:
        return bytes(content[:-4]) if r.random() < .5 else bytes(content) + bytes(4)
    if count > 0:
        at = r.choice((0, count - 1, r.randrange(count), r.randrange(count)))
        struct.pack_into('<I', content, 192 + 4 * at, r.choice(F32_BITS))
    return bytes(content)


def edit_section(r, sections):
    s = r.choice(sections)
    what = r.randrange(8)
    if s.type == 'HEAD':
        if not hasattr(s, 'edited'):
            s.set(edit_head(r, json.loads(s.content)))
            s.edited = True
    elif s.type == 'pROv':
        s.set(provenance(r))
    elif s.type == 'eVNt' and what < 6:
        s.set(log(r, 2, 2) if what < 4 else edit_words(r, s.content))
    elif s.type in ('sCOR', 'pAID') and what < 3:
        s.set(edit_label(r, s.content))
    elif s.type == 'SINk' and what < 4:
        s.set(edit_words(r, s.content))
    elif s.type == 'qSTa' and what < 4:
        s.set(edit_stats(r, s.content))
    elif s.type in OF_ROWS and what < 4:
        s.set(edit_of_rows(r, s))
    elif s.type in ('KEYS', 'VALS') and s.element == 1 and len(s.content) > 1 and what < 4:
        s.set(edit_half(r, s.content))
    elif what < 6:
        s.set(edit_words(r, s.content))
    elif what == 6:
        s.element = r.choice((0, 1, 2, 4, 8))
    else:
        s.layer = r.choice((0, 1, 2, 4095, 4096, NONE))


def edit_order(r, sections):
    at, what = r.randrange(len(sections)), r.randrange(5)
    if what == 0:
        del sections[at]
    elif what == 1:
        sections.insert(r.randrange(len(sections) + 1), sections[at])
    elif what == 2:
        sections.insert(r.randrange(len(sections) + 1), sections.pop(at))
    elif what == 3:
        kind = r.choice(KNOWN + [bytes(r.choice(b'aZq1 ') for _ in range(4)).decode()])
        sections.insert(r.randrange(len(sections) + 1),
                        Section(kind, r.choice((b'', b'x', u32s([1, 2, 3]))),
                                r.choice((0, 1, 2, NONE))))
    else:
        sections[at].type = r.choice(KNOWN)


def with_full(r):
    """Rows of quantised types, KIVI's or others or both, with full ones behind, in KV heads of as
    many as matters to the residual. At times HEAD says another, or a number is not finite."""
    layers, heads = r.choice((1, 2)), r.choice((1, 2, 3))
    dtype, E = r.choice(('bf16', 'f16', 'f32')), 32
    pool = r.choice((list(kvkivi.BITS), list(kvrow.TYPES), [*kvkivi.BITS, 'q4_0', 'fp8-hadamard'],
                     ['int8', 'fp8']))
    R = r.choice((32, 32, 64, 4096) if r.random() < .8 else (48, 80, 4128))
    if not set(pool) & set(kvkivi.BITS):
        R, E = r.choice((1, 2, 5, 32, 33, 4096)), r.choice((7, 32)) if len(pool) == 2 else E
    kinds = [[r.choice((*pool, *pool, dtype)) for _ in range(layers)] for _ in range(2)]
    kinds[r.randrange(2)][r.randrange(layers)] = r.choice(pool)
    near = [n for n in (R - 1, R, R + 1, R + 3, 2 * R - 1, 2 * R, 2 * R + 1, 70) if n <= 70]
    counts = [[r.choice((0, 1, *near)) for _ in range(heads)] for _ in range(layers)]
    out = goodresidual.with_full(*kinds, R, dtype, [goodresidual.first(*own) for own in counts],
                                 heads, E, scored=r.choice((None, 'x')), tools=good.TOOLS)
    if r.random() < .2:
        h = json.loads(out[0].content)
        h['row_types']['residual'] = other_residual(r, R)
        out[0].set(text(r, h))
        out[0].edited = True
    elif r.random() < .3:
        for s in out:
            if s.type in ('KEYS', 'VALS') and s.element == 1 and len(s.content) > 1:
                s.set(edit_half(r, s.content))
    return out


def with_stats(r):
    """Query statistics in some layers, with other channels that are rotated; at times these are
    not those that HEAD says, or a number is not what it may be."""
    count, E, heads = r.choice((1, 2, 3)), r.choice((1, 2, 3, 6, 7, 8)), r.choice((1, 2, 6))
    rope = {'theta': 10000.0, 'type': 'default', **other_width(r, E, .5)}
    h = good.head(count, heads * r.choice((1, 3)), heads, E, 11, r.choice(('bf16', 'f16', 'f32')),
                  9, rope)
    stats = [r.choice((None, *[(r.choice((0, 4, NONE)), r.choice((0, 1, 5)))] * 3))
             for _ in range(count)]
    beside = r.random() < .5
    out = good.sections(h, [[[0, 2, 5]]] * count, [7, 0, 10], stats=stats,
                        window=r.choice((None, [5, 7])), weighed=beside,
                        paying='max' if beside else None, scored=r.choice((None, 'x')),
                        tools=good.TOOLS)
    if r.random() < .2:
        h['model']['rope'] = {'theta': 10000.0, 'type': 'default', **other_width(r, E, .7)}
        out[0].set(text(r, h))
        out[0].edited = True
    elif r.random() < .5:
        for s in out:
            if s.type == 'qSTa':
                s.set(edit_stats(r, s.content))
    return out


def with_norms(r):
    """Norms of value outputs, gate scores or non-causal attention in some layers, of KV heads with
    rows and without; at times a label or number is not what it may be."""
    def label():
        return r.choice(('l1', 'l2', 'l2', None))
    kind = r.randrange(3)
    labels = {name: [label(), label()] for name in ('norms', 'gates', 'noncausal')
              if name == 'norms' or r.random() < .6}
    if kind == 0:
        out = goodvaluenorms.beside(**labels)
    elif kind == 1:
        out = r.choice((goodvaluenorms, goodgatescores, goodnoncausal)).empty()
    else:
        heads = r.choice((1, 2, 3))
        out = good.sections(good.head(2, heads * r.choice((1, 2, 4)), heads, 2, next_position=9),
                            [[list(range(r.choice((0, 1, 5)))) for _ in range(heads)]
                             for _ in range(2)], [1, 2], **labels)
    if r.random() < .5:
        for s in out:
            if s.type in OF_ROWS:
                s.set(edit_of_rows(r, s))
    return out


def with_sinks(r):
    """Learned sinks in some layers, often in all that have queries; at times HEAD says nothing of
    them."""
    out = goodsinks.with_sinks(
        good.small(window=r.choice((None, [5, 7], [9])), tools=good.TOOLS),
        layers=r.choice((None, None, [], [0], [1], [0, 1])))
    return goodsinks.with_flag(out, False) if r.random() < .1 else out


def other_width(r, E, often):
    """Some channels of E that are rotated, and layers in which none is."""
    rope = {}
    if E > 2 and r.random() < often:
        rope['width'] = r.randrange(2, E, 2)
    if r.random() < often:
        rope['skip'] = r.choice((1, 2, 3, 4))
    return rope


def with_latent(r):
    """Latent attention, values in keys; at times the widths do not make up a key, or the types of
    values are not those of keys."""
    rank, width, tools = r.choice((1, 2, 6, 40)), r.choice((2, 4, 24)), good.TOOLS
    h = goodlatent.head(2, r.choice((1, 3)), rank, width, dtype=r.choice(('bf16', 'f32')),
                        next_position=9)
    out = r.choice((lambda: good.sections(h, [[[0, 2]], [[]]], [7, 0], tools=tools,
                                          stats=[(0, 2), None]),
                    lambda: goodlatent.quantised(tools=tools), goodlatent.indexed,
                    lambda: goodlatent.small(tools=tools)))()
    if r.random() < .5:
        h = json.loads(out[0].content)
        model, types = h['model'], h.get('row_types')
        name = r.choice(('latent_rank', 'latent_nope', 'latent_value', 'head_width', 'kv_heads'))
        if types and r.random() < .5:
            types[r.choice(('keys', 'values'))][r.randrange(4)] = r.choice(
                ('q8_0', 'bf16', 'kivi2', 'fp8'))
            if r.random() < .3:
                types['residual'] = r.choice(RESIDUALS)
        elif r.random() < .3:
            model.pop(name)
        elif r.random() < .5:
            model[name] += r.choice((-1, 1, 2))
        else:
            h['model']['rope'] = {'theta': 10000.0, 'type': 'default', **other_width(r, 24, .7)}
        out[0].set(text(r, h))
        out[0].edited = True
    return out


def sound(r):
    kind = r.randrange(14)
    if kind == 12:
        return with_latent(r)
    if kind == 0:
        return good.logged(r.choice((None, good.runs())))
    if kind == 1:
        return good.small(window=r.choice(([5, 7, 8], [8, 9], [9, 10])), weighed=True, paying='max',
                          scored='h2o', logits=True, tools=good.TOOLS)
    if kind == 2:
        return good.with_unknown()
    if kind == 3:
        return good.beside(good.full(), features=r.choice((0, 3)))
    if kind == 4:
        return good.indexed()
    if kind == 5:
        return r.choice((goodrows.mixed, lambda: goodrows.indexed('bf16'),
                         goodrows.indexed_hadamard))()
    if kind in (7, 8):
        return with_full(r)
    if kind in (9, 10):
        return with_stats(r)
    if kind == 11:
        return with_norms(r)
    if kind == 13:
        return with_sinks(r)
    h = r.choice([h for _, h in good.families()])
    return good.sections(h, [[[0]]] * h['model']['layers'], [0], tools=good.TOOLS)


def snapshot(seed):
    r = random.Random(seed)
    sections = sound(r)
    for _ in range(r.choice((0, 1, 1, 1, 1, 1, 2))):
        if r.random() < .3:                     # JSON is where readers differ most
            one = [s for s in sections if s.type in ('HEAD', 'pROv')]
            edit_section(r, one or sections)
        else:
            (edit_order if r.random() < .25 else edit_section)(r, sections)
        if not sections:
            sections = sound(r)
    front = {}
    if r.random() < .03:
        front = r.choice(({8: b'\2'}, {8: b'\0'}, {12: b'\0'},
                          {16 + r.randrange(8): bytes([1 << r.randrange(8)])}, {30: b'\1'}))
    features = r.choice((0, 1, 2, 3, 4, 7)) if r.random() < .02 else None
    return stream(sections, index=r.random() < .7, preamble=front, features=features)


# ---- what both say ----

def log_agrees(s):
    """4.12, Agreement: kv-check refuses a log that does not, a reader does not."""
    rows = [[0] * s.model['kv_heads'] for _ in range(s.model['layers'])]
    for e in s.events or ():
        for l in range(e.l0, e.l1):
            if e.counts is None:
                rows[l] = [n + e.n for n in rows[l]]
                continue
            if rows[l] != [before for before, _ in e.counts[l - e.l0]]:
                return False
            rows[l] = [after for _, after in e.counts[l - e.l0]]
    return s.events is None or rows == [layer.rows for layer in s.layers]


def judge(path):
    try:
        with open(path, 'rb') as file:
            return (0, '') if log_agrees(kvread.read(file)) else (3, 'log does not agree')
    except kvread.Bad as error:
        return error.status, str(error)


def objects_in(said):
    at, decoder = 0, json.JSONDecoder()
    while at < len(said):
        value, at = decoder.raw_decode(said, at)
        while at < len(said) and said[at].isspace():
            at += 1
        yield value


def main(kv_check, folder, count, seed=0):
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f'{seed + n}.kv') for n in range(int(count))]
    for n, path in enumerate(paths):
        with open(path, 'wb') as file:
            file.write(snapshot(int(seed) + n))
    done = subprocess.run([kv_check, '-q', '--json', *paths], stdout=subprocess.PIPE, check=False)
    theirs = list(objects_in(done.stdout.decode()))
    assert len(theirs) == len(paths), (f'{len(theirs)} verdicts of {len(paths)}, '
                                       f'exit status {done.returncode}')
    tally, differ = {}, 0
    for path, said in zip(paths, theirs):
        status, message = judge(path)
        tally[status] = tally.get(status, 0) + 1
        if status != said['status']:
            differ += 1
            print(f'{path}: kv-check {said["status"]} {said.get("error", "")!r}, '
                  f'kvsnapshot {status} {message!r}')
    print(', '.join(f'{n} with {status}' for status, n in sorted(tally.items())) +
          f', {differ} differ')
    return differ > 0


if __name__ == '__main__':
    kv_check, folder, count = sys.argv[1:4]
    sys.exit(main(kv_check, folder, int(count), int(sys.argv[4]) if len(sys.argv) > 4 else 0))
