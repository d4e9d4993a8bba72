#!/usr/bin/env python3
"""How near the scores of methods come to what the answer looks at.

    experiments/score_agreement.py -m MODEL --runs runs.jsonl --table agreement.md TASK.jsonl ...

For each question the full cache answers, and the attention that the tokens of its answer pay to the
rows of the prompt, not pooled, is the truth. kv-diff --scores compares it with the scores of each
method: Kendall's tau, and the recall of the best rows; and with the rows that kv-evict keeps by
them: the share of the truth that is kept, and the regret. agreement.md says how to read them.
"""

import argparse
import shlex
import sys

from answer_pipes import Pipes, add_answer_arguments, add_arguments, measure, named, several
from measure_table import (cell, check_table, md_table, summaries, with_all,
                           write_or_print_tables)
from task_records import NAME, TaskError, run

FIELDS = ("task", "layers", "method")
# name: (a pipeline to a snapshot with scores, words for kv-evict), as examples/methods has them
HALF = '--recent "$(share_of "$(tokens)" 2)"'
SNAPKV = "full | kv-score --method snapkv --window"
METHODS = {
    "random": ("full | kv-score --method random", ""),
    "streamingllm": ("full | kv-score --method recent", ""),
    "knorm": ("full | kv-score --method knorm", ""),
    "keydiff": ("full | kv-score --method keydiff", ""),
    "h2o": ("full | kv-score --method h2o", HALF),
    "meanmass": ("full | kv-score --method meanmass", ""),
    "tova": ("full | kv-score --method tova", "--select layer"),
    "kvzip": ("repeated | kv-score --method kvzip", ""),
    "kvzip-plus": ("weighed | kv-score --method kvzip", ""),
    "kvcompose": ("again | kv-score --method kvcompose", "--policy composite"),
    "lagkv": ("full | kv-score --method lagkv", ""),
    "cur": ("full | kv-score --method cur", ""),
    "expectedattention": ("full | kv-score --method expected --epsilon 0.01",
                          "--policy ada-kvpress"),
    "capkv": ("full | kv-score --method capkv", ""),
    "leverage": ("full | kv-score --method leverage", ""),
    "noncausal": ("shared prefill --noncausal 0 | kv-score --method noncausal", ""),
    "compactor": ("shared prefill --noncausal 8 | kv-score --method compactor",
                  "--policy ada-kvpress"),
    "cake": ("shared prefill --observe 32 | kv-score --method cake", "--policy cake"),
    "triattention": ("full | kv-score --method triattention", ""),
    "rkv": ("full | kv-score --method rkv", ""),
    "kvzap": ("gated | kv-score --method kvzap", "--policy global --recent 16"),
    "criticalkv": (f"{SNAPKV} 64 --kernel 5", "--first-stage 0.5 --epsilon 0.0064"),
    "chunkkv": (f"{SNAPKV} 64 --kernel 5", "--select chunk=20"),
    "snapkv-8": (f"{SNAPKV} 8 --kernel 7 --pool max", ""),
    "snapkv-16": (f"{SNAPKV} 16 --kernel 7 --pool max", ""),
    "snapkv-32": (f"{SNAPKV} 32 --kernel 7 --pool max", ""),
    "snapkv-64": (f"{SNAPKV} 64 --kernel 7 --pool max", ""),
    "snapkv-32-avg5": (f"{SNAPKV} 32 --kernel 5 --pool avg", ""),
    "snapkv-8-k1": (f"{SNAPKV} 8 --kernel 1", ""),
    "snapkv-32-k1": (f"{SNAPKV} 32 --kernel 1", ""),
    "laq": ("drafted 0.1 | kv-score --method snapkv --kernel 7 --pool max", ""),
    "laq-k1": ("drafted 0.1 | kv-score --method snapkv --kernel 1", ""),
    "lookaheadkv": ("looked_ahead | kv-score --method lookahead --kernel 7 --pool max", ""),
    "lookaheadkv-k1": ("looked_ahead | kv-score --method lookahead --kernel 1", ""),
    "oracle-k7": ("answer_seen | kv-score --method snapkv --kernel 7 --pool max"
                  " $(window_of_answer)", ""),
}


def chosen_methods(options):
    """Those of --methods and those that --method defines."""
    names = options.methods
    if names is None:
        names = [name for name, (pipeline, _) in METHODS.items()
                 if (options.adapter or "looked_ahead" not in pipeline)
                 and (options.gate or "gated" not in pipeline)]
    chosen = named(names, METHODS)
    for text in options.method:
        name, equals, pipeline = text.partition("=")
        if not equals or not NAME.fullmatch(name) or not pipeline.strip():
            raise TaskError(f"--method {text}: not NAME=PIPELINE")
        if name in chosen:
            raise TaskError(f"--method {text}: there is a method {name} before")
        chosen[name] = pipeline, ""
    return chosen


def rate(text):
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return f"{value:g}"


def add_method_arguments(parser, rows):
    """Which methods, with what, at which rates. rows: those that a rate is a share of."""
    parser.add_argument("--gate", metavar="DIR", help="of KVzap for this model")
    parser.add_argument("--adapter", metavar="DIR", help="of LookaheadKV for this model")
    parser.add_argument("--methods", type=several(str), metavar="NAME,...", help="only these")
    parser.add_argument("--method", action="append", default=[], metavar="NAME=PIPELINE",
                        help="a further one: shell text that writes a snapshot with scores, "
                        "such as 'mine=full | kv-score --method snapkv --kernel 3'")
    parser.add_argument("--rates", type=several(rate), default=["0.05", "0.1", "0.2"],
                        metavar="R,...", help=f"of the {rows} (0.05,0.1,0.2)")
    parser.add_argument("--reference", metavar="NAME", default="snapkv-32",
                        help="the .tsv has the difference from this one (snapkv-32)")


