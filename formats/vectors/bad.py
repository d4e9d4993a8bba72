"""bad - snapshots that must be refused, each false in one place only.

Each vector is (name, bytes, exit status, a part of the message). The message is compared
without regard to case. Where the document gives no word (5, rule 4), it is the place.
"""

import struct

from badjson import unread
from good import HEAD, TOOLS, beside, full, head, logged, place, sections, small
from kvwrite import (NONE, Section, canonical, event, head_keys, pack, paid, patch, queries, scores,
                     u32s, xxh3)
import kvwrite


def weighed():
    return small(window=[5, 7, 8], weighed=True, scored='h2o', logits=True, tools=TOOLS)


def paying():
    return small(window=[8, 9], weighed=True, paying='max', scored='observed')


def stream(out, index=False, **options):
    """As in kvwrite, but without iNDX, which a falsehood seldom needs and which takes room."""
    return kvwrite.stream(out, index, **options)


def u16(v):
    return struct.pack('<H', v)


def u64(v):
    return struct.pack('<Q', v)


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def changed(kind, layer, change, base=small, **options):
    """A snapshot in which change(section) was done to one section."""
    out = base()
    change(out[place(out, kind, layer)])
    return stream(out, **options)


def with_header(kind, layer, patches, base=small):
    return changed(kind, layer, lambda s: s.header.update(patches), base)


def with_entry(kind, layer, patches, base=small):
    return changed(kind, layer, lambda s: s.blocks[0].entry.update(patches), base)


def with_content(kind, layer, edit, base=full):
    return changed(kind, layer, lambda s: s.set(edit(s.content)), base)


def with_stored(kind, layer, codec, stored, base=small):
    def change(section):
        section.blocks[0].codec, section.blocks[0].stored = codec, stored
    return changed(kind, layer, change, base)


def preamble():
    def false(patches):
        return stream(small(), preamble=patches)
    yield 'magic', false({0: b'\x89'}), 3, 'magic'
    yield 'version-2', false({8: u16(2)}), 5, 'version'
    yield 'version-65535', false({8: u16(65535)}), 5, 'version'
    yield 'version-0', false({8: u16(0)}), 3, 'version'
    yield 'byte-order', false({12: b'\1\2\3\4'}), 3, 'byte order'
    yield 'feature-2', false({16: u64(4)}), 5, 'bit 2 is'
    yield 'feature-37', false({16: u64(1 << 37)}), 5, '37'
    yield 'feature-63', false({16: u64(1 << 63)}), 5, '63'
    yield 'preamble-zero-10', false({10: b'\1'}), 3, 'zero'
    yield 'preamble-zero-24', false({24: b'\1'}), 3, 'zero'
    yield 'preamble-zero-55', false({55: b'\1'}), 3, 'zero'
    yield 'preamble-hash', false({56: bytes(8)}), 3, 'checksum'


def section_headers():
    yield 'mark', with_header('KEYS', 1, {0: b'\xaa'}), 3, 'mark'
    yield 'header-hash', flipped(stream(small()), 64 + 56), 3, 'checksum'
    yield 'header-bit', flipped(stream(small()), 64 + 16), 3, 'checksum'
    yield 'header-zero-13', with_header('KEYS', 1, {13: b'\1'}), 3, 'zero'
    yield 'header-zero-55', with_header('KEYS', 1, {55: b'\1'}), 3, 'zero'
    yield 'element-size-3', with_header('KEYS', 1, {12: b'\3'}), 3, 'KEYS layer 1'
    yield 'element-size-0', with_header('TOKS', NONE, {12: b'\0'}), 3, 'TOKS'
    yield 'keys-element-size', with_header('KEYS', 1, {12: b'\4'}), 3, 'KEYS layer 1'
    yield 'values-element-size', with_header('VALS', 0, {12: b'\1'}), 3, 'VALS layer 0'
    for name, kind in (('unsafe', 'XTRA'), ('private', 'XtRA'), ('safe', 'XTRa')):
        out = small()
        out.insert(place(out, 'POSN', 1), Section(kind, b'who knows'))
        yield f'critical-{name}', stream(out), 5, kind
    out = small()
    out.insert(2, Section('qXyz', b'third letter'))
    yield 'type-third-letter', stream(out), 3, 'type'
    out = small()
    out.insert(2, Section('q1Yz', b'no letter'))
    yield 'type-digit', stream(out), 3, 'type'


