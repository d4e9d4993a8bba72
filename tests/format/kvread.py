#!/usr/bin/env python3
"""kvread - read one KV snapshot, check every rule of formats/kv-snapshot.md, print it.

The reader is the package kvsnapshot (python/), which shares no code with libkvfile; here is the
program, and the names that tests use.

	kvread.py [--json] FILE|-      text dump, or JSON; exit 3: bad file, 5: unsupported, 1: I/O

As a module: read(file) returns a Snapshot or raises Bad (of which Unsupported is one kind).
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'python'))

from kvsnapshot.container import (Source, read, read_content, read_header,  # noqa: E402, F401
                                  read_preamble)
from kvsnapshot.content import ITEM_SIZE, Bad, Snapshot, widen  # noqa: E402, F401

import kvdump  # noqa: E402


def main(arguments):
    want_json = arguments[:1] == ['--json']
    names = arguments[want_json:]
    if len(names) != 1 or (names[0].startswith('-') and names[0] != '-'):
        print('usage: kvread.py [--json] FILE|-', file=sys.stderr)
        return 2
    try:
        if names[0] == '-':
            snapshot = read(sys.stdin.buffer)
        else:
            with open(names[0], 'rb') as file:
                snapshot = read(file)
    except OSError as error:
        print(f'kvread: {error}', file=sys.stderr)
        return 1
    except Bad as error:
        print(f'kvread: {names[0]}: {error}', file=sys.stderr)
        return error.status
    if want_json:
        print(json.dumps(kvdump.as_json(snapshot), sort_keys=True, default=list))
    else:
        print('\n'.join(kvdump.lines(snapshot)))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
