#!/usr/bin/env python3
"""Which rows retrieval reads for one query, over those that full attention would choose.

    experiments/plot_rows_read.py --layer L --head G [--query I] [--budget N] a.kv b.kv ... PICTURE

Each snapshot has observation queries (kv-observe), and bounds of pages (kv-index --pages; Quest) or
keys in one bit (kv-quantize1b; FIER). The rows are found here, by the rules of kv-decode(1)
--retrieve, from the sections of the file: quest and fier, --reduce max. PICTURE ends in .svg, .png
or .pdf; with .tsv it is the rows.
"""

import argparse
import os
import sys

from kept_rows import RUN, labels, need_package
from picture import check_name, load_pyplot, save, write_whole
from task_records import TaskError, run

COLUMNS = ("snapshot", "choice", "row", "position", "also_best")
UNSUPPORTED = 5     # kvpipe(7), EXIT STATUS


def read_layer(path, options):
    """The layer's sections, and the model."""
    try:
        import kvsnapshot
        from kvsnapshot import container
    except ImportError as error:
        raise TaskError(f"{error} (kvsnapshot)", RUN) from None
    try:
        with open(path, "rb") as file:
            snapshot = container.read(file)
    except kvsnapshot.Bad as error:
        raise TaskError(f"{path}: {error}", error.status) from None
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}", RUN) from None
    if options.layer >= len(snapshot.layers):
        raise TaskError(f"{path}: --layer {options.layer} of {len(snapshot.layers)}")
    if options.head >= snapshot.model["kv_heads"]:
        raise TaskError(f"{path}: --head {options.head} of {snapshot.model['kv_heads']}")
    if snapshot.model.get("window"):
        raise TaskError(f"{path}: a model with sliding windows", UNSUPPORTED)
    return kvsnapshot.Layer(snapshot, options.layer), snapshot.layers[options.layer]


def softmax_max(logits, width, cap):
    """[R][n] products of queries and keys as one score for the query heads that share a KV head."""
    import numpy
    logits = logits / width ** 0.5
    if cap:
        logits = cap * numpy.tanh(logits / cap)
    if len(logits) == 1:
        return logits[0]
    weights = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).max(axis=0)


def best(scores, n):
    """The n greatest; of equal ones the lower rows."""
    import numpy
    return numpy.sort(numpy.argsort(-scores, kind="stable")[:n])