def sizes():
    huge, most = u64(1 << 63), u64((1 << 64) - 1)
    yield 'raw-size-2-63', with_header('KEYS', 1, {16: huge, 24: huge}), 3, 'KEYS layer 1'
    yield 'raw-size-2-64', with_header('KEYS', 1, {16: most, 24: most}), 3, 'KEYS layer 1'
    yield 'raw-size-2-63-alone', with_header('KEYS', 1, {16: huge}), 3, 'KEYS layer 1'
    yield 'stored-size-2-64', with_header('KEYS', 1, {24: most}), 3, 'KEYS layer 1'
    yield 'stored-size-less', with_header('KEYS', 1, {24: u64(59)}), 3, 'KEYS layer 1'
    yield 'stored-size-0', with_header('TOKS', NONE, {24: u64(0)}), 3, 'TOKS'
    yield 'ancillary-2-63', unknown_huge(huge), 3, 'qXYz'
    tokens = u32s(range(2000))
    out = sections(head(), [[[0]]], [0])
    out[1].set(tokens)
    out[1].blocks[0].codec, out[1].blocks[0].stored = 1, b'\xf0' + b'\xff' * 29
    yield 'raw-size-255', stream(out), 3, 'TOKS'


def unknown_huge(size):
    """A section that no reader knows cannot be measured by what its type should hold."""
    out = small()
    out.insert(2, Section('qXYz', b'small'))
    out[2].header.update({16: size, 24: size})
    return stream(out)


def tables():
    yield 'table-hash', with_header('KEYS', 1, {32: bytes(8)}), 3, 'KEYS layer 1'
    yield 'table-bit', with_bit('KEYS', 1, 64 + 8), 3, 'checksum'
    yield 'table-zero', with_entry('KEYS', 1, {5: b'\1'}), 3, 'zero'
    yield 'table-fill', changed('KEYS', 1, lambda s: setattr(s, 'table_fill', b'\1')), 3, 'zero'
    yield 'payload-fill', changed('TOKS', NONE, lambda s: setattr(s, 'payload_fill', b'\1')), \
        3, 'zero'
    yield 'stored-hash', with_entry('KEYS', 1, {16: bytes(8)}), 3, 'KEYS layer 1'
    yield 'block-bit', with_bit('KEYS', 1, 128), 3, 'checksum'
    yield 'block-last-bit', with_bit('VALS', 1, 128 + 71), 3, 'VALS layer 1'
    yield 'codec-0-two-hashes', with_entry('KEYS', 1, {8: bytes(8)}), 3, 'KEYS layer 1'
    for size in (79, 81):
        out = small()
        out.insert(2, Section('qXYz', bytes(80)))
        out[2].blocks[0].stored = bytes(size)
        out[2].blocks[0].raw_hash = xxh3(bytes(size))
        yield f'codec-0-{size}-of-80', stream(out), 3, 'qXYz'
    yield 'block-stored-size-0', with_stored('TOKS', NONE, 1, b''), 3, 'TOKS'
    data = bytes(range(72))
    literal = b'\xf0' + bytes([72 - 15]) + data
    out = small()
    keys = out[place(out, 'KEYS', 1)].set(data)
    keys.blocks[0].codec, keys.blocks[0].stored = 1, literal
    yield 'compressed-not-smaller', stream(out), 3, 'KEYS layer 1'


def with_bit(kind, layer, offset):
    """One bit false, offset bytes after the start of a section, and nothing made to agree."""
    out = small()
    at = 64 + sum(len(s.bytes()) for s in out[:place(out, kind, layer)])
    return flipped(stream(out), at + offset)


def coded(codec, edit):
    """KEYS of layer 1 compressed; edit(block) then makes it false."""
    out = small()
    keys = out[place(out, 'KEYS', 1)]
    keys.set(bytes(len(keys.content)), codec)
    assert keys.blocks[0].codec == codec
    edit(keys.blocks[0])
    return stream(out)


