#!/usr/bin/env python3
"""A scoring method as a stage of a pipe: SnapKV's attention, weighed by the length of the value, as
in VATP (Guo et al. 2024, "Attention Score is not All You Need for Token Importance Indicator in KV
Cache Reduction: Value Also Matters"). A row that is looked at and adds nothing is not missed.

    kv-prefill -m MODEL --observe 16 prompt.txt | python3 value_aware.py | kv-evict --rate 0.1

Needs NumPy, and the package kvsnapshot: beside this file where kvpipe is installed,
else PYTHONPATH names its folder."""

import kvsnapshot
import numpy as np

KERNEL = 7          # the score of a row is the mean over so many neighbours


def score(layer):
    """[G] arrays [S] for the rows of a layer: greater is kept first, inf always."""
    if layer.queries is None:
        raise ValueError("no observation queries: make the snapshot with kv-prefill --observe")
    scores = []
    for g, positions in enumerate(layer.positions):
        attention = layer.attention(g).sum(axis=1).mean(axis=0)     # [R][W][S], then [S]
        before = positions < layer.query_positions[0]               # rows of the window always stay
        pooled = np.convolve(np.append(attention[before], 0),
                             np.ones(KERNEL) / KERNEL)[KERNEL // 2:]
        length = abs(layer.values[g]).sum(axis=1)
        scores.append(np.full(len(positions), np.inf))
        scores[g][before] = pooled[:before.sum()] * length[before]
    return scores


kvsnapshot.stage(score, "value-aware")
