#!/usr/bin/env python3
"""How far the end of the prompt is from a full run when tokens are selected at a layer.

    experiments/tsp_distance.py -m MODEL --runs runs.jsonl --table distance.md TASK.jsonl ...

For each layer and rate kv-prefill runs the prompt with token-selective propagation (--select)
and with GemFilter (--gemfilter-layer); their figures are |x - full| / |full| of the logits after
the last token (figure 3 of FastKV). `hidden` is what kv-tsp-layer prints, the squared distance
of the last hidden state, which there is not of GemFilter. agreement.md says how to read them.
"""

import argparse
import json
import os
import sys
import tempfile

from answer_pipes import Pipes, add_arguments, measure, several
from kept_rows import RUN, need_package
from measure_table import cell, check_table, md_table, summaries, with_all, write_tables
from picture import check_name, load_pyplot, save
from run_part import call, write_ids
from score_agreement import rate
from task_records import TaskError, run

FIELDS = ("task", "measure_of", "rate", "layer")
TSP, GEMFILTER, HIDDEN = "TSP", "GemFilter", "hidden"
RULES = {TSP: "tsp", GEMFILTER: "gemfilter"}       # kv-prefill --select


def read_logits(path):
    try:
        import kvsnapshot
    except ImportError as error:
        raise TaskError(f"{error} (kvsnapshot)", RUN) from None
    return kvsnapshot.read(path).logits


class Runs:
    """kv-prefill over one prompt."""

    def __init__(self, where, model, work, ids):
        self.where, self.work = where, work
        self.prompt = os.path.join(work, "prompt.ids")
        write_ids(self.prompt, ids)
        self.options = ["-q", "-m", model, "--ids"]
        self.full = self.logits()

    def logits(self, *options):
        out = os.path.join(self.work, "out.kv")
        call(self.where, ["kv-prefill", *self.options, *options, "-o", out, self.prompt])
        return read_logits(out)

    def distance(self, kind, one, layer):
        import numpy
        words = f"{RULES[kind]} layer={layer} rate={one}"
        got = self.logits("--select", words).astype(numpy.float64)
        full = self.full.astype(numpy.float64)
        return float(numpy.linalg.norm(got - full) / numpy.linalg.norm(full))

    def hidden(self, one, layers):
        """layer -> the squared distance of the last hidden state."""
        said = json.loads(call(self.where, ["kv-tsp-layer", *self.options, "--json", "--rate", one,
                                            "--max-layer", str(max(layers)), self.prompt]))
        return {row["layer"]: row["last"] for row in said["layers"]}


def name_of(kind, one, layer=""):
    return f"{kind} {one} {layer}"


def measure_question(pipes, options, where, record, names):
    """A line for each name."""
    lines = {}
    with tempfile.TemporaryDirectory() as work:
        ids = pipes.tokenizer.prompt_ids(record)
        runs = Runs(where, options.model, work, ids)
        for one in options.rates:
            if name_of(HIDDEN, one) in names:
                found = runs.hidden(one, options.layers)
                lines[name_of(HIDDEN, one)] = {"all": {str(layer): found[layer]
                                                       for layer in options.layers}}
            for kind in RULES:
                for layer in options.layers:
                    name = name_of(kind, one, layer)
                    if name in names:
                        lines[name] = {"all": {str(layer): runs.distance(kind, one, layer)}}
    return lines


def rows_of(lines):
    for line in lines:
        kind, one, _ = line["name"].split(" ")
        for layer, value in line["all"].items():
            yield {"task": line["task"], "measure_of": kind, "rate": one, "layer": int(layer),
                   "question": line["question"], "measures": {"distance": value}}


def md_lines(found, options):
    task = list(found)[-1][0]
    yield "|x - full| / |full| of the logits after the last token, mean over questions " \
          "[95 % interval]; hidden: squared distance of the state behind the final norm."
    yield ""
    for kinds in ((TSP, GEMFILTER), (HIDDEN,)):
        columns = [(kind, one) for kind in kinds for one in options.rates]
        yield from md_table(
            ["layer", *(f"{kind} {100 * float(one):g} %" for kind, one in columns)],
            ([str(layer), *(cell(found[task, kind, one, layer].get("distance"), False)
                            for kind, one in columns)] for layer in options.layers))


def draw(pyplot, found, options):
    """Logits by layer, and the hidden state."""
    task = list(found)[-1][0]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for number, one in enumerate(options.rates):
        for kind, axes, style in ((TSP, left, "-"), (GEMFILTER, left, "--"), (HIDDEN, right, "-")):
            means = [found[task, kind, one, layer]["distance"]["mean"] for layer in options.layers]
            label = TSP if kind == HIDDEN else kind
            axes.plot(options.layers, means, style, color=f"C{number}", marker="o", markersize=3,
                      label=f"{label} {100 * float(one):g} %")
    left.set_ylabel("distance of the logits, normalised")
    right.set_ylabel("squared distance of the last hidden state")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer that selects")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize=8)
    return figure


def parse():
    parser = argparse.ArgumentParser(description="distance from a full run, by layer")
    add_arguments(parser)
    parser.add_argument("--layers", type=several(int), required=True, metavar="L,...",
                        help="that select, from 0; not the last one of the model")
    parser.add_argument("--rates", type=several(rate), default=["0.1", "0.2", "0.4"],
                        metavar="R,...", help="of the tokens that go on (0.1,0.2,0.4)")
    parser.add_argument("--picture", action="append", default=[], metavar="FILE",
                        help="ends in .svg, .png or .pdf; repeatable")
    options = parser.parse_args()
    if min(options.layers) < 0:
        parser.error("layers are numbered from 0")
    for path in options.table:
        check_table(path)
    for path in options.picture:
        check_name(path)
    return options


def main():
    options = parse()
    options.layers.sort()
    need_package("numpy")
    pyplot = load_pyplot() if options.picture else None
    pipes = Pipes(options)
    whats = {name_of(kind, one, layer): []
             for kind in RULES for one in options.rates for layer in options.layers}
    whats.update({name_of(HIDDEN, one): options.layers for one in options.rates})
    lines = measure(options, pipes, whats, lambda where, record, names:
                    measure_question(pipes, options, where, record, names))
    found = summaries(rows_of(with_all(lines)), FIELDS)
    write_tables(options.table, lambda: md_lines(found, options), found, FIELDS)
    for path in options.picture:
        save(draw(pyplot, found, options), path)
    if not options.table:
        print("\n".join(md_lines(found, options)))


if __name__ == "__main__":
    sys.exit(run(main))
