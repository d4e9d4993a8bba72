#!/usr/bin/env python3
"""How many of the rows that an answer looks at most retrieval finds, and what it reads for that.

    experiments/retrieval_recall.py -m MODEL --runs runs.jsonl --table recall.md TASK.jsonl ...

The queries are those of the tokens of an answer (kv-observe --ids-from), each of which retrieves as
kv-decode --retrieve does and is compared with full attention: kv-diff --retrieve. Figures are means
over queries, KV heads and the layers that retrieve. agreement.md says how to read them.
"""

import argparse
import shlex
import sys

from answer_pipes import Pipes, add_answer_arguments, add_arguments, measure, named, several
from measure_table import cell, check_table, md_table, summaries, with_all, write_tables
from picture import check_name, load_pyplot, save
from task_records import NAME, TaskError, run

FIELDS = ("task", "budget", "method")
# name: (a pipeline to a snapshot with an index and the queries of the answer, kv-diff --retrieve)
METHODS = {
    **{f"quest-{n}": (f"answer_seen | kv-index --pages --page {n}", "quest")
       for n in (8, 16, 32, 64)},
    "quest-eval-16": ("answer_seen | kv-index --pages", "quest-eval"),
    **{f"fier-{n}": (f"answer_seen | kv-quantize1b --group {n}", "fier")
       for n in (16, 32, 64, 128)},
    "clusterkv": ("method_seen clusterkv", "cluster"),
    "shadowkv": ("method_seen shadowkv", "shadow"),
}
LINES = ("-", "--", "-.", ":")


def budget(text):
    """Rows, or a share of those of the prompt."""
    share = text.endswith("%")
    value = float(text[:-1]) if share else int(text)
    if not 0 < value <= (100 if share else 2 ** 31 - 1):
        raise ValueError
    return f"{value:g}%" if share else str(value)


def chosen_methods(options):
    chosen = named(METHODS if options.methods is None else options.methods, METHODS)
    for text in options.method:
        name, _, words = text.partition("=")
        retrieve, _, pipeline = words.partition(":")
        if not NAME.fullmatch(name) or not NAME.fullmatch(retrieve) or not pipeline.strip():
            raise TaskError(f"--method {text}: not NAME=RETRIEVE:PIPELINE")
        if name in chosen:
            raise TaskError(f"--method {text}: there is a method {name} before")
        chosen[name] = pipeline, retrieve
    return chosen


def rows_of_budget(one):
    """Shell text for the number of rows."""
    if not one.endswith("%"):
        return one
    return f'"$(least_one "$(rate={one}; share_of "$(tokens)")")"'


def shell_text(methods, names, options):
    """What is run for a question."""
    yield 'least_one() { echo $(($1 > 1 ? $1 : 1)); }'
    for name in names:
        pipeline, retrieve = methods[name]
        yield f'{{ {pipeline}\n}} >"$work/indexed.kv"'
        for one in options.budgets:
            yield f'rows={rows_of_budget(one)}'
            yield f'kv-diff -q --json --retrieve "{retrieve} reduce={options.reduce} ' \
                  f'dense={options.dense_layers} budget=$rows" ' \
                  f'"$work/indexed.kv" >"$FOUND"/{shlex.quote(name)}@{one}'


def measures(of):
    """Of the means that kv-diff --retrieve prints; index and read as shares of full attention's."""
    if not of["of_bytes"]:
        return None
    return {"recall": of["recall"], "mass": of["mass"], "error": of["output_error"],
            "rows": of["rows"], "index": of["index_bytes"] / of["of_bytes"], "read": of["share"]}


def read_found(where, found, name, budgets):
    """The line of a method: `all` is of the layers that retrieve."""
    line = {"all": {}, "layers": {}}
    for one in budgets:
        got = found[f"{name}@{one}"]
        line["all"][one] = measures(got["retrieving"])
        if line["all"][one] is None:
            raise TaskError(f"{where}: no layer retrieves: --dense-layers {got['dense_layers']} of "
                            f"{len(got['layers'])}")
        line["layers"][one] = [measures(layer) for layer in got["layers"]]
    return line


def rows_of(lines):
    for line in lines:
        for one, values in line["all"].items():
            yield {"task": line["task"], "budget": one, "method": line["name"],
                   "question": line["question"], "measures": values}