def codecs():
    yield 'codec-3', coded(1, lambda b: b.entry.update({4: b'\3'})), 3, 'codec'
    yield 'codec-255', coded(1, lambda b: b.entry.update({4: b'\xff'})), 3, 'codec'
    yield 'stored-hash-codec-1', coded(1, lambda b: b.entry.update({16: u64(1)})), \
        3, 'KEYS layer 1'
    for codec in (1, 2):
        yield f'raw-hash-codec-{codec}', coded(
            codec, lambda b: b.entry.update({8: u64(1)})), 3, 'KEYS layer 1'
    yield 'lz4-garbage', coded(1, lambda b: setattr(b, 'stored', b'\x5a' * 40)), \
        3, 'KEYS layer 1'
    yield 'lz4-cut', coded(1, lambda b: setattr(b, 'stored', b.stored[:-1])), 3, 'KEYS layer 1'
    yield 'lz4-more', coded(1, lambda b: setattr(b, 'stored', b.stored + b'\0')), \
        3, 'KEYS layer 1'
    short = Section('none', bytes(70), codec=1).blocks[0].stored
    yield 'lz4-short', coded(1, lambda b: setattr(b, 'stored', short)), 3, 'KEYS layer 1'
    long = Section('none', bytes(74), codec=1).blocks[0].stored
    yield 'lz4-long', coded(2, lambda b: setattr(b, 'stored', long)), 3, 'KEYS layer 1'
    # one literal, then a match that begins before the block
    yield 'lz4-offset', coded(1, lambda b: setattr(
        b, 'stored', b'\x1f\0' + u16(2) + b'\x2f\x50' + bytes(5))), 3, 'KEYS layer 1'
    out = sections(head(), [[[0]]], [5] * 50)
    out[1].set(out[1].content, 1)
    out[1].element, out[1].blocks[0].codec = 1, 2
    yield 'planes-of-1', stream(out), 3, 'TOKS'
    text = canonical(head()).encode()
    out = sections(head(), [[[0]]], [0])
    out[0] = Section('HEAD', text + b' ' * (-len(text) % 4 + 1), element=4, codec=1)
    out[0].blocks[0].codec = 2
    yield 'planes-uneven', stream(out), 3, 'HEAD'


def moved(edit, base=full, **options):
    out = base()
    edit(out)
    return stream(out, **options)


def swap(kind_a, layer_a, kind_b, layer_b, base=full):
    def edit(out):
        a, b = place(out, kind_a, layer_a), place(out, kind_b, layer_b)
        out[a], out[b] = out[b], out[a]
    return moved(edit, base)


def put(kind, layer, to, after, base=full):
    """Takes a section to before (after 0) or behind (after 1) the section `to` of its layer."""
    def edit(out):
        section = out.pop(place(out, kind, layer))
        out.insert(place(out, to, layer) + after, section)
    return moved(edit, base)


def drop(kind, layer, base=small):
    return moved(lambda out: out.pop(place(out, kind, layer)), base)


def repeat(kind, layer):
    def edit(out):
        at = place(out, kind, layer)
        out.insert(at, out[at])
    return moved(edit)


def insert(at, section):
    return moved(lambda out: out.insert(at, section), small)


def order():
    """Nothing here is wrong with any section, only with where it stands."""
    for kind, layer in (('HEAD', NONE), ('TOKS', NONE), ('POSN', 0), ('KEYS', 1), ('VALS', 0),
                        ('VALS', 1)):
        name = kind.lower() if layer == NONE else f'{kind.lower()}-{layer}'
        yield f'missing-{name}', drop(kind, layer), 3, 'order'
    for kind, layer in (('HEAD', NONE), ('TOKS', NONE), ('POSN', 1), ('oBSq', 1), ('sCOR', 1),
                        ('KEYS', 1), ('VALS', 1), ('LGTS', NONE), ('pROv', NONE)):
        yield f'repeated-{kind.lower()}', repeat(kind, layer), 3, 'order'
    yield 'swapped-keys-values', swap('KEYS', 0, 'VALS', 0), 3, 'order'
    yield 'swapped-queries-scores', swap('oBSq', 0, 'sCOR', 0), 3, 'order'
    yield 'repeated-mass', moved(lambda out: out.insert(
        place(out, 'mASS', 1), out[place(out, 'mASS', 1)]), weighed), 3, 'order'
    yield 'swapped-queries-mass', swap('oBSq', 0, 'mASS', 0, weighed), 3, 'order'
    yield 'swapped-mass-scores', swap('mASS', 1, 'sCOR', 1, weighed), 3, 'order'
    yield 'repeated-paid', moved(lambda out: out.insert(
        place(out, 'pAID', 1), out[place(out, 'pAID', 1)]), paying), 3, 'order'
    yield 'swapped-mass-paid', swap('mASS', 0, 'pAID', 0, paying), 3, 'order'
    yield 'swapped-paid-scores', swap('pAID', 1, 'sCOR', 1, paying), 3, 'order'
    yield 'swapped-head-tokens', swap('HEAD', NONE, 'TOKS', NONE), 3, 'order'
    yield 'swapped-logits-provenance', swap('LGTS', NONE, 'pROv', NONE), 3, 'order'
    yield 'scores-after-values', swap('sCOR', 1, 'VALS', 1), 3, 'order'
    n = 3
    yield 'swapped-layers', moved(lambda out: out.__setitem__(
        slice(2, 2 + 2 * n), out[2 + n:2 + 2 * n] + out[2:2 + n]), small), 3, 'order'
    yield 'missing-layer', moved(lambda out: out.__delitem__(slice(2, 2 + n)), small), 3, 'order'
    yield 'missing-last-layer', moved(lambda out: out.__delitem__(slice(2 + n, 2 + 2 * n)),
                                      small), 3, 'order'
    yield 'more-layers', moved(lambda out: out.extend(
        Section(s.type, s.content, 2, s.element) for s in out[2 + n:2 + 2 * n]), small), \
        3, 'order'
    yield 'head-with-layer', moved(lambda out: setattr(out[0], 'layer', 0)), 3, 'HEAD'
    yield 'keys-without-layer', changed(
        'KEYS', 0, lambda s: setattr(s, 'layer', NONE)), 3, 'order'
    yield 'padding-first', insert(0, Section('pADD')), 3, 'order'
    yield 'padding-with-layer', insert(3, Section('pADD', layer=0)), 3, 'pADD layer 0'
    yield 'padding-with-content', insert(2, Section('pADD', b'x')), 3, 'pADD'
    yield 'ancillary-first', insert(0, Section('qXYz', b'x')), 3, 'order'
    yield 'ancillary-before-tokens', insert(1, Section('qXYz', b'x')), 3, 'order'
    yield 'ancillary-early-layer', insert(2, Section('qXYz', b'x', 0)), 3, 'order'
    yield 'ancillary-other-layer', insert(3, Section('qXYz', b'x', 1)), 3, 'order'
    yield 'ancillary-late-layer', insert(6, Section('qXYz', b'x', 0)), 3, 'order'
    yield 'ancillary-after-index', stream(
        small(), index=True, late=[Section('qXYz', b'x')]), 3, 'order'
    yield 'repeated-index', stream(small(), index=True, late=[Section('iNDX')]), 3, 'order'


