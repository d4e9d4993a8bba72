#!/usr/bin/env python3
"""Score against what a method costs: rows kept, KV footprint, peak, bytes read.

    plot_scores.py TABLE.tsv PICTURE ...

A row of pictures for each model and length, over all tasks; the form of a picture is that of its
name (.svg, .png, .pdf). Bars are the 95 % intervals of the table.
"""

import csv
import sys

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot

AXES = (("kept", "rows kept when the answer begins, %"),
        ("footprint", "KV footprint of the whole run, %"),
        ("peak", "peak memory, %"), ("read", "bytes of the cache read at each step, %"))
MARKS = "osD^v<>PXph*"


def read_table(path):
    """(model, length) -> method -> rows, of all tasks together where there are several."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    panels = {}
    for row in rows:
        key = row["model"], row["length"]
        several = any((r["model"], r["length"], r["task"]) == (*key, "all") for r in rows)
        if row["task"] == "all" or not several:
            panels.setdefault(key, {}).setdefault(row["method"], []).append(row)
    return panels


def draw(axes, method, rows, column, mark, colour):
    rows = sorted(rows, key=lambda row: float(row[column]))
    x, y, low, high = ([float(row[name]) for row in rows]
                       for name in (column, "score", "low", "high"))
    error = [[max(0, a - b) for a, b in zip(y, low)], [max(0, b - a) for a, b in zip(y, high)]]
    axes.errorbar(x, y, error, label=method, marker=mark, color=colour, markersize=5,
                  linewidth=1.4, elinewidth=0.6, capsize=2)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    panels = read_table(sys.argv[1])
    figure, grid = pyplot.subplots(len(panels), len(AXES), figsize=(18, 4.6 * len(panels)),
                                   squeeze=False, sharey=True)
    colours = matplotlib.colormaps["tab20"].colors
    names = list(dict.fromkeys(method for methods in panels.values() for method in methods))
    for (key, methods), line in zip(panels.items(), grid):
        for axes, (column, label) in zip(line, AXES):
            for method, rows in methods.items():
                place = names.index(method)
                draw(axes, method, rows, column, MARKS[place % len(MARKS)],
                     colours[(2 * place + place // 10) % 20])
            most = max(100, *(float(row[column]) for rows in methods.values() for row in rows))
            axes.set(xlabel=label, xlim=(0, 1.05 * most), ylim=(-4, 104))
            axes.grid(alpha=0.3)
        line[0].set_ylabel(f"{key[0]}, {key[1]} tokens: score, %")
    grid[0][-1].legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    figure.tight_layout()
    for path in sys.argv[2:]:
        figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
