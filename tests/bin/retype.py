#!/usr/bin/env python3
"""Writes a snapshot with elements of another type, rounded to nearest: retype.py TYPE IN OUT. With
the independent reader and writer, because no program does that."""

import pathlib
import sys

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "format"), str(ROOT / "formats" / "vectors")]
import kvread  # noqa: E402
import kvwrite  # noqa: E402


def narrowed(data, old, new):
    wide = kvread.widen(data, old)
    if new != "bf16":
        return wide.astype({"f16": "<f2", "f32": "<f4"}[new]).tobytes()
    bits = wide.view("<u4")
    return (bits + 0x7fff + (bits >> 16 & 1) >> 16).astype("<u2").tobytes()


def main(new, path, out):
    with open(path, "rb") as file:
        snapshot = kvread.read(file)
    old, head, size = snapshot.head["dtype"], {**snapshot.head, "dtype": new}, kvread.ITEM_SIZE[new]
    sections = [kvwrite.Section("HEAD", kvwrite.canonical(head).encode()),
                kvwrite.Section("TOKS", kvwrite.u32s(snapshot.tokens), element=4)]
    for l, layer in enumerate(snapshot.layers):
        lists = layer.positions
        lists = lists[:1] if all(one == lists[0] for one in lists) else lists
        sections.append(kvwrite.Section("POSN", kvwrite.positions(lists), l))
        if layer.queries:
            queries = narrowed(layer.queries.data + layer.queries.own, old, new)
            sections.append(kvwrite.Section("oBSq", kvwrite.queries(
                list(layer.queries.positions), queries, layer.queries.source), l, size))
        for kind, data in ("KEYS", layer.keys), ("VALS", layer.values):
            sections.append(kvwrite.Section(kind, narrowed(data, old, new), l, size))
    pathlib.Path(out).write_bytes(kvwrite.stream(sections))


if __name__ == "__main__":
    main(*sys.argv[1:])
