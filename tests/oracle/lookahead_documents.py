#!/usr/bin/env python3
"""Loss and recall of learned rows on one document, computed plainly from two snapshots.

usage: lookahead_documents.py KVZIP.kv LOOKAHEAD.kv POWER RATE ...

KVZIP.kv has KVzip's scores; LOOKAHEAD.kv those of kv-score --method lookahead --kernel 1, of the
same rows. Prints the loss for the first rate, and the recall for each. NumPy, one KV head at a
time.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "format"))
import kvread                                                               # noqa: E402


def heads(path):
    """[rows] of each KV head of each layer"""
    with open(path, "rb") as file:
        return [np.array(one, float) for layer in kvread.read(file).layers
                for one in layer.scores.values]


def main():
    truth, guess = heads(sys.argv[1]), heads(sys.argv[2])
    power, rates = float(sys.argv[3]), [float(text) for text in sys.argv[4:]]
    counted = np.isfinite(truth[0])
    truth, guess = [t[counted] for t in truth], [g[counted] for g in guess]
    everything, loss, recalls = np.sort(np.concatenate(truth))[::-1], None, []
    for rate in rates:
        least = everything[int(len(everything) * rate + 1e-9) - 1]
        weights, losses, hits, wanted = [], [], 0, 0
        for t, g in zip(truth, guess):
            best = set(np.flatnonzero(t >= least))
            weights.append(len(best) / len(t) * (1 - len(best) / len(t)))
            p, q = t ** power / (t ** power).sum(), g / g.sum()
            losses.append(sum(a * np.log(a / b) for a, b in zip(p, q) if a > 0))
            hits += len(best & set(np.argsort(-g, kind="stable")[:len(best)]))
            wanted += len(best)
        loss = np.average(losses, weights=weights) if loss is None else loss
        recalls.append(hits / wanted)
    print(loss, *recalls)


main()
