#!/usr/bin/env python3
"""Compares what two evictions have kept: kept.py SCORED A B [TOLERANCE] prints how many rows of A
are not in B, or fails when a KV head of one has more rows than that of the other, or when such a
row's score in SCORED is further from that of a row which stands in its stead than TOLERANCE (0)
times the range of the head's scores."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "format"))
import kvread  # noqa: E402


def read(path):
    with open(path, "rb") as file:
        return kvread.read(file)


def main(scored, one, two, tolerance="0"):
    whole, a, b = read(scored), read(one), read(two)
    exchanged = 0
    for l, (w, x, y) in enumerate(zip(whole.layers, a.layers, b.layers)):
        for g, position in enumerate(w.positions):
            p, q = set(x.positions[g]), set(y.positions[g])
            assert len(p) == len(q), f"layer {l} head {g}: {len(p)} rows and {len(q)}"
            score = dict(zip(position, np.asarray(w.scores.values[g], np.float64)))
            finite = [s for s in score.values() if np.isfinite(s)]
            spread = max(finite) - min(finite) if finite else 0
            for i, j in zip(sorted(p - q, key=score.get), sorted(q - p, key=score.get)):
                gap = abs(score[i] - score[j])
                assert gap <= float(tolerance) * spread, \
                    f"layer {l} head {g}: {i}, not {j}: scores {score[i]} and {score[j]}"
                exchanged += 1
    print(exchanged)


if __name__ == "__main__":
    main(*sys.argv[1:])
