#!/usr/bin/env python3
"""merged - kv-merge, from the documents that it read

merged.py [--prefix N] [--drop-first N] MERGED.kv DOCUMENT.kv ...: rows, positions, values, tokens,
scores, gate scores and norms of the first must be those of the documents one after the other. Keys
are un-rotated and rotated again to the new position, in f64; what is stored may differ by its
rounding.
"""

import argparse
import sys

import numpy as np

from renumber import SUBNORMAL, UNIT, Wrong, embed, frequencies, read, turned

PER_ROW = "scores", "gate_scores", "value_norms"


def widths(snapshot, l):
    """Channels of layer l that are turned, and by which frequencies: a layer with a window may have
    a theta of its own, which nothing scales."""
    model, rope = snapshot.model, snapshot.model["rope"]
    if "window_theta" not in rope or l in model.get("whole_layers", []) or "window" not in model:
        return turned(model, l), frequencies(model)
    width = rope.get("width", model["head_width"])
    return turned(model, l), rope["window_theta"] ** (-2 * np.arange(width // 2) / width)


def check_head(new, olds, shifts, firsts, l, g):
    where, at = f"layer {l} KV head {g}", 0
    keys, values = (new.array(l, name, g).astype(float) for name in ("keys", "values"))
    positions = list(new.layers[l].positions[g])
    for old, shift, first in zip(olds, shifts, firsts):
        pos = np.array(old.layers[l].positions[g], dtype=np.int64)
        stay = pos >= first
        n = int(stay.sum())
        want = list(pos[stay] + shift)
        if positions[at:at + n] != want:
            raise Wrong(f"{where}: positions {positions[at:at + n]}, want {want}")
        width, freq = widths(old, l)
        base = old.model.get("latent_rank", 0)
        raw = embed(old.array(l, "keys", g).astype(float)[stay], -np.outer(pos[stay], freq), width,
                    base)
        moved = embed(raw, np.outer(want, freq), width, base)
        error = abs(keys[at:at + n] - moved)
        if (error > abs(moved) * UNIT[old.head["dtype"]] * 1.01 + SUBNORMAL).any():
            raise Wrong(f"{where}: keys off by up to {error.max():g}")
        if (values[at:at + n] != old.array(l, "values", g)[stay]).any():
            raise Wrong(f"{where}: other values")
        at += n
    if at != len(positions):
        raise Wrong(f"{where}: {len(positions)} rows, want {at}")


def check_numbers(new, olds, firsts, l, name):
    """Values of rows, which are there when all documents have them under one label."""
    have = [getattr(old.layers[l], name) for old in olds]
    got = getattr(new.layers[l], name)
    if None in have or len({one.label for one in have}) > 1:
        if got is not None:
            raise Wrong(f"layer {l}: there are {name}")
        return
    if got is None or got.label != have[0].label:
        raise Wrong(f"layer {l}: no {name}, or another label")
    for g in range(len(new.layers[l].positions)):
        def lists(values):
            return [values[g]] if name != "value_norms" else values[g]

        for r, mine in enumerate(lists(got.values)):
            want = [value for old, of, first in zip(olds, have, firsts)
                    for value, pos in zip(lists(of.values)[r], old.layers[l].positions[g])
                    if pos >= first]
            if list(mine) != want:
                raise Wrong(f"layer {l} KV head {g}: other {name}")


def check(new, olds, prefix, drop):
    shifts, firsts, starts, tokens, at = [], [], [], [], 0
    for i, old in enumerate(olds):
        left = prefix if i else 0
        shifts.append(at - left)
        firsts.append(left + drop if i else 0)
        starts += [at] * bool(i)
        starts += [start + at - left for start in old.head.get("documents", []) if start > left]
        tokens += old.tokens[left:]
        at += old.head["next_position"] - left
    want = {**olds[0].head, "next_position": at, "documents": starts}
    if not starts:
        del want["documents"]
    if new.head != want:
        raise Wrong(f"head {new.head}, want {want}")
    if list(new.tokens) != tokens:
        raise Wrong("other tokens")
    if new.logits is not None or new.events:
        raise Wrong("there are logits, or a log")
    for l, layer in enumerate(new.layers):
        for g in range(len(layer.positions)):
            check_head(new, olds, shifts, firsts, l, g)
        for name in PER_ROW:
            check_numbers(new, olds, firsts, l, name)
        if layer.queries or layer.mass:
            raise Wrong(f"layer {l}: queries or attention mass")


def main():
    parser = argparse.ArgumentParser(description="kv-merge")
    parser.add_argument("--prefix", type=int, default=0)
    parser.add_argument("--drop-first", type=int, default=0)
    parser.add_argument("snapshots", nargs="+", metavar="snapshot")
    args = parser.parse_args()
    new, *olds = map(read, args.snapshots)
    try:
        check(new, olds, args.prefix, args.drop_first)
    except Wrong as error:
        sys.exit(f"{args.snapshots[0]}: {error}")


if __name__ == "__main__":
    main()
