#!/usr/bin/env python3
"""How many of the rows that a step reads the step before has read, too, for each budget.

    experiments/adjacent_overlap.py -m MODEL --head DIR --runs runs.jsonl --table out.md \
        TASK.jsonl ...

The tokens of an answer are forced behind the prompt, so that all methods choose for the same steps:
kv-decode --retrieve --force --json. It is figure 6 (b) of SpeContext; agreement.md says how to read
it.
"""

import argparse
import sys

from answer_pipes import Pipes, add_answer_arguments, add_arguments, measure, named, several
from measure_table import (cell, check_table, md_table, summaries, with_all,
                           write_or_print_tables)
from task_records import TaskError, run

FIELDS = ("task", "budget", "method")
# name: (a pipeline to the snapshot that is read from, the words of kv-decode --retrieve)
METHODS = {
    "specontext": ("headed", "specontext head='$retriever'"),
    "specontext-near": ("headed", "specontext head='$retriever' sink=4 recent=16"),
    "fier": ("full | kv-quantize1b", "fier"),
    "quest": ("full | kv-index --pages", "quest"),
    "clusterkv": ("method_seen clusterkv", "cluster"),
    "shadowkv": ("method_seen shadowkv", "shadow"),
}
HEADED = 'headed() { shared prefill --retrieval-head "$retriever"; }'


def budget(text):
    value = int(text)
    if not 0 < value < 2 ** 31:
        raise ValueError
    return str(value)


def shell_text(names, budgets):
    """What is run for a question."""
    yield HEADED
    yield 'answer_ids >"$work/answer.ids"'
    for name in names:
        pipeline, retrieve = METHODS[name]
        yield f'{{ {pipeline}\n}} >"$work/rows.kv"'
        for one in budgets:
            yield f'kv-decode -q -m "$model" --ids --force "$work/answer.ids" --json ' \
                  f'--retrieve "{retrieve} budget={one}" "$work/rows.kv" >"$FOUND/{name}@{one}"'


def measures(of):
    """Of means that kv-decode prints. new: rows that the step before has not read, of all that
    there are, which is what has to be fetched."""
    if of["overlap"] is None:
        return {"overlap": None, "new": None}
    return {"overlap": of["overlap"], "new": of["rows"] * (1 - of["overlap"]) / of["of_rows"]}


def read_found(found, name, budgets):
    """The line of a method: `all` is of the layers that retrieve."""
    line = {"all": {}, "layers": {}, "steps": {}}
    for one in budgets:
        got = found[f"{name}@{one}"]["retrieval"]
        line["all"][one] = measures(got["retrieving"])
        line["steps"][one] = got["steps"]
        line["layers"][one] = [measures(layer)["overlap"] for layer in got["layers"]]
    return line


def extremes(layers):
    """The least and the greatest overlap of a layer."""
    there = [value for value in layers if value is not None]
    return {"least": min(there, default=None), "greatest": max(there, default=None)}


def rows_of(lines):
    for line in lines:
        for one, values in line["all"].items():
            yield {"task": line["task"], "budget": one, "method": line["name"],
                   "question": line["question"],
                   "measures": {**values, **extremes(line["layers"][one])}}


def percent(summary):
    return "-" if summary is None else f"{100 * summary['mean']:.0f}"


def md_lines(found, options):
    whole = list(found)[-1][0]
    names = list(dict.fromkeys(key[2] for key in found))
    yield "Of the rows that a step reads, the share that the step before has read, in %: mean " \
          "over questions [95 % interval], of the layers that retrieve; in brackets the least " \
          "and the greatest of a layer. new: rows that the step before has not read, in % of " \
          "all rows."
    yield ""
    heads = [text for one in options.budgets for text in (f"{one} rows", "new")]
    rows = []
    for name in names:
        row = [name]
        for one in options.budgets:
            of = found[whole, one, name]
            row += [f"{cell(of.get('overlap'), True)} ({percent(of.get('least'))} to "
                    f"{percent(of.get('greatest'))})" if "overlap" in of else "-",
                    cell({**of["new"], "n": 1}, True) if "new" in of else "-"]
        rows.append(row)
    yield from md_table(["method", *heads], rows)


def parse():
    parser = argparse.ArgumentParser(description="overlap of what adjacent steps read")
    add_arguments(parser)
    add_answer_arguments(parser)
    parser.add_argument("--head", metavar="DIR", help="the retrieval head of specontext")
    parser.add_argument("--budgets", type=several(budget), metavar="N,...",
                        default=["64", "128", "256", "512"],
                        help="rows of a KV head (64,128,256,512)")
    parser.add_argument("--methods", type=several(str), metavar="NAME,...", help="only these")
    options = parser.parse_args()
    for path in options.table:
        check_table(path)
    return options


def chosen_methods(options):
    names = options.methods or [name for name in METHODS
                                if options.head or METHODS[name][0] != "headed"]
    for name, method in named(names, METHODS).items():
        if method[0] == "headed" and not options.head:
            raise TaskError(f"--methods {name}: by which retrieval head? Give --head, too")
    return names


def main():
    options = parse()
    names = chosen_methods(options)
    pipes = Pipes(options, [f"retriever={options.head}"] if options.head else [])

    def measure_one(where, record, missing):
        found = pipes.run(where, record, "\n".join(shell_text(missing, options.budgets)))
        return {name: read_found(found, name, options.budgets) for name in missing}

    whats = {name: [*METHODS[name], options.budgets] for name in names}
    lines = measure(options, pipes, whats, measure_one)
    found = summaries(rows_of(with_all(lines)), FIELDS)
    write_or_print_tables(options.table, lambda: md_lines(found, options), found, FIELDS)


if __name__ == "__main__":
    sys.exit(run(main))
