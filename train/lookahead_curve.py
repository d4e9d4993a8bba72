"""The curve of a training run: a table with tabs, and a picture where matplotlib is there."""

import os
import sys

from lookahead_files import write_atomically, write_text

RATES = (0.05, 0.1, 0.2)
COLUMNS = ["step", "samples", "loss", "heldout_loss"] + [f"recall_{rate:g}" for rate in RATES] + [
    f"accuracy_{rate:g}" for rate in RATES]


def cell(value):
    """A number as the table has it; - where nothing was measured."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def write_curve(folder, rows):
    lines = ["\t".join(COLUMNS)] + ["\t".join(map(cell, row)) for row in rows]
    write_text(os.path.join(folder, "curve.tsv"), "\n".join(lines) + "\n")


def draw_curve(folder, rows):
    """curve.png: losses above, recall and accuracy below."""
    try:
        import matplotlib
    except ImportError:
        print("lookahead.py: no picture: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 7))
    steps = [row[0] for row in rows]
    for axis, columns in ((above, COLUMNS[2:4]), (below, COLUMNS[4:])):
        for name in columns:
            values = [row[COLUMNS.index(name)] for row in rows]
            points = [(step, value) for step, value in zip(steps, values) if value is not None]
            if points:
                axis.plot(*zip(*points), label=name.replace("_", " "))
        axis.grid(alpha=0.3)
        axis.legend()
    above.set_ylabel("KL divergence")
    below.set_ylabel("share")
    below.set_xlabel("step")
    write_atomically(os.path.join(folder, "curve.png"),
                     lambda path: figure.savefig(path, format="png", metadata={"Software": None}))
    pyplot.close(figure)
