#!/usr/bin/env python3
"""renumber - kv-evict --positions compact, from what --positions original left

renumber.py ORIGINAL.kv COMPACT.kv [...]: of each pair the second must hold the rows of the first,
numbered up to the next position, which is the number of rows of the longest head. Keys are
un-rotated and rotated again to the new position, in f64; what is stored may differ by its
rounding. All else must be equal.

renumber.py --keys LAYER TOLERANCE A.kv B.kv: the keys of one layer, compared.
"""

import argparse
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "format"))
sys.dont_write_bytecode = True

import kvread  # noqa: E402

# Half of the last bit of a number, as a share of it.
UNIT = {"f32": 2.0 ** -24, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
SUBNORMAL = 2.0 ** -25              # half of the least number of f16


class Wrong(Exception):
    pass


def read(path):
    with open(path, "rb") as file:
        return kvread.read(file)


def turned(model, l):
    """How many channels of layer l are turned."""
    rope = model["rope"]
    return 0 if (l + 1) % rope.get("skip", l + 2) == 0 else rope.get("width", model["head_width"])


def yarn(rope, freq):
    """Peng et al. 2023: the ramp lies between the pairs that make beta_fast and beta_slow turns."""
    pairs, trained = len(freq), rope["original_max_position"]
    low, high = (
        pairs * np.log(trained / (2 * np.pi * rope[beta])) / np.log(rope["theta"])
        for beta in ("beta_fast", "beta_slow"))
    if rope["truncate"]:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    share = ((np.arange(pairs) - low) / (high - low if high != low else 0.001)).clip(0, 1)
    return freq * (1 - share) + freq / rope["factor"] * share


def frequencies(model):
    """By the number of turns within the original context, as Llama 3.1's description has it."""
    rope = model["rope"]
    width = rope.get("width", model["head_width"])
    freq = float(rope["theta"]) ** (-2 * np.arange(width // 2) / width)
    if rope["type"] == "linear":
        return freq / rope["factor"]
    if rope["type"] == "longrope":
        return freq / np.array(rope["factors"])
    if rope["type"] == "yarn":
        return yarn(rope, freq)
    if rope["type"] == "llama3":
        turns = rope["original_max_position"] * freq / (2 * np.pi)
        share = (turns - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"])
        share = share.clip(0, 1)
        freq = freq * (share + (1 - share) / rope["factor"])
    return freq


def embed(x, angle, width, first=0):
    """x[rows][E] f64, the channels from `first` on turned by angle[rows][width/2]"""
    if width == 0:
        return x
    a, b = np.split(x[:, first:first + width], 2, axis=1)
    return np.hstack([x[:, :first], a * np.cos(angle) - b * np.sin(angle),
                      b * np.cos(angle) + a * np.sin(angle), x[:, first + width:]])


def check_layer(old, new, l, freq, unit):
    end = new.head["next_position"]
    for g, pos in enumerate(old.layers[l].positions):
        want = list(range(end - len(pos), end))
        if new.layers[l].positions[g] != want:
            raise Wrong(f"layer {l} KV head {g}: positions {new.layers[l].positions[g]}, "
                        f"want {want}")
        width, first = turned(old.model, l), old.model.get("latent_rank", 0)
        raw = embed(old.array(l, "keys", g).astype(float), -np.outer(pos, freq), width, first)
        keys = embed(raw, np.outer(want, freq), width, first)
        error = abs(new.array(l, "keys", g) - keys)
        if (error > abs(keys) * unit * 1.01 + SUBNORMAL).any():
            raise Wrong(f"layer {l} KV head {g}: keys off by up to {error.max():g}")
        if old.head_rows(l, "values", g) != new.head_rows(l, "values", g):
            raise Wrong(f"layer {l} KV head {g}: other values")
    if old.layers[l].mass != new.layers[l].mass or new.layers[l].queries is not None:
        raise Wrong(f"layer {l}: other attention received, or queries")


def check(old, new):
    freq = frequencies(old.model)
    longest = max(n for layer in old.layers for n in layer.rows)
    if new.head != {**old.head, "next_position": max(longest, 1)}:
        raise Wrong(f"head {new.head}")
    if old.tokens != new.tokens or old.logits != new.logits:
        raise Wrong("other tokens or logits")
    for l in range(len(old.layers)):
        check_layer(old, new, l, freq, UNIT[old.head["dtype"]])


def check_pairs(paths):
    if len(paths) % 2:
        sys.exit(f"{len(paths)} snapshots are no pairs")
    wrong = 0
    for old, new in zip(paths[::2], paths[1::2]):
        try:
            check(read(old), read(new))
        except Wrong as error:
            wrong += 1
            print(f"{old} {new}: {error}", file=sys.stderr)
    sys.exit(wrong > 0)


def main():
    parser = argparse.ArgumentParser(description="kv-evict --positions compact")
    parser.add_argument("snapshots", nargs="+", metavar="snapshot")
    parser.add_argument("--keys", nargs=2, metavar=("LAYER", "TOLERANCE"))
    args = parser.parse_args()
    if args.keys is None:
        check_pairs(args.snapshots)
        return
    layer, tolerance = int(args.keys[0]), float(args.keys[1])
    old, new = map(read, args.snapshots)
    for g in range(old.model["kv_heads"]):
        a, b = (s.array(layer, "keys", g).astype(float) for s in (old, new))
        if a.shape != b.shape or not abs(a - b).max() <= tolerance:
            sys.exit(f"KV head {g}: {a.shape}, {b.shape}, keys off by up to {abs(a - b).max():g}")


if __name__ == "__main__":
    main()
