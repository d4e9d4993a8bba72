#!/usr/bin/env python3
"""Budgets for kv-evict --budgets FILE: how many rows each KV head has of the best of a model.

usage: mean_budgets.py --rate R --out FILE.tsv SNAPSHOT.kv ...

Each snapshot has scores (kv-score). Of each the best rows are taken, this share of all of them,
whichever layer and KV head they are of, as kv-evict --policy global does. FILE gets a line for each
layer: for each KV head the share of its rows that are among them, mean over the snapshots. So a
prompt that is evicted layer by layer (kv-prefill --evict budgets=FILE), when later layers are not
known yet, shares its rows among the heads nearly as if they were. Exit status: 0, 1 when a file
cannot be read or has no scores, 2 when something is refused.
"""

import argparse
import os
import sys

import numpy

from failures import BrokenFile, Refused, exit_status
from lookahead_files import write_text

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kvsnapshot  # noqa: E402


def read_scores(path):
    """f32 [L][G][T]"""
    try:
        layers = [layer.scores for layer in kvsnapshot.read(path).layers]
    except (OSError, kvsnapshot.Bad) as problem:
        raise BrokenFile(f"{path}: {problem}") from problem
    if any(scores is None for scores in layers):
        raise BrokenFile(f"{path}: there are no scores: kv-score makes them")
    try:
        return numpy.array(layers, numpy.float32)
    except ValueError:
        raise Refused(f"{path}: KV heads have different numbers of rows") from None


def shares(scores, rate):
    """Of each KV head the share of its rows that are among the best of all, f64 [L][G]."""
    best = numpy.argsort(-scores, axis=None, kind="stable")[:int(scores.size * rate + 1e-9)]
    kept = numpy.zeros(scores.size, bool)
    kept[best] = True
    return kept.reshape(scores.shape).mean(2)


def make_budgets(args):
    total = 0
    for path in args.snapshots:
        found = shares(read_scores(path), args.rate)
        if numpy.shape(total) not in ((), found.shape):
            raise Refused(f"{path}: {len(found)} layers of {found.shape[1]} KV heads, the first "
                          f"snapshot has {total.shape[0]} of {total.shape[1]}")
        total = total + found
    lines = ["\t".join(f"{share:.4f}" for share in layer) for layer in total / len(args.snapshots)]
    write_text(args.out, "\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description="budgets of KV heads: their mean share of the best rows of scored snapshots")
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT", help="snapshots with scores")
    parser.add_argument("--rate", type=float, required=True, help="share of all rows that stays")
    parser.add_argument("--out", required=True, help="the file for kv-evict --budgets")
    args = parser.parse_args()
    if not 0 < args.rate <= 1:
        parser.error("need --rate above 0, and 1 at most")
    return exit_status("mean_budgets.py", make_budgets, args)


if __name__ == "__main__":
    sys.exit(main())
