#!/usr/bin/env python3
"""Writes a small snapshot that holds much, when it is unpacked or counted: mksmall.py tokens N
FILE, N MiB of token ids that are zero, compressed; mksmall.py heads L G FILE, L layers of G KV
heads without rows; mksmall.py logged L G FILE, the same with a row in each and an event log;
mksmall.py ids IDS FILE, the token ids that the file IDS lists; mksmall.py text N SNAPSHOT FILE, the
snapshot with N MiB of token ids as its text; mksmall.py numbers N FILE, N MiB of numbers in each
section that has some, and of lines in the provenance. With the independent writer."""

import functools
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "formats" / "vectors"))
import good  # noqa: E402
import kvwrite  # noqa: E402
import sections  # noqa: E402

MIB = 1 << 20


def head(**options):
    return kvwrite.Section("HEAD", kvwrite.canonical(good.head(**options)).encode())


def zeros(mib):
    section = kvwrite.Section("TOKS")
    section.content = bytes(MIB * int(mib))
    section.blocks = [kvwrite.Block(bytes(MIB), 1, 1)] * int(mib)
    return section


def tokens(mib):
    yield from one_row(zeros(mib))


def text(mib, path):
    for s, content in sections.read(path):
        yield (zeros(mib) if s.type == "TOKS" else
               kvwrite.Section(s.type, content, s.layer, s.element))


def ids(path):
    listed = [int(word) for word in pathlib.Path(path).read_text().split()]
    yield from one_row(kvwrite.Section("TOKS", kvwrite.u32s(listed)))


def one_row(section):
    yield head(next_position=len(section.content) // 4)
    yield section
    yield kvwrite.Section("POSN", kvwrite.positions([[0]]), 0)
    for kind in "KEYS", "VALS":
        yield kvwrite.Section(kind, bytes(8), 0, 4)


def heads(layers, count, rows=0):
    layers, count = int(layers), int(count)
    yield head(layers=layers, query_heads=count, kv_heads=count, dtype="bf16")
    yield kvwrite.Section("TOKS", bytes(4))
    for layer in range(layers):
        yield kvwrite.Section("POSN", kvwrite.positions([list(range(rows))]), layer)
        for kind in "KEYS", "VALS":
            yield kvwrite.Section(kind, bytes(count * rows * 4), layer, 2, codec=rows)


def logged(layers, count):
    yield from heads(layers, count, rows=1)
    yield kvwrite.Section("eVNt", kvwrite.event(1, 1, 1, 0, int(layers)))


def numbers(mib):
    """One layer, one KV head of one channel, whose n rows have n observation queries, n clusters'
    labels, n exact chunks."""
    n, line = int(mib) * MIB // 4, b'{"options":{},"tool":"kv-prefill","version":"0.1.0"}\n'
    kvwrite.lz4 = functools.cache(kvwrite.lz4)          # of many blocks that are the same
    rows, zeros4, label = list(range(n)), bytes(4 * n), b"x".ljust(192, b"\0")
    yield head(dtype="bf16", head_width=1, vocabulary=n, next_position=n)
    yield kvwrite.Section("TOKS", zeros4, codec=1)
    keys = kvwrite.Section("KEYS", bytes(2 * n), 0, 2, 1)
    front = kvwrite.index_front(1, keys, 0) + kvwrite.u32s([1, n]) + zeros4
    clusters = kvwrite.fill(front) + bytes(2)
    front = kvwrite.index_front(1, keys, n, 1, n) + kvwrite.u32s(rows)
    factors = kvwrite.fill(front) + bytes(2 * n + 2 + 2 * n)
    for section in (("POSN", kvwrite.positions([rows]), 0, 4, 2),
                    ("oBSq", kvwrite.queries(rows, bytes(2 * n)), 0, 2, 2),
                    ("mASS", zeros4, 0, 4, 1), ("pAID", label + zeros4, 0, 4, 1),
                    ("sCOR", label + zeros4, 0, 4, 1), keys,
                    ("cLUS", clusters, 0, 2, 1), ("lOWR", factors, 0, 2, 2),
                    ("VALS", bytes(2 * n), 0, 2, 1),
                    ("LGTS", zeros4, kvwrite.NONE, 4, 1),
                    ("rHDk", kvwrite.head_keys("0" * 32, (1, 2, 1), [0.0] * n, bytes(4)),
                                                          kvwrite.NONE, 2, 1),
                    ("eVNt", kvwrite.event(1, 0, n - n // 6 + 1, 0, 1) +
                     kvwrite.event(1, n - 1, 1, 0, 1) * (n // 6 - 1), kvwrite.NONE, 4, 1),
                    ("pROv", line * (4 * n // len(line)), kvwrite.NONE, 1, 1)):
        yield section if section is keys else kvwrite.Section(*section)


def main(what, *arguments):
    *how, path = arguments
    made = {"tokens": tokens, "heads": heads, "logged": logged, "ids": ids, "text": text,
            "numbers": numbers}[what](*how)
    pathlib.Path(path).write_bytes(kvwrite.stream(list(made)))


if __name__ == "__main__":
    main(*sys.argv[1:])