# keys of model and rope, and texts, that a later version may have: refused, and no damage (4.1)
OF_LATER = ('dtype', 'keys', 'rope-type', 'rope-unknown-key', 'unknown-key', 'unknown-among',
            'weights-dtype')


def heads():
    """HEAD that is no JSON, lacks a key, has one too many, or a value out of range."""
    def texts():
        text = canonical(head()).encode()
        yield 'empty', b''
        yield 'cut', text[:-1]
        yield 'array', b'[' + text + b']'
        yield 'more', text + b'x'
        yield 'utf8', text[:-1] + b',"note":"\xff"}'
        yield 'nan', text.replace(b'"norm_eps":1.0000000000000001e-05', b'"norm_eps":NaN')
        yield 'infinite', text.replace(b'1.0000000000000001e-05', b'1e999')
        yield 'repeated-key', text[:-1] + b',"dtype":"f32"}'
        yield 'long', text[:-1] + b',"note":"' + b'a' * (1 << 20) + b'"}'
        yield 'deep', b'{"a":' + b'[' * 100000 + b']' * 100000 + b'}'
        for name, value in unread():
            yield name, text[:-1] + b',"note":' + value + b'}'
        for key in ('dtype', 'keys', 'model', 'next_position'):
            yield f'without-{key}', edited(lambda h: h.pop(key))
        for key in ('attention_bias', 'rope', 'weights'):
            yield f'without-model-{key}', edited(lambda h: h['model'].pop(key))
        yield 'without-rope-theta', edited(lambda h: h['model']['rope'].pop('theta'))
        yield 'dtype', edited(lambda h: h.update(dtype='i8'))
        yield 'keys', edited(lambda h: h.update(keys='plain'))
        yield 'next-position', edited(lambda h: h.update(next_position=-1))
        yield 'next-position-2-32', edited(lambda h: h.update(next_position=1 << 32))
        yield 'rope-type', edited(lambda h: h['model']['rope'].update(type='spiral'))
        yield 'rope-yarn', edited(lambda h: h['model']['rope'].update(type='yarn', factor=4.0))
        yield 'rope-default-factor', edited(lambda h: h['model']['rope'].update(factor=4.0))
        for name, factors in ('few', [1.0]), ('none', []), ('0', [1.0, 0.0]), ('text', [1.0, 'x']):
            yield f'rope-factors-{name}', edited(lambda h: h['model'].update(head_width=4, rope={
                'type': 'longrope', 'theta': 10000.0, 'factors': factors,
                'original_max_position': 4096, 'attention_factor': 1.19}))
        yield 'rope-query-beta', edited(lambda h: h['model']['rope'].update(query_beta=0.1))
        yield 'rope-skip-0', edited(lambda h: h['model']['rope'].update(skip=0))
        yield 'rope-width-odd', edited(lambda h: h['model'].update(
            head_width=8, rope=dict(h['model']['rope'], width=3)))
        yield 'rope-width-all', edited(lambda h: h['model']['rope'].update(width=2))
        yield 'rope-window-theta', edited(lambda h: h['model']['rope'].update(window_theta=1e4))
        for name, window, whole in (
                ('0', 0, None), ('all-whole', 8, [0]), ('whole-outside', 8, [1]),
                ('whole-empty', 8, []), ('whole-without', None, [0]), ('whole-text', 8, ['x']),
                ('whole-number', 8, 0)):
            yield f'window-{name}', edited(lambda h: h['model'].update(
                {k: v for k, v in (('window', window), ('whole_layers', whole)) if v is not None}))
        for name, whole in ('twice', [0, 0]), ('descending', [1, 0]):
            yield f'window-whole-{name}', edited(lambda h: h['model'].update(
                layers=3, window=8, whole_layers=whole))
        for name, experts in (
                ('alone', {'experts': 8}), ('none', {'experts_chosen': 2}),
                ('0', {'experts': 0, 'experts_chosen': 0}),
                ('more', {'experts': 3, 'experts_chosen': 4}),
                ('1025', {'experts': 1025, 'experts_chosen': 2}),
                ('real', {'experts': 8.0, 'experts_chosen': 2}),
                ('text', {'experts': '8', 'experts_chosen': 2})):
            yield f'experts-{name}', edited(lambda h: h['model'].update(experts))
        for name in 'attention_softcap', 'logits_softcap':
            yield f'{name}-negative', edited(lambda h: h['model'].update({name: -1.5}))
        for name, starts in (
                ('empty', []), ('0', [0]), ('next', [9]), ('later', [3, 10]), ('twice', [3, 3]),
                ('descending', [5, 3]), ('real', [3.0]), ('text', ['3']), ('true', [True]),
                ('number', 3), ('object', {'3': 3}), ('negative', [-1, 3]),
                ('2-32', [3, 1 << 32]), ('1024', list(range(1, 1025)))):
            yield f'documents-{name}', edited(lambda h: h.update(
                next_position=2000 if name == '1024' else 9, documents=starts))
        yield 'rope-llama3', edited(lambda h: h['model']['rope'].update(type='llama3'))
        yield 'unknown-among', edited(lambda h: (       # what is wrong besides does not count
            h['model'].update(sliding_window=4096, layers=0), h.pop('next_position')))
        yield 'rope-unknown-key', edited(lambda h: h['model']['rope'].update(beta=1.5))
        for name, key, value in (
                ('unknown-key', 'sliding_window', 4096),
                ('architecture', 'architecture', 'a' * 32),
                ('layers-0', 'layers', 0), ('layers-4097', 'layers', 4097),
                ('layers-real', 'layers', 1.0), ('layers-text', 'layers', '1'),
                ('kv-heads-0', 'kv_heads', 0), ('query-heads-4097', 'query_heads', 4097),
                ('heads-do-not-divide', 'kv_heads', 2), ('head-width-1025', 'head_width', 1025),
                ('hidden-0', 'hidden', 0), ('ffn', 'ffn', (1 << 24) + 1),
                ('vocabulary', 'vocabulary', 1 << 64), ('tied', 'tied_embeddings', 1),
                ('mlp-bias-false', 'mlp_bias', False), ('multiplier-0', 'residual_multiplier', 0.0),
                ('norm-eps', 'norm_eps', 'small'), ('weights', 'weights', '0' * 31),
                ('weights-rule-1', 'weights_rule', 1), ('weights-rule-3', 'weights_rule', 3),
                ('tokenizer', 'tokenizer', 'g' * 32), ('weights-dtype', 'weights_dtype', 'f64')):
            yield name, edited(lambda h: h['model'].update({key: value}))

    for name, text in texts():
        out = sections(head(), [[[0]]], [0])
        out[0] = Section('HEAD', text, codec=1 if len(text) > 1000 else 0)
        yield f'head-{name}', stream(out), *((5, 'known') if name in OF_LATER else (3, 'HEAD'))


