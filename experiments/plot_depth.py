#!/usr/bin/env python3
"""Scores by length of the prompt and depth of what is asked for: a heat map for each method.

    experiments/plot_depth.py [--rate R] [--task NAME] graded.jsonl ... PICTURE

Reads what grade.py prints: `score`, `depth` and `length`, and where they are there, `model`,
`task`, `method` and `rate`. Without `method` the file's name stands for it. There is a line of maps
for each model, task and rate; a method that has only one rate, such as the full cache, is in each
of its task. More than 12 different depths are put together in tenths. Questions without a depth are
left out, with a warning. PICTURE ends in .svg, .png or
.pdf; with .tsv it is the numbers.
"""

import argparse
import os
import sys

from intervals import read_graded
from kept_rows import labels
from picture import check_name, load_pyplot, save, write_whole
from task_records import TaskError, need, run

COLUMNS = ("model", "task", "method", "rate", "length", "depth", "n", "score")
MOST_MAPS = 200
MOST_DEPTHS = 12


def rate_of(value):
    """A number, also where a text has it; other texts, as `all` of the full cache, as they are."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def in_tenths(maps):
    """The same with depths of one tenth put together, where there are too many for a map."""
    if len({depth for cells in maps.values() for _, depth in cells}) <= MOST_DEPTHS:
        return maps
    result = {}
    for key, cells in maps.items():
        for (length, depth), scores in cells.items():
            place = length, round(depth * 10) / 10
            result.setdefault(key, {}).setdefault(place, []).extend(scores)
    return result


def read_scores(paths):
    """(model, task, rate, method) -> (length, depth) -> scores, and how many have no depth."""
    maps, without = {}, 0
    for path, name in zip(paths, labels(paths)):
        for key, row in read_graded(path).items():
            where = f"{path}: {key}"
            if row.get("depth") is None or row["score"] is None:
                without += 1
                continue
            depth = need(where, row, "depth", "a number")
            length = need(where, row, "length", "a number")
            if not 0 <= depth <= 1:
                raise TaskError(f"{where}: the depth {depth} is not between 0 and 1")
            rate = rate_of(row["rate"]) if row.get("rate") is not None else None
            run_of = tuple(str(row.get(field) or "") for field in ("model", "task"))
            method = str(row.get("method") or os.path.splitext(name)[0])
            cells = maps.setdefault((*run_of, rate, method), {})
            cells.setdefault((length, depth), []).append(row["score"])
    return maps, without


def check_wanted(maps, rates, tasks):
    for wanted, place, what in ((tasks, 1, "task"), (rates, 2, "rate")):
        for one in wanted or ():
            if one not in {key[place] for key in maps}:
                raise TaskError(f"--{what} {one}: there is no score with it")


def rank(rate):
    return isinstance(rate, float), rate if isinstance(rate, float) else str(rate)


def choose(maps, rates, tasks):
    """Lines of maps: (model, task) and (method, rate) -> cells. A method with one rate is in all of
    its task; where no method has more, there is one line."""
    check_wanted(maps, rates, tasks)
    found = {}
    for (model, task, rate, method), cells in maps.items():
        if not tasks or task in tasks:
            found.setdefault((model, task), {}).setdefault(method, {})[rate] = cells
    for key, methods in found.items():
        several = {rate for at in methods.values() if len(at) > 1 for rate in at}
        for shown in sorted(several & set(rates or several), key=rank) if several else [None]:
            yield key, {(method, rate): cells for method, at in methods.items()
                        for rate, cells in at.items() if len(at) == 1 or rate == shown}


def mean(scores):
    return 100 * sum(scores) / len(scores)


def fixed(rate):
    return f"{rate:g}" if isinstance(rate, float) else rate


def numbers(lines):
    yield COLUMNS
    for key, line in lines:
        for (method, rate), cells in line.items():
            for (length, depth), scores in sorted(cells.items()):
                yield (*key, method, "" if rate is None else fixed(rate), length, depth,
                       len(scores), f"{mean(scores):.6g}")


def draw_map(axes, title, cells, lengths, depths):
    """One map; a cell without questions stays empty."""
    import numpy
    image = numpy.full((len(depths), len(lengths)), numpy.nan)
    for (length, depth), scores in cells.items():
        image[depths.index(depth), lengths.index(length)] = mean(scores)
    drawn = axes.imshow(image, cmap="viridis", vmin=0, vmax=100, aspect="auto",
                        interpolation="nearest")
    if len(depths) * len(lengths) <= 150:
        for (y, x), value in numpy.ndenumerate(image):
            if value == value:
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8,
                          color="white" if value < 60 else "black")
    axes.set_facecolor("0.93")
    axes.set_title(title, fontsize=10)
    for values, set_ticks in ((lengths, axes.set_xticks), (depths, axes.set_yticks)):
        step = -(-len(values) // 12)
        set_ticks(range(0, len(values), step))
    axes.set_xticklabels([f"{length:g}" for length in lengths][::-(-len(lengths) // 12)],
                         rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticklabels([f"{100 * depth:.3g}" for depth in depths][::-(-len(depths) // 12)])
    return drawn


def draw(pyplot, lines):
    across = max(len(line) for _, line in lines)
    if len(lines) * across > MOST_MAPS:
        raise TaskError(f"{len(lines) * across} maps are too many for one picture: --task, --rate, "
                        "or a .tsv")
    places = {place for _, line in lines for cells in line.values() for place in cells}
    lengths, depths = (sorted(set(values)) for values in zip(*places))
    wide = min(6.0, max(2.1, 0.4 * len(lengths) + 0.6))
    high = min(5.0, max(1.6, 0.26 * len(depths) + 0.4))
    figure, grid = pyplot.subplots(len(lines), across, squeeze=False, layout="constrained",
                                   figsize=(1.8 + wide * across, 0.8 + (high + 0.6) * len(lines)))
    for (key, line), row in zip(lines, grid):
        for axes, ((method, rate), cells) in zip(row, line.items()):
            title = f"{method}, {100 * rate:g} %" if isinstance(rate, float) else method
            drawn = draw_map(axes, title, cells, lengths, depths)
            axes.tick_params(labelleft=axes is row[0])
        for axes in row[len(line):]:
            axes.set_axis_off()
        row[0].set_ylabel("\n".join([*filter(None, key), "depth, %"]), linespacing=1.4)
        row[0].set_xlabel("length, tokens")
    figure.colorbar(drawn, ax=grid.ravel().tolist(), label="mean score, %", aspect=30 * len(lines))
    return figure


def main():
    parser = argparse.ArgumentParser(description="heat maps of scores, depth x length")
    parser.add_argument("--rate", type=rate_of, action="append", metavar="R",
                        help="only this one; repeatable")
    parser.add_argument("--task", action="append", metavar="NAME", help="only this one; repeatable")
    parser.add_argument("files", nargs="+", metavar="graded.jsonl")
    parser.add_argument("picture", metavar="PICTURE", help="ends in .svg, .png, .pdf or .tsv")
    options = parser.parse_args()
    form = check_name(options.picture, (".tsv",))
    pyplot = load_pyplot() if form != ".tsv" else None
    maps, without = read_scores(options.files)
    if not maps:
        raise TaskError(f"{options.files[0]}: no question has a depth")
    lines = list(choose(in_tenths(maps), options.rate, options.task))
    if without:
        print(f"plot_depth.py: {without} questions without a depth are left out", file=sys.stderr)
    if pyplot is None:
        text = "".join("\t".join(map(str, line)) + "\n" for line in numbers(lines))
        data = text.encode("utf-8", "surrogateescape")
        write_whole(options.picture, lambda file: file.write(data))
    else:
        save(draw(pyplot, lines), options.picture)


if __name__ == "__main__":
    run(main)
