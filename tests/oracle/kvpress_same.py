#!/usr/bin/env python3
"""Compares what a pipeline has kept with what a press of kvpress keeps.

    kvpress_same.py FIXTURE RATIO SNAPSHOT [--layers N] [--turned FULL] [--ids FILE]

FIXTURE is a file of kvpress_kept.py, which says what its keys mean. Exits with 1, and says where,
when a KV head has more or fewer rows, or keeps other positions than its list of close calls allows
to be exchanged. --turned: the positions of SNAPSHOT are renumbered; its rows must be those of FULL
by their values, and its keys the recorded ones. --ids: these tokens were generated.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "format"))
import kvread  # noqa: E402

KEY_TOLERANCE = 1e-3    # of keys whose length is about 10; angles of kvpress are in f32


def read(path):
    with open(path, "rb") as file:
        return kvread.read(file)


def positions(bits):
    bits = int(bits, 16)
    return [p for p in range(bits.bit_length()) if bits >> p & 1]


def compare_positions(place, ours, theirs, near):
    assert len(ours) == len(theirs), f"{place}: {len(ours)} rows, kvpress keeps {len(theirs)}"
    more, less = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if not set(more + less) <= set(near):
        raise AssertionError(f"{place}: {more}, kvpress keeps {less}; close calls: {near}")


def turned_from(place, snapshot, full, l, g, candidates):
    """Which of the candidates, in rising order, the renumbered rows are: by their values."""
    values, rest, found = full.array(l, "values", g), iter(candidates), []
    for row in snapshot.array(l, "values", g):
        p = next((p for p in rest if values[p].tobytes() == row.tobytes()), None)
        assert p is not None, f"{place}: row {len(found)} is not one that kvpress keeps"
        found.append(p)
    numbers = list(snapshot.layers[l].positions[g])
    assert numbers == list(range(len(found))), f"{place}: renumbered as {numbers}"
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("fixture")
    parser.add_argument("ratio", type=float)
    parser.add_argument("snapshot")
    parser.add_argument("--layers", type=int, help="compare only the first N layers")
    parser.add_argument("--turned", metavar="FULL")
    parser.add_argument("--ids", metavar="FILE")
    options = parser.parse_args()
    recorded = json.loads(pathlib.Path(options.fixture).read_text())
    run, = (run for run in recorded["runs"] if run["ratio"] == options.ratio)
    snapshot = read(options.snapshot)
    full = read(options.turned) if options.turned else None
    assert len(snapshot.layers) == len(run["kept"])
    for l, heads in enumerate(run["kept"][:options.layers]):
        for g, bits in enumerate(heads):
            place, theirs, near = f"layer {l} head {g}", positions(bits), run["near"][l][g]
            ours = snapshot.layers[l].positions[g]
            if full is not None:
                ours = turned_from(place, snapshot, full, l, g, sorted({*theirs, *near}))
            compare_positions(place, ours, theirs, near)
        if full is not None:
            off = np.abs(snapshot.array(l, "keys", 0)[-1] - run["keys"][l]).max()
            assert off <= KEY_TOLERANCE, f"layer {l}: the last key differs by {off}"
    if options.ids:
        ids = [int(word) for word in pathlib.Path(options.ids).read_text().split()]
        assert ids == run["ids"], f"generated {ids}, kvpress {run['ids']}"


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(str(error))