def edited(edit):
    h = head()
    edit(h)
    return canonical(h).encode()


def contents():
    def false(kind, layer, content):
        return with_content(kind, layer, lambda old: content), 3, \
            kind if layer == NONE else f'{kind} layer {layer}'

    def grown(kind, layer):
        return with_content(kind, layer, lambda old: old + bytes(4)), 3, \
            kind if layer == NONE else f'{kind} layer {layer}'

    yield 'tokens-empty', *false('TOKS', NONE, b'')
    yield 'tokens-uneven', *false('TOKS', NONE, bytes(21))
    # Layer 1 has rows 4 and 2: a reader must not get to KEYS with these.
    right = [2, 4, 2, 1, 2, 3, 8, 0, 7]
    for name, words in (
            ('lists-0', [0] + right[1:]), ('lists-3', [3, 4, 2, 0, 1, 2, 3, 8, 0, 7]),
            ('lists-huge', [0xffffffff] + right[1:]), ('rows-less', [2, 4, 1] + right[3:]),
            ('rows-more', [2, 4, 3] + right[3:]), ('rows-huge', [2, 0xffffffff, 7] + right[3:]),
            ('no-lists', [2]), ('descending', right[:5] + [1] + right[6:]),
            ('equal', right[:4] + [1] + right[5:]), ('at-next', right[:6] + [9] + right[7:]),
            ('beyond-next', right[:8] + [0xffffffff])):
        yield f'positions-{name}', *false('POSN', 1, u32s(words))
    yield 'positions-empty', *false('POSN', 1, b'')
    yield 'positions-uneven', *false('POSN', 1, u32s(right) + b'\0')
    for kind in ('KEYS', 'VALS'):
        yield f'{kind.lower()}-short', *false(kind, 1, bytes(70))
        yield f'{kind.lower()}-long', *grown(kind, 1)
        yield f'{kind.lower()}-empty', *false(kind, 1, b'')
    data = bytes(6 * 3 * 6 * 2)
    for name, content in (
            ('source-0', queries([5, 7, 8], data, 0)), ('source-3', queries([5, 7, 8], data, 3)),
            ('none', queries([], b'')), ('descending', queries([5, 8, 7], data)),
            ('equal', queries([5, 8, 8], data)), ('at-next', queries([5, 7, 9], data)),
            ('short', queries([5, 7, 8], data[:-2])),
            ('long', queries([5, 7, 8], data + b'\0\0')),
            ('gap', queries([5, 7, 8], data)[:63] + b'\1' + data),
            ('huge', u32s([1, 0xffffffff]) + bytes(56) + data), ('empty', b'')):
        yield f'queries-{name}', *false('oBSq', 1, content)
    own = bytes(2 * 6 * 2)
    for name, content in (
            ('none', queries([5, 7, 8], data, 2)),
            ('none-with-keys', queries([5, 7, 8], data + own, 2)),
            ('without-keys', queries([7, 8, 9], data, 2)),
            ('short', queries([7, 8, 9], data + own[:-2], 2)),
            ('long', queries([7, 8, 9], data + own + b'\0\0', 2)),
            ('of-all', queries([7, 8, 9], data + 3 * own, 2)),
            ('of-one-head', queries([7, 8, 9], data + own[:12], 2)),
            ('descending', queries([7, 10, 9], data + 2 * own, 2)),
            ('with-source-1', queries([7, 8, 9], data + own, 1)),
            ('huge', u32s([2, 0xffffffff]) + bytes(56) + data)):
        yield f'own-keys-{name}', *false('oBSq', 1, content)
    # Layer 1 has 6 rows and 3 query heads for each.
    values = [0.5] * 18
    for name, content in (
            ('nan', pack(values[1:] + [float('nan')], 'f32')),
            ('infinite', pack([float('inf')] + values[1:], 'f32')),
            ('negative', pack(values[:9] + [-0.5] + values[10:], 'f32')),
            ('minus-zero', pack(values[:9] + [-0.0] + values[10:], 'f32')),
            ('short', pack(values[1:], 'f32')), ('long', pack(values + [0.5], 'f32')),
            ('of-one-head', pack(values[:6], 'f32')), ('empty', b'')):
        yield f'mass-{name}', with_content('mASS', 1, lambda old: content, weighed), 3, \
            'mASS layer 1'
    one = [[values[:4]] * 3, [values[:2]] * 3]
    for name, content in (
            ('nan', paid('max', [one[0], [values[:2]] * 2 + [[0.5, float('nan')]]])),
            ('negative', paid('max', [[[-0.5] + values[:3]] * 3, one[1]])),
            ('minus-infinite', paid('max', [[[-float('inf')] + values[:3]] * 3, one[1]])),
            ('minus-zero', paid('max', [one[0], [[0.5, -0.0]] * 3])),
            ('short', paid('max', one)[:-4]), ('long', paid('max', one) + bytes(4)),
            ('no-label', paid('', one)[192:]), ('empty', b''), ('label', paid('h' * 192, one)),
            ('label-fill', paid('max\0x', one)), ('label-utf8', b'\xff' + paid('max', one)[1:]),
            ('of-one-head', paid('max', [one[0][:1], one[1][:1]]))):
        yield f'paid-{name}', with_content('pAID', 1, lambda old: content, paying), 3, \
            'pAID layer 1'
    yield 'paid-without-layer', changed(
        'pAID', 0, lambda s: setattr(s, 'layer', NONE), paying), 3, 'order'
    yield 'mass-without-layer', changed(
        'mASS', 0, lambda s: setattr(s, 'layer', NONE), weighed), 3, 'order'
    values = [0.5] * 6
    for name, content in (
            ('nan', scores('h2o', values[:5] + [float('nan')])),
            ('short', scores('h2o', values[:5])),
            ('long', scores('h2o', values + [0.5])), ('label', scores('h' * 192, values)),
            ('label-fill', scores('h2o\0x', values)), ('empty', b''),
            ('label-utf8', b'\xff' + scores('h2o', values)[1:])):
        yield f'scores-{name}', *false('sCOR', 1, content)
    yield 'logits-short', *false('LGTS', NONE, pack([0.0] * 10, 'f32'))
    yield 'logits-long', *grown('LGTS', NONE)


