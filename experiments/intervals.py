#!/usr/bin/env python3
"""Means of scores with 95 % intervals, and what two methods differ by on the same questions.

    experiments/intervals.py [--by FIELD ...] graded.jsonl ...
    experiments/intervals.py --against B.jsonl A.jsonl

prints JSON lines. Intervals are the percentile bootstrap over questions: for means BCa is hardly
different, and it is not defined where all scores are equal. There the bootstrap is a point, so
figures that are only 0 or 1 also have Wilson's interval. A difference is that of the same question
in A and in B; `p` is the exact sign test over questions that differ, which for 0 and 1 is
McNemar's exact test.
"""

import argparse
import math
from itertools import groupby
from statistics import NormalDist

from task_records import UNGRADED, TaskError, need, read_objects, run, write_objects

DRAWS = 10000
LEVEL = 0.95
AT_ONCE = 1 << 20       # random numbers held at a time


def bootstrap(values, seed=1, draws=DRAWS, level=LEVEL):
    """(low, high) of the mean of values: percentiles over samples with replacement."""
    import numpy
    values = numpy.asarray(values, dtype=numpy.float64)
    if not len(values) or not numpy.isfinite(values).all():
        raise ValueError("bootstrap: there must be values, all finite")
    rng = numpy.random.RandomState(seed)        # whose numbers are the same in every version
    means, rows = [], max(1, AT_ONCE // len(values))
    for done in range(0, draws, rows):
        chosen = rng.randint(0, len(values), size=(min(rows, draws - done), len(values)))
        means.append(values[chosen].mean(axis=1))
    tail = 100 * (1 - level) / 2
    low, high = numpy.percentile(numpy.concatenate(means), [tail, 100 - tail])
    return float(low), float(high)


def wilson(hits, n, level=LEVEL):
    """Wilson's score interval of a share."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share = hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def sign_test(better, worse):
    """Two-sided exact p that signs come by chance, of so many of each."""
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2 ** n)


def summarize(scores, seed=1):
    """n, mean, its interval, and Wilson's where all scores are 0 or 1."""
    low, high = bootstrap(scores, seed)
    summary = {"n": len(scores), "mean": math.fsum(scores) / len(scores), "low": low, "high": high}
    if all(score in (0, 1) for score in scores):
        summary["wilson_low"], summary["wilson_high"] = wilson(sum(scores), len(scores))
    return summary


def compare(first, second, seed=1):
    """The difference first - second, question by question."""
    differences = [a - b for a, b in zip(first, second)]
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    low, high = bootstrap(differences, seed)
    return {"n": len(differences), "difference": math.fsum(differences) / len(differences),
            "low": low, "high": high, "better": better, "worse": worse,
            "equal": len(differences) - better - worse, "p": sign_test(better, worse)}


def read_graded(path):
    """The lines of a graded file: (id, row). Those with the metric none have no score."""
    rows = {}
    for number, row in read_objects(path):
        where = f"{path}:{number}"
        name = need(where, row, "id", "a text")
        unscored = row.get("metric") == UNGRADED and row.get("score") is None
        if not unscored and not 0 <= need(where, row, "score", "a number") <= 1:
            raise TaskError(f"{where}: the score {row['score']} is not between 0 and 1")
        if name in rows:
            raise TaskError(f"{where}: there is a score of {name} before")
        rows[name] = row
    return rows


def by_fields(rows, fields):
    """Summaries of rows that agree in the fields, in the order of these."""
    def key(row):
        return [str(row.get(field)) for field in fields]
    for _, group in groupby(sorted(rows, key=key), key=key):
        group = list(group)
        yield {field: group[0].get(field) for field in fields}, group


def main():
    parser = argparse.ArgumentParser(description="means of scores, with intervals")
    parser.add_argument("files", nargs="+", metavar="graded.jsonl")
    parser.add_argument("--by", nargs="+", default=["task", "length"], metavar="FIELD",
                        help="one line for each value of these (task length)")
    parser.add_argument("--against", metavar="B.jsonl", help="compare one file with this one")
    parser.add_argument("--seed", type=int, default=1, help="of the bootstrap (1)")
    options = parser.parse_args()
    if not 0 <= options.seed < 2 ** 32:
        parser.error(f"--seed {options.seed}: not between 0 and 2^32")
    if options.against and len(options.files) > 1:
        parser.error("--against compares one file with another")
    try:
        import numpy        # noqa: F401
    except ImportError:
        raise TaskError("the Python package numpy is needed") from None
    files = [read_graded(path) for path in options.files]
    rows = [row for graded in files for row in graded.values()]
    unscored = [row["id"] for row in rows if row.get("score") is None]
    if unscored:
        raise TaskError(f"{unscored[0]} has no score: its metric is none")
    results = []
    other = read_graded(options.against) if options.against else None
    if other is not None and other.keys() != files[0].keys():
        name = sorted(other.keys() ^ files[0].keys())[0]
        raise TaskError(f"{options.files[0]}, {options.against}: only one of them has {name}")
    for fields, group in by_fields(rows, options.by):
        scores = [row["score"] for row in group]
        if other is None:
            results.append({**fields, **summarize(scores, options.seed)})
        else:
            against = [other[row["id"]]["score"] for row in group]
            results.append({**fields, **compare(scores, against, options.seed)})
    write_objects(results)


if __name__ == "__main__":
    run(main)
