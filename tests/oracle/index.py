#!/usr/bin/env python3
"""index - what kv-index has made, computed anew

index.py INDEXED.kv [clusters=N] [rounds=N] [converged] [rank=N] [outliers=N]

Pages, means of clusters and landmarks: checkindex.py. Here, for each layer:

clusters=N    clusters of each KV head; 0: one for 80 rows. How well keys and the directions of
              their means agree is compared with random clusters, and with k-means of this file.
converged     each key is in the cluster whose mean has the greatest cosine with it
rank=N        keys are turned back in f64; the error of the product must be that of NumPy's
              singular value decomposition, within the rounding of the factors
outliers=N    the chunks with the smallest least cosine between a key and the landmark
"""

import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "format")]
sys.dont_write_bytecode = True

import checkindex  # noqa: E402
import kvread  # noqa: E402
from renumber import UNIT, embed, frequencies  # noqa: E402


def need(condition, message):
    if not condition:
        sys.exit(message)


# ---- clusters ----

def unit(x):
    """Rows of length 1; those of length 0 stay."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length == 0, 1, length)


def agreement(keys, labels, count):
    """The sum of key . direction of the mean of its cluster."""
    sums = np.zeros((count, keys.shape[1]))
    np.add.at(sums, labels, keys)
    return (keys * unit(sums)[labels]).sum()


def k_means(keys, count, rounds, chance):
    """Labels, by seeds drawn from all rows."""
    lack, toward = np.linalg.norm(keys, axis=1), []
    for _ in range(count):
        toward.append(unit(keys[[chance.choice(len(keys), p=lack / lack.sum())]])[0])
        lack = np.minimum(lack, np.maximum(np.linalg.norm(keys, axis=1) - keys @ toward[-1], 0))
    toward = np.array(toward)
    for _ in range(rounds + 1):
        labels = (keys @ toward.T).argmax(axis=1)
        sums = np.zeros_like(toward)
        np.add.at(sums, labels, keys)
        toward = np.where(np.any(sums != 0, axis=1, keepdims=True), unit(sums), toward)
    return labels


def check_clusters(snapshot, l, want):
    found, dtype = snapshot.layers[l].clusters, snapshot.head["dtype"]
    for g in range(snapshot.model["kv_heads"]):
        where = f"layer {l} KV head {g}: "
        all_keys = snapshot.array(l, "keys", g)
        rows = max(len(all_keys) - found.sink, 0)
        need(found.ends[g] == len(all_keys), f"{where}rows up to {found.ends[g]}")
        means = checkindex.array(found.means[g], snapshot).astype(float)
        count = min(max(int(want["clusters"]) or len(all_keys) // 80, 1), rows)
        need(len(means) == count, f"{where}{len(means)} clusters, not {count}")
        if rows == 0:
            continue
        keys = all_keys[found.sink:].astype(float)
        labels = np.array(found.labels[g])
        if "converged" in want:
            cosines = unit(keys) @ unit(means).T
            off = (cosines.max(axis=1) - cosines[np.arange(rows), labels]).max()
            need(off < 8 * UNIT[dtype] + 1e-6, f"{where}a cosine is less than another by {off}")
        chance = np.random.default_rng(1)
        have = agreement(keys, labels, count)
        by_chance = agreement(keys, chance.integers(count, size=rows), count)
        other = agreement(keys, k_means(keys, count, int(want.get("rounds", 20)), chance), count)
        need(have >= by_chance - 1e-9 * abs(have), f"{where}{have}, by chance {by_chance}")
        need(have >= 0.94 * other, f"{where}{have}, other k-means {other}")


# ---- low rank ----

def check_factors(snapshot, l, want):
    low, dtype = snapshot.layers[l].low_rank, snapshot.head["dtype"]
    angle = np.outer(snapshot.layers[l].positions[0], frequencies(snapshot.model))
    heads = range(snapshot.model["kv_heads"])
    # of keys with an odd number of elements the last one is not turned
    x = np.hstack([embed(snapshot.array(l, "keys", g).astype(float), -angle, 2 * angle.shape[1])
                   for g in heads])
    x = x[:low.rows]
    rank = max(min(int(want["rank"]), x.shape[0], x.shape[1]), 1)
    need(low.rank == rank, f"layer {l}: rank {low.rank}, not {rank}")
    left = kvread.widen(low.left, dtype).reshape(low.rows, rank).astype(float)
    right = np.vstack([kvread.widen(r, dtype).reshape(-1, rank).astype(float) for r in low.right])
    if low.rows == 0:
        return
    values = np.linalg.svd(x, compute_uv=False)
    best, error = np.sqrt((values[rank:] ** 2).sum()), np.linalg.norm(x - left @ right.T)
    # both factors are rounded, independently
    rounding = 1.5 * UNIT[dtype] * np.linalg.norm(x) + 2e-6 * values[0]
    need(error <= np.hypot(best, rounding) * (1 + 1e-5),
         f"layer {l}: error {error}, of the best {best}, of rounding {rounding}")
    need(error >= best * (1 - 1e-9), f"layer {l}: error {error} is less than the least, {best}")
    # rounding may have made it equal to a negative one
    need((right.max(axis=0) >= -right.min(axis=0)).all(), f"layer {l}: the sign of a direction")


def round_to(values, dtype):
    """f32 numbers, rounded to dtype."""
    if dtype == "bf16":
        bits = values.view("<u4").astype("<u8")
        return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16 << 16).astype("<u4").view("<f4")
    return values.astype({"f16": "<f2", "f32": "<f4"}[dtype]).astype("<f4")


def check_landmarks(snapshot, l, want):
    low, dtype = snapshot.layers[l].low_rank, snapshot.head["dtype"]
    for g in range(snapshot.model["kv_heads"]):
        where = f"layer {l} KV head {g}: "
        keys = snapshot.array(l, "keys", g)[:low.rows].astype(float)
        chunks = keys.reshape(-1, low.chunk, keys.shape[1])
        means = (chunks.cumsum(axis=1)[:, -1] / low.chunk).astype("<f4")
        landmarks = checkindex.array(low.landmarks[g], snapshot)
        need((landmarks == round_to(means, dtype)).all(), f"{where}other landmarks")
        products = (chunks * landmarks[:, None]).sum(axis=2)
        cosines = products / np.linalg.norm(chunks, axis=2) / np.linalg.norm(
            landmarks.astype(float), axis=1)[:, None]
        least = cosines.astype("<f4").min(axis=1)
        count = min(int(want["outliers"]), len(chunks))
        exact = sorted(np.lexsort((np.arange(len(chunks)), least))[:count].tolist())
        need(low.exact[g] == exact, f"{where}exact chunks {low.exact[g]}, not {exact}")


def check_line(words):
    want = dict(word.partition("=")[::2] for word in words[1:])
    with open(words[0], "rb") as file:
        snapshot = kvread.read(file)
    checkindex.check(snapshot)
    for l in range(len(snapshot.layers)):
        if "clusters" in want:
            check_clusters(snapshot, l, want)
        if "rank" in want:
            check_factors(snapshot, l, want)
        if "outliers" in want:
            check_landmarks(snapshot, l, want)


def main():
    """Without arguments: a line for each snapshot on standard input."""
    lines = [sys.argv[1:]] if sys.argv[1:] else [line.split() for line in sys.stdin]
    for words in lines:
        try:
            check_line(words)
        except checkindex.Wrong as wrong:
            sys.exit(f"{words}: {wrong}")
        except SystemExit as wrong:
            sys.exit(f"{' '.join(words)}: {wrong}")
    need(lines, "nothing to compare")


if __name__ == "__main__":
    main()