def md_lines(found, options):
    tasks = list(dict.fromkeys(key[0] for key in found))
    whole = tasks[-1]
    yield "Means over questions [95 % interval], of the layers that retrieve. index and read: " \
          "bytes, in % of those of full attention; recall of the rows with the greatest true " \
          "scores and mass of the true softmax, in %; error: of the output, relative."
    yield ""
    for one in options.budgets:
        part = {key[2]: of for key, of in found.items() if key[:2] == (whole, one)}
        others = [task for task in tasks if task != whole]
        yield f"## {one} {'of the rows' if one.endswith('%') else 'rows'}"
        yield ""
        yield from md_table(
            ["method", "rows read", "index", "read", *(f"recall {task}" for task in tasks),
             f"mass {whole}", f"error {whole}"],
            ([name, *(f"{scale * of[what]['mean']:.1f}" for what, scale in
                      (("rows", 1), ("index", 100), ("read", 100))),
              *(cell(found[task, one, name].get("recall"), True) for task in [*others, whole]),
              cell(of.get("mass"), True), cell(of.get("error"), False)]
             for name, of in part.items()))


def draw(pyplot, found, options):
    """Mass and recall by the bytes read: a line for each method, a point for each budget."""
    task = list(found)[-1][0]
    figure, axes_of = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    names = list(dict.fromkeys(key[2] for key in found))
    families = list(dict.fromkeys(name.rstrip("-0123456789") for name in names))
    for name in names:
        family = name.rstrip("-0123456789")
        relatives = [other for other in names if other.rstrip("-0123456789") == family]
        style = LINES[relatives.index(name) % len(LINES)]
        part = sorted((found[task, one, name]["read"]["mean"], one) for one in options.budgets)
        for axes, what in zip(axes_of, ("mass", "recall")):
            axes.plot([100 * read for read, _ in part],
                      [100 * found[task, one, name][what]["mean"] for _, one in part], style,
                      color=f"C{families.index(family) % 10}", marker="o", markersize=3, label=name)
    for axes, what in zip(axes_of, ("mass of the true softmax, %", "recall of the best rows, %")):
        axes.set_xlabel("bytes read, % of full attention's")
        axes.set_ylabel(what)
        axes.set_xlim(left=0)
        axes.set_ylim(0, 102)
        axes.grid(color="0.92")
    figure.legend(*axes_of[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


def parse():
    parser = argparse.ArgumentParser(description="recall of retrieval, and the bytes it reads")
    add_arguments(parser)
    add_answer_arguments(parser)
    parser.add_argument("--budgets", type=several(budget), metavar="N,...",
                        default=["64", "5%", "10%", "20%"],
                        help="rows of a KV head, or with %% a share of the prompt's "
                        "(64,5%%,10%%,20%%)")
    parser.add_argument("--dense-layers", type=int, default=2, metavar="N",
                        help="the first N layers read all rows (2)")
    parser.add_argument("--reduce", choices=("max", "mean", "sum"), default="max",
                        help="over the query heads of a KV head (max)")
    parser.add_argument("--methods", type=several(str), metavar="NAME,...", help="only these")
    parser.add_argument("--method", action="append", default=[], metavar="NAME=RETRIEVE:PIPELINE",
                        help="a further one, such as 'pages-4=quest:answer_seen | kv-index --pages "
                        "--page 4'")
    parser.add_argument("--picture", action="append", default=[], metavar="FILE",
                        help="mass and recall by bytes read; ends in .svg, .png or .pdf; "
                        "repeatable")
    options = parser.parse_args()
    for path in options.picture:
        check_name(path)
    if options.dense_layers < 0:
        parser.error("--dense-layers is not below 0")
    for path in options.table:
        check_table(path)
    return options


def main():
    options = parse()
    methods = chosen_methods(options)
    pyplot = load_pyplot() if options.picture else None
    pipes = Pipes(options)

    def measure_one(where, record, names):
        found = pipes.run(where, record, "\n".join(shell_text(methods, names, options)))
        return {name: read_found(where, found, name, options.budgets) for name in names}

    settings = [options.budgets, options.dense_layers, options.reduce]
    whats = {name: [*words, *settings] for name, words in methods.items()}
    lines = measure(options, pipes, whats, measure_one)
    found = summaries(rows_of(with_all(lines)), FIELDS)
    write_tables(options.table, lambda: md_lines(found, options), found, FIELDS)
    for path in options.picture:
        save(draw(pyplot, found, options), path)
    if not options.table:
        print("\n".join(md_lines(found, options)))


if __name__ == "__main__":
    sys.exit(run(main))