def events():
    """Each is false by itself; whether events agree is no question of the format."""
    whole, counts = event(1, 5, 5, 0, 2), [(5, 5)] * 4
    for name, log in (
            ('none', []), ('kind-0', [event(0, 5, 5, 0, 2)]), ('kind-4', [event(4, 5, 5, 0, 2)]),
            ('flag', [u32s([1, 5, 5, 2, 0, 2])]), ('no-rows-run', [event(1, 0, 0, 0, 2)]),
            ('no-layer', [event(1, 5, 5, 1, 1)]), ('layers-descend', [event(1, 5, 5, 1, 0)]),
            ('layer-3', [event(1, 5, 5, 0, 3)]), ('layers-counts', [
                event(1, 5, 5, 0, 3, [(0, 5)] * 6)]),
            ('eviction-of-rows-run', [whole, event(3, 5, 1, 0, 2, counts)]),
            ('eviction-without-counts', [whole, event(3, 5, 0, 0, 2)]),
            ('eviction-grows', [whole, event(3, 5, 0, 0, 2, [(5, 5)] * 3 + [(5, 6)])]),
            ('prefill-shrinks', [event(1, 5, 5, 0, 2, [(5, 4)] * 4)]),
            ('run-of-no-rows', [whole, event(1, 5, 0, 0, 2, counts)]),
            ('run-shrinks', [whole, event(1, 5, 3, 0, 2, [(5, 5)] * 3 + [(5, 4)])]),
            ('prefill-grows-more', [event(1, 5, 5, 0, 2, [(0, 6)] + [(0, 5)] * 3)]),
            ('decode-shrinks', [event(1, 4, 4, 0, 2), event(2, 5, 1, 1, 2, [(4, 5), (4, 3)])]),
            ('cut', [whole[:20]]), ('cut-later', [whole, whole[:8]]),
            ('counts-cut', [event(3, 5, 0, 0, 2, counts)[:-4]]),
            ('counts-long', [event(1, 5, 5, 0, 2, [(0, 5)] * 4), bytes(4)])):
        yield f'events-{name}', stream(logged(log)), 3, 'eVNt'
    yield 'repeated-events', moved(lambda out: out.insert(
        place(out, 'eVNt'), out[place(out, 'eVNt')]), logged), 3, 'order'
    yield 'swapped-events-logits', moved(lambda out: out.insert(
        place(out, 'LGTS'), out.pop(place(out, 'eVNt'))), logged), 3, 'order'
    yield 'events-with-layer', moved(lambda out: setattr(
        out[place(out, 'eVNt')], 'layer', 1), logged), 3, 'order'


