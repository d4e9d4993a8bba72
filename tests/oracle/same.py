#!/usr/bin/env python3
"""Compares the caches of two snapshots: same.py A B [A B ...] prints for each pair the relative
difference (L2) of all keys, values and, where both have them, queries, or fails when tokens, next
position, rows or the positions of the queries differ."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "format"))
import kvread  # noqa: E402


def read(path):
    with open(path, "rb") as file:
        return kvread.read(file)


def numbers(snapshot, l, queries):
    """All keys and values of layer l, and its queries where these are asked for."""
    heads = range(len(snapshot.layers[l].positions))
    arrays = [snapshot.array(l, name, g).ravel() for name in ("keys", "values") for g in heads]
    if queries:
        arrays.append(kvread.widen(snapshot.layers[l].queries.data, snapshot.head["dtype"]))
    return np.concatenate(arrays).astype(np.float64)


def compare(one, two):
    a, b = read(one), read(two)
    where = f"{one} {two}"
    assert a.tokens == b.tokens, f"{where}: tokens differ"
    assert a.head["next_position"] == b.head["next_position"], f"{where}: next positions differ"
    difference = total = 0.0
    for l, (x, y) in enumerate(zip(a.layers, b.layers)):
        assert [list(p) for p in x.positions] == [list(p) for p in y.positions], \
            f"{where} layer {l}: rows differ"
        queries = x.queries and y.queries
        assert not queries or list(x.queries.positions) == list(y.queries.positions), \
            f"{where} layer {l}: the positions of the queries differ"
        p, q = numbers(a, l, queries), numbers(b, l, queries)
        difference += ((p - q) ** 2).sum()
        total += (p**2).sum()
    print(f"{where}: {(difference / total) ** 0.5:.1e}")


def main(paths):
    assert paths and len(paths) % 2 == 0, f"{len(paths)} snapshots are no pairs"
    for one, two in zip(paths[::2], paths[1::2]):
        compare(one, two)


if __name__ == "__main__":
    main(sys.argv[1:])
