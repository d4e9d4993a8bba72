#!/usr/bin/env python3
"""Which rows an eviction has kept: layer x position, and KV head x position for every layer.

    experiments/plot_kept.py [--bins N] SNAPSHOT ... PICTURE
    experiments/plot_kept.py --panels [--title TEXT ...] [--mark POSITION=TEXT] SNAPSHOT ... .svg

PICTURE ends in .svg, .png or .pdf; snapshots stand side by side. With .tsv it is the numbers: for
each snapshot, layer, KV head and bin of positions how many of its rows are kept. --panels draws KV
head x position only, in a row of 900 x 220, without matplotlib.
"""

import argparse

import kept_panels
from kept_rows import edges, labels, need_package, read_kept
from picture import check_name, load_pyplot, save, write_whole
from task_records import TaskError, run

COLUMNS = ("snapshot", "layer", "head", "first", "last", "kept")
MOST_LINES = 3000       # of a picture: it has that many pixels or so


def binned(bins):
    """A fold for read_kept(): rows kept, u32 [G][bins]."""
    import numpy

    def fold(positions, tokens):
        cuts = numpy.array(edges(tokens, bins))
        return numpy.array([numpy.diff(numpy.searchsorted(numpy.asarray(one, numpy.int64), cuts))
                            for one in positions], numpy.uint32)
    return fold


def numbers(kept, names, bins):
    """Lines of the table."""
    yield COLUMNS
    for one, name in zip(kept, names):
        cuts = edges(len(one.tokens), bins)
        for index, layer in enumerate(one.layers):
            for g, head in enumerate(layer):
                for b, count in enumerate(head):
                    yield name, index, g, cuts[b], cuts[b + 1] - 1, int(count)


def write_numbers(path, kept, names, bins):
    lines = "".join("\t".join(map(str, line)) + "\n" for line in numbers(kept, names, bins))
    write_whole(path, lambda file: file.write(lines.encode("utf-8", "surrogateescape")))


def show(axes, image, cuts, lines):
    """image: [lines][bins] shares."""
    return axes.imshow(image, cmap="viridis", vmin=0, vmax=1, aspect="auto",
                       interpolation="nearest", extent=(cuts[0], cuts[-1], lines - 0.5, -0.5))


def draw_column(by_layer, by_head, one, name, bins):
    """The two maps of a snapshot."""
    import numpy
    cuts = edges(len(one.tokens), bins)
    counts = numpy.stack(one.layers)                                # [L][G][bins]
    shares = counts / numpy.diff(cuts)
    L, G = counts.shape[:2]
    by_layer.set_title(f"{name}\n{100 * one.share:.1f} % kept", fontsize=11)
    show(by_layer, shares.mean(axis=1), cuts, L)
    image = show(by_head, shares.reshape(L * G, -1), cuts, L * G)
    step = max(1, -(-L // 16))
    by_layer.set_yticks(range(0, L, step))
    by_head.set_yticks([G * i + (G - 1) / 2 for i in range(0, L, step)], range(0, L, step))
    for i in range(1, L):
        by_head.axhline(G * i - 0.5, color="white", linewidth=0.4, alpha=0.6)
    by_head.set_xlabel("position")
    margin = 0.012 * cuts[-1]       # so that sinks are not under the frame
    for axes in (by_layer, by_head):
        axes.set_xlim(-margin, cuts[-1] + margin)
        axes.locator_params(axis="x", nbins=5, integer=True)
    return image


def draw(pyplot, kept, names, bins):
    layers = max(len(one.layers) for one in kept)
    lines = max(len(one.layers) * one.heads for one in kept)
    if sum(len(one.layers) * one.heads for one in kept) > MOST_LINES or len(kept) > 12:
        raise TaskError("that is too much for one picture: fewer snapshots, or a .tsv")
    heights = (max(1.6, 0.07 * layers), max(2.2, 0.055 * lines))
    figure, grid = pyplot.subplots(
        2, len(kept), squeeze=False, layout="constrained", height_ratios=heights,
        figsize=(1.6 + 4.2 * len(kept), 1.6 + sum(heights)), sharex="col")
    for column, (one, name) in enumerate(zip(kept, names)):
        image = draw_column(grid[0][column], grid[1][column], one, name, bins)
    grid[0][0].set_ylabel("layer")
    grid[1][0].set_ylabel("layer, a line for each KV head")
    figure.colorbar(image, ax=grid[0].tolist(), pad=0.01,
                    label="share of the KV heads\nthat keep it")
    figure.colorbar(image, ax=grid[1].tolist(), label="share of the bin that is kept", pad=0.01)
    return figure


def write_panels(options, names):
    kept = [read_kept(path, binned(kept_panels.bins_of(len(names)))) for path in options.snapshots]
    mark, marked = options.mark or (None, None)
    if mark is not None and mark >= min(len(one.tokens) for one in kept):
        raise TaskError(f"--mark {mark}: the text has fewer positions")
    lines = kept_panels.svg(kept, options.title or names, mark, marked)
    whole = "".join(line + "\n" for line in lines).encode("utf-8", "replace")
    write_whole(options.picture, lambda file: file.write(whole))


def position_and_text(word):
    position, equals, text = word.partition("=")
    if not equals or not position.isdecimal():
        raise argparse.ArgumentTypeError(f"{word}: not POSITION=TEXT")
    return int(position), text


def parse():
    parser = argparse.ArgumentParser(description="which rows an eviction has kept, as maps")
    parser.add_argument("--bins", type=int, metavar="N",
                        help="at most so many bins of positions (400)")
    parser.add_argument("--panels", action="store_true",
                        help="a row of small maps, KV head x position: .svg, without matplotlib")
    parser.add_argument("--title", action="append", metavar="TEXT",
                        help="of a panel, one for each snapshot (the file's name)")
    parser.add_argument("--mark", type=position_and_text, metavar="POSITION=TEXT",
                        help="with --panels: mark a position, and say in the legend what is there")
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT")
    parser.add_argument("picture", metavar="PICTURE", help="ends in .svg, .png, .pdf or .tsv")
    options = parser.parse_args()
    if options.bins is not None and not 1 <= options.bins <= 4096:
        parser.error(f"--bins {options.bins}: not between 1 and 4096")
    if options.panels and options.bins:
        parser.error("--bins does not go with --panels, which have a width")
    if not options.panels and (options.title or options.mark):
        parser.error("--title and --mark are of --panels")
    if options.title and len(options.title) != len(options.snapshots):
        parser.error(f"--title: {len(options.title)}, and {len(options.snapshots)} snapshots")
    return options


def main():
    options = parse()
    form = check_name(options.picture, (".tsv",))
    names = labels(options.snapshots)
    if options.panels:
        if form != ".svg":
            raise TaskError(f"{options.picture}: --panels writes .svg")
        write_panels(options, names)
        return
    pyplot = load_pyplot() if form != ".tsv" else None
    need_package("numpy")
    bins = options.bins or 400
    kept = [read_kept(path, binned(bins)) for path in options.snapshots]
    if pyplot is None:
        write_numbers(options.picture, kept, names, bins)
    else:
        save(draw(pyplot, kept, names, bins), options.picture)


if __name__ == "__main__":
    run(main)