def retrieval():
    """Keys of a retrieval head: two KV heads of width 6, five of nine tokens, 18 features."""
    def base():
        return beside(small(tools=TOOLS), (2, 6, 5), 18)

    def with_log():
        return beside(logged(), (2, 6, 5), 18)

    def false(name, edit):
        return f'head-keys-{name}', with_content('rHDk', NONE, edit, base), 3, 'rHDk'

    for name, patches in (
            ('name-upper-case', {31: b'F'}), ('name-blank', {0: b' '}),
            ('heads-huge', {32: u32s([0xffffffff])}), ('heads-less', {32: u32s([1])}),
            ('width-huge', {36: u32s([0xfffffffe])}), ('width-less', {36: u32s([4])}),
            ('tokens-less', {40: u32s([4])}), ('features-more', {44: u32s([33])}),
            ('features-huge', {44: u32s([0xffffffff])}), ('zero-48', {48: b'\1'}),
            ('zero-63', {63: b'\1'}), ('features-fill', {64 + 18 * 4: b'\1'}),
            ('feature-infinite', {64: pack([float('inf')], 'f32')}),
            ('feature-nan', {64 + 17 * 4: pack([float('nan')], 'f32')})):
        yield false(name, lambda old: patch(old, patches))
    for name, shape in (
            ('heads-0', (0, 6, 5)), ('heads-4097', (4097, 2, 1)), ('width-0', (2, 0, 5)),
            ('width-odd', (2, 5, 5)), ('width-1026', (1, 1026, 1)), ('tokens-0', (2, 6, 0)),
            ('tokens-10-of-9', (2, 6, 10))):
        content = head_keys(HEAD, shape, [], bytes(2 * shape[0] * shape[1] * shape[2]))
        yield f'head-keys-{name}', changed(
            'rHDk', NONE, lambda s: s.set(content, 1), base), 3, 'rHDk'
    yield false('short', lambda old: old[:-2])
    yield false('long', lambda old: old + bytes(2))
    yield false('front-only', lambda old: old[:64])
    yield false('cut', lambda old: old[:62])
    yield false('empty', lambda old: b'')
    # in a text of 2^32 - 2 tokens that 4096 heads of width 1024 have seen
    most = head_keys(HEAD, (4096, 1024, 0xfffffffe), [], b'')
    h = head(next_position=0xffffffff)
    yield 'head-keys-without-keys', stream(
        sections(h, [[[0]]], [0]) + [Section('rHDk', most, element=4)]), 3, 'rHDk'
    yield 'head-keys-element-size', with_header('rHDk', NONE, {12: b'\4'}, base), 3, 'rHDk'
    yield 'head-keys-with-layer', changed(
        'rHDk', NONE, lambda s: setattr(s, 'layer', 1), base), 3, 'order'
    yield 'repeated-head-keys', moved(lambda out: out.insert(
        place(out, 'rHDk'), out[place(out, 'rHDk')]), base), 3, 'order'
    yield 'swapped-head-keys-logits', swap('LGTS', NONE, 'rHDk', NONE, with_log), 3, 'order'
    yield 'swapped-head-keys-events', swap('rHDk', NONE, 'eVNt', NONE, with_log), 3, 'order'


