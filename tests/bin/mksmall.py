#!/usr/bin/env python3
"""Writes a small snapshot that holds much, when it is unpacked or counted: mksmall.py tokens N FILE, N MiB of token ids that are
zero, compressed; mksmall.py heads L G FILE, L layers of G KV heads without rows; mksmall.py logged L G FILE, the same with a row in each
and an event log; mksmall.py ids IDS FILE, the token ids that the file IDS lists;
mksmall.py text N SNAPSHOT FILE, the snapshot with N MiB of token ids as its text. With the independent writer."""

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
    section.content, section.blocks = bytes(MIB * int(mib)), [kvwrite.Block(bytes(MIB), 1, 1)] * int(mib)
    return section


def tokens(mib):
    yield from one_row(zeros(mib))


def text(mib, path):
    for s, content in sections.read(path):
        yield zeros(mib) if s.type == "TOKS" else kvwrite.Section(s.type, content, s.layer, s.element)


def ids(path):
    yield from one_row(kvwrite.Section("TOKS", kvwrite.u32s(list(map(int, pathlib.Path(path).read_text().split())))))


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


def main(what, *arguments):
    *how, path = arguments
    made = {"tokens": tokens, "heads": heads, "logged": logged, "ids": ids, "text": text}[what](*how)
    pathlib.Path(path).write_bytes(kvwrite.stream(list(made)))


if __name__ == "__main__":
    main(*sys.argv[1:])
