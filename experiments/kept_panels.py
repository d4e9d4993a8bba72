"""One row of maps in SVG, KV head x position, for plot_kept.py --panels.

The picture is text that this file writes: the same snapshots give the same bytes on every machine,
which a picture of matplotlib does not from one version to the next.
"""

from html import escape

from kept_rows import edges
from task_records import TaskError

WIDTH, HEIGHT = 900, 220
LEFT, RIGHT, GAP = 62, 20, 28       # of the panels, and between two
TOP, PANEL, BETWEEN = 48, 108, 4    # panels: where they begin, height, gap between two layers
CELL = 2                            # width of a bin, where the text has as many positions
MOST_PANELS = 4
CARD, INK, QUIET = "#12161f", "#f4f4f0", "#9aa4b5"
MARK = "#ff8a5c"
STOPS = ((0x24, 0x2c, 0x3d), (0x2a, 0x6f, 0x80), (0x45, 0xb0, 0x8c), (0xb4, 0xd9, 0x4f),
         (0xfd, 0xe8, 0x4a))
LEVELS = 8                          # colours besides that of a bin of which nothing is kept
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def panel_width(panels):
    """In pixels: a whole number of bins."""
    return (WIDTH - LEFT - RIGHT - GAP * (panels - 1)) // panels // CELL * CELL


def bins_of(panels):
    if panels > MOST_PANELS:
        raise TaskError(f"--panels: {panels} snapshots, and {MOST_PANELS} fit into a row")
    return panel_width(panels) // CELL


def colour(level):
    """Of a level, 0 to LEVELS: between the two nearest of STOPS."""
    at = level * (len(STOPS) - 1) / LEVELS
    low = min(int(at), len(STOPS) - 2)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}"
                         for a, b in zip(STOPS[low], STOPS[low + 1]))


def level(count, size):
    """Of a bin that keeps count of size positions: 0 for none, LEVELS for all."""
    return -(-LEVELS * int(count) // size)


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(x, y, words, size=12, fill=QUIET, anchor="start", more=""):
    return (f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" fill="{fill}"'
            f' text-anchor="{anchor}"{more}>{words}</text>')


def rectangle(x, y, width, height, fill, more=""):
    return (f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}"'
            f' height="{number(height)}" fill="{fill}"{more}/>')


def lines_of(kept):
    """(y, height) of each KV head of each layer, from the top, without TOP."""
    L, G = len(kept.layers), kept.heads
    gap = min(BETWEEN, PANEL / (4 * L))
    height = (PANEL - gap * (L - 1)) / (L * G)
    return [(l * (G * height + gap) + g * height, height) for l in range(L) for g in range(G)]


def runs(levels):
    """(level, first, n) of neighbours that are alike, without those of level 0."""
    first = 0
    for i in range(1, len(levels) + 1):
        if i == len(levels) or levels[i] != levels[first]:
            if levels[first]:
                yield levels[first], first, i - first
            first = i


def cells(kept, cuts, x, width):
    """A path for each level."""
    paths, bins = {}, len(cuts) - 1
    heads = [head for layer in kept.layers for head in layer]
    for head, (y, height) in zip(heads, lines_of(kept)):
        levels = [level(n, b - a) for n, a, b in zip(head, cuts, cuts[1:])]
        for which, first, n in runs(levels):
            left, right = (round(width * i / bins) for i in (first, first + n))
            paths.setdefault(which, []).append(f"M{x + left} {number(TOP + y)}h{right - left}"
                                               f"v{number(height - 1)}h{left - right}z")
    for which in sorted(paths):
        yield f'<path fill="{colour(which)}" d="{"".join(paths[which])}"/>'


def title(words):
    """What stands after the last colon is what the model said."""
    name, colon, answer = words.rpartition(": ")
    if not colon:
        return escape(words)
    return f'<tspan fill="{QUIET}">{escape(name)}:</tspan> {escape(answer)}'


def panel(kept, words, cuts, x, width, mark):
    yield text(x, 32, title(words), 16, INK, more=' font-weight="600"')
    yield '<g shape-rendering="crispEdges">'
    for y, height in lines_of(kept):
        yield rectangle(x, TOP + y, width, height - 1, colour(0))
    yield from cells(kept, cuts, x, width)
    yield "</g>"
    tokens, low = len(kept.tokens), TOP + PANEL
    for position in range(0, tokens, tick(tokens)):
        at = x + width * position / tokens
        yield text(at, low + 17, position, 11, anchor="middle" if position else "start")
    if mark is not None:
        at = x + width * (mark + 0.5) / tokens
        yield triangle(at, TOP - 1, -1)
        yield triangle(at, low, 1)


def tick(tokens):
    """Between two numbers on the axis: 1, 2, 2.5 or 5 times a power of ten, at most six of them."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power // 2, 5 * power):
            if step and tokens <= 5 * step:
                return step
        power *= 10


def triangle(x, y, down):
    """Points up to y from below (1), or down to it."""
    return f'<path fill="{MARK}" d="M{number(x)} {y}l-4 {6 * down}h8z"/>'


def layers(kept):
    """Numbers of layers, at the left."""
    L, G = len(kept.layers), kept.heads
    places = lines_of(kept)
    step = max(1, -(-L // 8))
    for l in range(0, L, step):
        middle = places[l * G][0] + G * places[l * G][1] / 2
        yield text(LEFT - 8, TOP + middle + 4, l, 11, anchor="end")
    y = TOP + PANEL / 2
    yield text(22, y, "layer", anchor="middle", more=f' transform="rotate(-90 22 {number(y)})"')


def legend(kept, cuts, mark, marked):
    """At the bottom: what stands on the axes, the colours, the mark."""
    y, size = HEIGHT - 20, max(b - a for a, b in zip(cuts, cuts[1:]))
    heads = "a line for each KV head" if kept.heads > 1 else "one KV head"
    yield text(LEFT, y, f"position in the text; {heads}")
    cell = f"{size} rows" if size > 1 else "row"
    yield text(352, y, f"kept of a cell&#8217;s {cell}:")
    yield text(506, y, "none")
    for i in range(LEVELS + 1):
        yield rectangle(542 + 10 * i, y - 10, 10, 12, colour(i), ' shape-rendering="crispEdges"')
    yield text(638, y, "all")
    if mark is not None:
        yield f'<path fill="{MARK}" d="M692 {y - 8}l-4 7h8z"/>'
        yield text(702, y, escape(marked))


def svg(kept, titles, mark, marked):
    """The lines of the picture. mark: a position, or None; marked: what is there."""
    width, bins = panel_width(len(kept)), bins_of(len(kept))
    names = ", ".join(titles)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
           f' viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="{FONT}">')
    yield f"<title>{escape(names)}</title>"
    yield ("<desc>Which rows of the cache each method keeps: a line for each KV head, from left to"
           " right the positions of the text; bright where rows stay.</desc>")
    yield rectangle(0, 0, WIDTH, HEIGHT, CARD, ' rx="10"')
    yield from layers(kept[0])
    for i, (one, words) in enumerate(zip(kept, titles)):
        cuts = edges(len(one.tokens), bins)
        yield from panel(one, words, cuts, LEFT + i * (width + GAP), width, mark)
    yield from legend(kept[0], cuts, mark, marked)
    yield "</svg>"