def ends():
    def false(patches, index=True):
        return stream(small(), index, ends=patches)
    yield 'end-magic', false({0: b'k'}), 3, 'ENDS'
    yield 'total-size', false({8: u64(2816 + 64)}), 3, 'size'
    yield 'index-offset', false({16: u64(64)}), 3, 'ENDS'
    yield 'index-offset-none', false({16: u64(0)}), 3, 'ENDS'
    yield 'index-offset-false', false({16: u64(64)}, index=False), 3, 'ENDS'
    yield 'number-of-sections', false({24: u32s([9])}), 3, 'ENDS'
    yield 'end-zero', false({28: b'\1'}), 3, 'zero'
    yield 'end-longer', false({8: u64(2816 + 64), 64: bytes(64)}), 3, 'ENDS'
    yield 'stream-digest', false({32: bytes(16)}), 3, 'stream digest'
    yield 'logical-digest', false({48: bytes(16)}), 3, 'logical digest'
    yield 'end-compressed', stream(small(), ends_codec=1), 3, 'ENDS'
    yield 'index-offset-in-index', stream(small(), True, index_patch={8: u64(128)}), 3, 'iNDX'
    yield 'index-type', stream(small(), True, index_patch={32: b'TOKT'}), 3, 'iNDX'
    yield 'index-short', stream(small() + [Section('iNDX', bytes(32))]), 3, 'iNDX'
    data = stream(small(), index=True)
    yield 'bytes-after-ends', data + bytes(64), 3, 'after ENDS'
    yield 'byte-after-ends', data + b'\n', 3, 'after ENDS'
    yield 'two-snapshots', data + data, 3, 'after ENDS'


def truncated():
    out = small()
    data = stream(out)
    keys = 64 + sum(len(s.bytes()) for s in out[:place(out, 'KEYS', 1)])
    for name, size in (
            ('empty', 0), ('preamble', 40), ('after-preamble', 64), ('header', keys + 63),
            ('after-header', keys + 64), ('table', keys + 70), ('after-table', keys + 128),
            ('block', keys + 150), ('fill', keys + 128 + 100), ('before-keys', keys),
            ('before-ends', len(data) - 192), ('last-byte', len(data) - 1)):
        yield f'truncated-{name}', data[:size], 3, 'truncated'


def vectors():
    """(name, bytes, exit status, part of the message) of all that must be refused."""
    for group in (preamble, section_headers, sizes, tables, codecs, order, heads, contents,
                  events, retrieval, ends, truncated):
        yield from group()