def method_settings(options):
    """For Pipes."""
    return [f"{name}={value}" for name in ("adapter", "gate")
            if (value := getattr(options, name))]


def shell_text(methods, names, rates):
    """What is run for a question."""
    at = " ".join(f"--at {one}" for one in rates)
    yield 'answer_seen | kv-score --method snapkv --kernel 1 $(window_of_answer) ' \
          '-o "$work/truth.kv"'
    for name in names:
        pipeline, evict = methods[name]
        yield f'{{ {pipeline}\n}} >"$work/scored.kv"'
        yield f'kv-diff -q --json --scores {at} "$work/truth.kv" "$work/scored.kv" ' \
              f'>"$FOUND"/{shlex.quote(name)}'
        for one in rates:
            yield f'rate={one}'
            yield f'kv-evict -q {evict} --rate "$rate" "$work/scored.kv" | kv-diff -q --json ' \
                  f'--scores "$work/truth.kv" - >"$FOUND"/{shlex.quote(name)}@{one}'


def measures(scores, kept, rates):
    """Of a snapshot or a layer of kv-diff's objects: kept, a list for the rates."""
    found = {"tau": scores["tau"]}
    for number, one in enumerate(rates):
        found[f"recall@{one}"] = scores["recall"][number]
    for one, at in zip(rates, kept):
        found.update({f"{name}@{one}": at[name] for name in ("kept", "best", "regret")})
    return found


def read_found(found, name, rates):
    """The line of a method: everything, and each layer."""
    scores, kept = found[name], [found[f"{name}@{one}"] for one in rates]
    layers = [measures(layer, at, rates)
              for layer, *at in zip(scores["layers"], *(one["layers"] for one in kept))]
    return {"all": measures(scores, kept, rates), "layers": layers}


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def rows_of(lines, groups):
    """Rows for summaries(): all layers, and with `groups` each of so many parts of them."""
    for line in lines:
        row = {"task": line["task"], "method": line["name"], "question": line["question"]}
        yield {**row, "layers": "all", "measures": line["all"]}
        layers = line["layers"]
        if groups > len(layers):
            raise TaskError(f"--groups {groups}: the model has {len(layers)} layers")
        for number in range(groups):
            first, end = (len(layers) * n // groups for n in (number, number + 1))
            part = layers[first:end]
            yield {**row, "layers": f"{first}-{end - 1}",
                   "measures": {name: mean(layer[name] for layer in part) for name in part[0]}}


def md_lines(found, options):
    middle = options.rates[len(options.rates) // 2]
    at = [(f"{100 * float(one):g} %", f"recall@{one}") for one in options.rates]
    kept = [(f"{name} {100 * float(middle):g} %", f"{name}@{middle}")
            for name in ("kept", "regret")]
    columns = [("tau", "tau"), *at, *kept]
    yield "Mean over questions [95 % interval]. tau: Kendall's tau-b; " \
          f"{', '.join(head for head, _ in at)}: recall of the best rows, kept and regret, in %."
    yield ""
    for task in dict.fromkeys(key[0] for key in found):
        for layers in dict.fromkeys(key[1] for key in found):
            part = {key[2]: of for key, of in found.items() if key[:2] == (task, layers)}
            order = sorted(part, key=lambda name: -part[name][f"recall@{middle}"]["mean"])
            count = max(of["tau"]["n"] for of in part.values() if "tau" in of)
            yield f"## {task}, {'all layers' if layers == 'all' else f'layers {layers}'}, " \
                  f"{count} question{'s' * (count != 1)}"
            yield ""
            yield from md_table(
                ["method", *(head for head, _ in columns)],
                ([name, *(cell(part[name].get(of), of != "tau") for _, of in columns)]
                 for name in order))


def parse():
    parser = argparse.ArgumentParser(description="scores against what the answer looks at")
    add_arguments(parser)
    add_answer_arguments(parser)
    parser.add_argument("--question", choices=("inside", "after"), default="inside",
                        help="after: methods see the context alone, and the question comes behind "
                        "it (inside)")
    add_method_arguments(parser, "best rows")
    parser.add_argument("--groups", type=int, default=0, metavar="N",
                        help="also for each of N groups of layers, one behind the other")
    options = parser.parse_args()
    if options.groups < 0:
        parser.error("--groups is not below 0")
    for path in options.table:
        check_table(path)
    return options


def main():
    options = parse()
    methods = chosen_methods(options)
    pipes = Pipes(options, method_settings(options))

    def measure_one(where, record, names):
        text = "\n".join(shell_text(methods, names, options.rates))
        found = pipes.run(where, record, text)
        return {name: read_found(found, name, options.rates) for name in names}

    whats = {name: [*words, options.rates] for name, words in methods.items()}
    lines = measure(options, pipes, whats, measure_one)
    found = summaries(rows_of(with_all(lines), options.groups), FIELDS, options.reference)
    write_or_print_tables(options.table, lambda: md_lines(found, options), found, FIELDS)


if __name__ == "__main__":
    sys.exit(run(main))