class Head:
    """A KV head and the queries [R][E] of one token, in f64."""

    def __init__(self, path, options):
        import numpy
        self.path, self.budget = path, options.budget
        layer, self.raw = read_layer(path, options)
        if layer.queries is None:
            raise TaskError(f"{path}: it has no queries: run kv-observe")
        self.model, self.dtype = layer.model, layer.head["dtype"]
        R = self.model["query_heads"] // self.model["kv_heads"]
        count = layer.queries.shape[1]
        if not -count <= options.query < count:
            raise TaskError(f"{path}: --query {options.query} of {count}")
        first = options.head * R
        self.queries = layer.queries[first:first + R, options.query].astype(numpy.float64)
        self.keys = layer.keys[options.head].astype(numpy.float64)
        self.positions = layer.positions[options.head].astype(numpy.int64)
        self.number = options.head
        last = int(layer.query_positions[options.query])
        if len(self.keys) and last < self.positions[-1]:
            raise TaskError(f"{path}: the query at position {last} does not see all rows: want one "
                            "of a token behind them (kv-observe)", UNSUPPORTED)
        if len(self.keys) <= self.budget:
            raise TaskError(f"{path}: {len(self.keys)} rows, and a budget of {self.budget}: all of "
                            "them are read")

    def score(self, logits):
        return softmax_max(logits, self.model["head_width"],
                           self.model.get("attention_softcap", 0))

    def truth(self, n):
        return best(self.score(self.queries @ self.keys.T), n)

    def quest(self):
        """The pages whose bounds allow most, and the last one."""
        import numpy
        from kvsnapshot.content import widen
        u, width = self.raw.pages.u, self.model["head_width"]
        bounds = widen(self.raw.pages.heads[self.number], self.dtype)
        bounds = bounds.reshape(-1, 2, width).astype(numpy.float64)
        last = (len(self.keys) - 1) // u
        most = numpy.maximum(self.queries[:, None] * bounds[:, 0], self.queries[:, None] *
                             bounds[:, 1]).sum(axis=2)[:, :last]
        pages = [last]
        if last:
            pages += list(best(self.score(most), max(1, self.budget // u) - 1))
        rows = [numpy.arange(p * u, min(p * u + u, len(self.keys))) for p in sorted(pages)]
        return f"Quest, pages of {u}", numpy.concatenate(rows)

    def fier(self):
        """The rows whose keys in one bit score best; those behind the last group by their keys."""
        import numpy
        from kvsnapshot.content import widen
        u, width = self.raw.bits.u, self.model["head_width"]
        data = numpy.frombuffer(self.raw.bits.heads[self.number], numpy.uint8)
        data = data.reshape(-1, width * (4 + u // 8))
        zero, scale = (widen(data[:, at:at + 2 * width].tobytes(), "f16").reshape(-1, 1, width)
                       .astype(numpy.float64) for at in (0, 2 * width))
        bits = numpy.unpackbits(data[:, 4 * width:].reshape(-1, width, u // 8), axis=2,
                                bitorder="little").transpose(0, 2, 1)
        about = (zero + bits * scale).reshape(-1, width)
        keys = numpy.concatenate([about, self.keys[len(about):]])
        return f"FIER, groups of {u}", best(self.score(self.queries @ keys.T), self.budget)

    def choices(self):
        """(name, rows that are read) of each index."""
        found = [choose() for index, choose in ((self.raw.pages, self.quest),
                                                (self.raw.bits, self.fier)) if index is not None]
        if not found:
            raise TaskError(f"{self.path}: it has neither pages nor keys in one bit")
        return found


def read_all(options):
    """A line for each choice: (snapshot, name, rows, the best as many rows, head)."""
    lines = []
    for path, name in zip(options.snapshots, labels(options.snapshots)):
        head = Head(path, options)
        lines += [(name, choice, rows, head.truth(len(rows)), head)
                  for choice, rows in head.choices()]
    return lines


def numbers(lines):
    import numpy
    yield COLUMNS
    for name, choice, rows, truth, head in lines:
        for row in rows:
            yield name, choice, row, head.positions[row], int(numpy.isin(row, truth))


def draw(pyplot, lines, options):
    """A strip for each choice: the best rows, and those that are read, right or wrong."""
    import numpy
    head = lines[0][-1]
    high = 0.5 * (len(lines) + 1)
    figure, axes = pyplot.subplots(figsize=(10, 1.3 + high), layout="constrained")
    ticks = ["full attention"]
    axes.eventplot(head.positions[head.truth(options.budget)], lineoffsets=0, linelengths=0.8,
                   linewidths=1.2, colors="black")
    for place, (_, choice, rows, truth, one) in enumerate(lines, 1):
        hit = numpy.isin(rows, truth)
        for chosen, colour in ((~hit, "#d95f02"), (hit, "#1b7837")):
            axes.eventplot(one.positions[rows[chosen]], lineoffsets=place, linelengths=0.8,
                           linewidths=1.2, colors=colour)
        ticks.append(f"{choice}: {100 * hit.mean():.0f} %")
    axes.set_yticks(range(len(ticks)), ticks)
    axes.set_ylim(len(ticks) - 0.4, -0.6)
    axes.set_xlim(-2, head.positions[-1] + 2)
    axes.set_xlabel("position")
    lines_of = [pyplot.Line2D([], [], color=colour, label=label) for colour, label in
                (("#1b7837", "among the best rows"), ("#d95f02", "not"))]
    axes.set_title(f"{options.budget} rows, layer {options.layer}, KV head {options.head}",
                   fontsize=10, loc="left")
    axes.legend(handles=lines_of, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8,
                frameon=False)
    return figure


def main():
    parser = argparse.ArgumentParser(description="rows that retrieval reads for one query")
    parser.add_argument("--layer", type=int, required=True, metavar="L", help="from 0")
    parser.add_argument("--head", type=int, default=0, metavar="G", help="KV head, from 0 (0)")
    parser.add_argument("--query", type=int, default=0, metavar="I",
                        help="of the snapshot's, from 0; -1 is the last (0)")
    parser.add_argument("--budget", type=int, default=64, metavar="N", help="rows (64)")
    parser.add_argument("snapshots", nargs="+", metavar="a.kv")
    parser.add_argument("picture", metavar="PICTURE", help="ends in .svg, .png, .pdf or .tsv")
    options = parser.parse_args()
    if options.layer < 0 or options.head < 0 or options.budget < 1:
        parser.error("--layer and --head are from 0, --budget from 1")
    form = check_name(options.picture, (".tsv",))
    need_package("numpy")
    pyplot = load_pyplot() if form != ".tsv" else None
    lines = read_all(options)
    if pyplot is None:
        text = "".join("\t".join(map(str, line)) + "\n" for line in numbers(lines))
        data = text.encode("utf-8", "surrogateescape")
        write_whole(options.picture, lambda file: file.write(data))
    else:
        save(draw(pyplot, lines, options), options.picture)


if __name__ == "__main__":
    sys.exit(run(main))
