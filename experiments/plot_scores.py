#!/usr/bin/env python3
"""Score against what a method costs: rows kept, KV footprint, peak, bytes read.

    plot_scores.py [--tasks] [--nll] [--bytes] TABLE.tsv PICTURE ...

A row of pictures for each model and length, over all tasks, or with --tasks for each task; what is
the same for all methods and rates, or nearly, has no picture. The form is that of the name (.svg,
.png, .pdf). An open mark stands for more rows than were asked for. The dashed lines are the full
cache's score (grey) and 90 % of it (red), where critical.py looks for the least cost. Bars are the
95 % intervals of the table. Instead of the score there is the nll of the right answer (less is
better) with --nll, and where there is no score. With --bytes there is one picture: the score
against the bytes of keys and values, on a logarithmic scale, and the Pareto line, through what no
other point is as good as in fewer bytes.
"""

import argparse

from critical import KEEP, MEASURES
from picture import check_name, load_pyplot, save
from sweep_table import exceeds, read_table
from task_records import TaskError, run

LABELS = {"kept": "rows kept when the answer begins, %",
          "footprint": "KV footprint of the whole run, %", "peak": "peak memory, %",
          "read": "bytes of the cache read at each step, %",
          "bytes": "bytes of keys and values, % of the full cache's"}
MARKS = "osD^v<>PXph*"
HEIGHTS = {"score": ("score", "low", "high"), "nll": ("nll", "nll_low", "nll_high")}
GREY, RED = "0.45", "#d62728"
LEGEND_LINE = 0.23          # inches
TICKS = 1, 2, 5, 10, 20, 50, 100
SAME = 2        # % that methods differ by at most where a picture of it would be one upright line


def read_panels(path, by_task):
    """(model, length, task) -> method -> rows; only all tasks together where they are several."""
    panels = {}
    for row in read_table(path):
        key = row["model"], row["length"], row["task"]
        panels.setdefault(key, {}).setdefault(row["method"], []).append(row)
    if by_task:
        return panels
    together = {key[:2] for key in panels if key[2] == "all"}
    return {key: methods for key, methods in panels.items()
            if key[2] == "all" or key[:2] not in together}


def height_of(path, key, methods, nll):
    """Whether a panel shows scores or nll."""
    rows = [row for rows in methods.values() for row in rows]
    for name in ("nll",) if nll else ("score", "nll"):
        if all(row[name] is not None for row in rows):
            return name
    raise TaskError(f"{path}: {', '.join(key)}: there is no {'nll' if nll else 'score'}")


def draw(axes, method, rows, column, height, style):
    rows = sorted(rows, key=lambda row: row[column])
    x, y, low, high = ([row[name] for row in rows] for name in (column, *HEIGHTS[height]))
    error = [[max(0, a - b) for a, b in zip(y, low)], [max(0, b - a) for a, b in zip(y, high)]]
    axes.errorbar(x, y, error, label=method, markersize=5, linewidth=1.4, elinewidth=0.6,
                  capsize=2, zorder=2, **style)
    more = [row for row in rows if exceeds(row)]
    if more:
        axes.plot([row[column] for row in more], [row[HEIGHTS[height][0]] for row in more],
                  linestyle="", marker=style["marker"], markersize=5, color=style["color"],
                  markerfacecolor="white", zorder=3)


def draw_panel(axes, methods, column, height, styles):
    for method, rows in methods.items():
        if method == "full":
            full = rows[0][height]
            axes.axhline(full, color=GREY, linestyle="--", linewidth=1, label="full", zorder=1)
            if height == "score":
                axes.axhline(KEEP * full, color=RED, linestyle="--", linewidth=1, zorder=1,
                             label=f"{100 * KEEP:.0f} % of full")
        else:
            draw(axes, method, rows, column, height, styles[method])
    axes.set_xlabel(LABELS[column])
    axes.grid(alpha=0.3)


def pareto(points, less=False):
    """Those of the (cost, height) that are better than all that cost as much or less. less: a
    smaller height is better."""
    sign = -1 if less else 1
    line = []
    for cost, height in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not line or sign * height > sign * line[-1][1]:
            line.append((cost, height))
    return line


def draw_pareto(axes, methods, column, height):
    points = [(row[column], row[height]) for rows in methods.values() for row in rows]
    axes.step(*zip(*pareto(points, height == "nll")), where="post", color="0.8", linewidth=6,
              label="Pareto line", zorder=0)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xticks([], minor=True)
    axes.set_xlim(0.9 * min(cost for cost, _ in points), 110)


def measures_of(panels):
    """The columns in which methods differ, one of them at least."""
    def differs(column):
        for methods in panels.values():
            costs = [row[column] for method, rows in methods.items() if method != "full"
                     for row in rows]
            if costs and max(costs) - min(costs) > SAME:
                return True
        return False
    return [column for column in MEASURES if differs(column)] or MEASURES[:1]


def open_mark(panels):
    """What the legend says of open marks, where there are some."""
    from matplotlib.lines import Line2D
    rows = (row for methods in panels.values() for own in methods.values() for row in own)
    return [Line2D([], [], linestyle="", marker="o", markersize=5, color=GREY,
                   markerfacecolor="white", label="more rows than asked for")] \
        if any(exceeds(row) for row in rows) else []


def styles_of(panels, colours):
    """A mark and a colour for each method."""
    names = dict.fromkeys(method for methods in panels.values() for method in methods)
    names.pop("full", None)
    return {method: {"marker": MARKS[place % len(MARKS)],
                     "color": colours[(2 * place + place // 10) % 20]}
            for place, method in enumerate(names)}


def main():
    parser = argparse.ArgumentParser(description="scores against what methods cost")
    parser.add_argument("--tasks", action="store_true", help="a row of pictures for each task")
    parser.add_argument("--nll", action="store_true",
                        help="the nll of the right answer instead of the score")
    parser.add_argument("--bytes", action="store_true",
                        help="the bytes of the cache, and the Pareto line")
    parser.add_argument("table", metavar="TABLE.tsv")
    parser.add_argument("pictures", nargs="+", metavar="PICTURE")
    options = parser.parse_args()
    for path in options.pictures:
        check_name(path)
    pyplot = load_pyplot()
    panels = read_panels(options.table, options.tasks)
    heights = {key: height_of(options.table, key, methods, options.nll)
               for key, methods in panels.items()}
    styles = styles_of(panels, pyplot.get_cmap("tab20").colors)
    measures = ["bytes"] if options.bytes else measures_of(panels)
    figure, grid = pyplot.subplots(len(panels), len(measures), squeeze=False, sharey="row",
                                   figsize=(2.5 + (6.5 if options.bytes else 3.9 * len(measures)),
                                            4.6 * len(panels)),
                                   layout="constrained")
    for (key, methods), line in zip(panels.items(), grid):
        for axes, column in zip(line, measures):
            draw_panel(axes, methods, column, heights[key], styles)
            if options.bytes:
                draw_pareto(axes, methods, column, heights[key])
        what = "score, %" if heights[key] == "score" else "nll, nats per token"
        name = key[0] if key[1] == "own" else f"{key[0]}, {key[1]} tokens"
        line[0].set_ylabel(f"{name}, {key[2]}\n{what}")
    seen = {}
    for axes in grid.flat:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            seen.setdefault(label, handle)
    handles = [*seen.values(), *open_mark(panels)]
    figure.set_figheight(max(figure.get_figheight(), LEGEND_LINE * (len(handles) + 1)))
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    for path in options.pictures:
        save(figure, path)


if __name__ == "__main__":
    run(main)
