"""badjson - JSON that must be refused: values for HEAD, and the vectors of pROv. As in bad.py."""

import json

from good import TOOLS, small
from kvwrite import Section, stream


def unread():
    """Values that some parsers of JSON take, and others do not (4.1)."""
    yield 'integer-2-63', b'9223372036854775808'
    yield 'integer-less-2-63', b'[-9223372036854775809]'
    yield 'integer-long', b'1' * 400
    yield 'real-1e309', b'-1e309'
    yield 'depth-65', b'[' * 64 + b']' * 64
    yield 'text-zero', b'"a\\u0000b"'
    yield 'key-zero', b'{"\\u0000":1}'
    yield 'surrogate', b'"\\ud800x"'
    yield 'key-surrogates', b'{"\\udc00\\ud800":1}'
    yield 'utf8-surrogate', b'"\xed\xa0\x80"'
    yield 'utf8-overlong', b'"\xc0\xaf"'
    yield 'zero-behind-number', b'1\0'
    yield 'inner-repeated-key', b'{"a":1,"\\u0061":1}'


def vectors():
    """A line that is no JSON, lacks a key, or has one of another kind."""
    line = TOOLS.splitlines()[0]

    def texts():
        yield 'empty', b''
        yield 'without-end', line
        yield 'blank-line', TOOLS + b'\n'
        yield 'not-json', line[:-2] + b'\n'
        yield 'list', b'[' + line + b']\n'
        yield 'repeated-key', line[:-1] + b',"tool":"x"}\n'
        yield 'return-for-newline', TOOLS.replace(b'\n', b'\r')
        for key in 'options', 'tool', 'version':
            entry = json.loads(line)
            del entry[key]
            yield f'without-{key}', TOOLS + json.dumps(entry).encode() + b'\n'
            for name, value in ('text', 'x'), ('number', 1), ('object', {}), ('null', None):
                if name != ('object' if key == 'options' else 'text'):
                    entry = {**json.loads(line), key: value}
                    yield f'{key}-{name}', json.dumps(entry).encode() + b'\n'
        for name, value in unread():
            yield name, line.replace(b'512', value) + b'\n'
    for name, text in texts():
        yield f'provenance-{name}', stream(
            small(tools=text) if text else small() + [Section('pROv')], index=False), 3, 'pROv'
