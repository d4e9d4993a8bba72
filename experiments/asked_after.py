#!/usr/bin/env python3
"""Right answers of methods that have evicted a document before its question is known.

    experiments/asked_after.py -m MODEL --runs runs.jsonl --table table.md TASK.jsonl ...

For each question and rate the scripts of examples/methods make the snapshot of the context, the
question comes behind it, and the model answers. A script is run with what others of the same
question have prefilled and observed (`shared` in common.sh), and all answers are decoded at once,
so that a pipeline costs a fifth of a second where a job of the workflow costs half. Words of
kv-decode that belong to a method are left out: no answer is so long that it would evict again.
"""

import argparse
import os
import shlex
import sys

from answer_pipes import Pipes, add_arguments, measure, several
from measure_table import check_table, md_table, summaries, with_all, write_or_print_tables
from metrics import grade
from score_agreement import rate
from sweep import METHODS as FOLDER
from task_records import TaskError, run

FIELDS = ("task", "rate", "method")
# Scripts that run the whole prompt, or most of its layers, and keep the share of its rows that was
# asked for. Not here: what retrieves or quantises, what is fused or goes on while decoding and
# keeps the same rows when the question comes (fastkv-fused, snapkv-fused, h2o-decode, tova-decode),
# prefill in chunks, other numbers of rows (pyramidinfer, simlayerkv, snapkv-per-query-head), and
# the oracle, who knows the answer.
METHODS = (
    "kvzip", "kvzip-plus", "kvcompose", "kvzap", "compactor", "leverage", "keydiff", "knorm",
    "lagkv", "cur", "expectedattention", "capkv", "triattention", "qfilter", "random",
    "streamingllm", "streamingllm-rotated", "duoattention", "prulong", "h2o", "meanmass", "snapkv",
    "adakv", "pyramidkv", "cake", "criticalkv", "chunkkv", "rkv", "tova", "lookaheadkv", "laq",
    "speckv", "fastkv", "gemfilter")
SHELL = r"""
# keep METHOD RATE NUMBER: a snapshot as the script leaves it, and behind the question
keep() {
	sh "$here/$1.sh" -i -m "$model" ${settings_file:+-C "$settings_file"} -c "$cache" -r "$2" \
		-o "$work/kept.kv" "$prompt" 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
	kv-info --json "$work/kept.kv" >"$FOUND/$3.info"
	kv-footprint -q --json "$work/kept.kv" >"$FOUND/$3.footprint"
	kv-prefill -q -m "$model" --ids -r "$work/kept.kv" -o "$work/asked/$3" "$QUESTION"
}
mkdir "$work/asked"
"""
DECODE = r"""
cd "$work/asked"
# lines of several snapshots, or the object of one, as a list
comma='$!s/$/,/'
[ "$(find . -type f | wc -l)" -gt 1 ] || comma=
kv-decode -q -m "$absolute" --json -n "$answer" -- * | sed "1s/^/[/; $comma; \$s/\$/]/" \
	>"$FOUND/answers"
"""


def shell_text(options, names):
    """What is run for a question."""
    yield f"settings_file={shlex.quote(os.path.abspath(options.conf)) if options.conf else ''}"
    yield f"absolute={shlex.quote(os.path.abspath(options.model))}"
    yield SHELL
    for name in names:
        for one in rates_of(name, options):
            yield f"keep {name} {one} {name}@{one}"
    yield DECODE


def rates_of(name, options):
    return ["1"] if name == "full" else options.rates


def read_found(record, found, key, answers):
    info, footprint = found[f"{key}.info"], found[f"{key}.footprint"]
    return {"score": grade(record, answers[key]), "kept": info["share_kept"],
            "footprint": footprint["footprint"]}


def rows_of(lines):
    for line in lines:
        for one, measures in line["all"].items():
            yield {"task": line["task"], "rate": one, "method": line["name"],
                   "question": line["question"], "measures": measures}


def with_wilson(found):
    """The same with Wilson's intervals where all values of a measure are 0 or 1."""
    for measures in found.values():
        for of in measures.values():
            of.update({end: of.get(f"wilson_{end}", of[end]) for end in ("low", "high")})
    return found


def score_cell(of):
    """A mean in % with its interval."""
    return f"{100 * of['mean']:.0f} ({100 * of['low']:.0f}-{100 * of['high']:.0f})"


def marked(of, one):
    """The same of a method at a rate; marked where it keeps a twentieth more than was asked for."""
    return score_cell(of["score"]) + " \\*" * (of["kept"]["mean"] > 1.05 * float(one))


def md_lines(found, options):
    yield "Right answers in % (95 % interval, Wilson's) at shares of the rows; the question " \
          "comes behind what a method has kept. Footprint in % of the full cache's, of the " \
          "prompt. \\*: more rows than were asked for, some are kept in any case."
    yield ""
    for task in dict.fromkeys(key[0] for key in found):
        whole = found.get((task, "1", "full"))
        n = max(of["score"]["n"] for key, of in found.items() if key[0] == task)
        told = f"; full cache {score_cell(whole['score'])}" if whole else ""
        yield f"## {task}, {n} question{'s' * (n != 1)}{told}"
        yield ""
        methods = list(dict.fromkeys(key[2] for key in found
                                     if key[0] == task and key[2] != "full"))
        methods.sort(key=lambda name: -sum(found[task, one, name]["score"]["mean"]
                                           for one in options.rates))
        yield from md_table(
            ["method", *(f"{100 * float(one):g} %" for one in options.rates), "footprint"],
            ([name, *(marked(found[task, one, name], one) for one in options.rates),
              f"{100 * found[task, options.rates[0], name]['footprint']['mean']:.0f}"]
             for name in methods))


def parse():
    parser = argparse.ArgumentParser(description="methods that do not see the question")
    add_arguments(parser)
    parser.add_argument("--conf", metavar="FILE",
                        help="settings of methods for this model (common.sh -C; "
                        "MODEL/kvpipe-methods.conf, where there is one)")
    parser.add_argument("--methods", type=several(str), metavar="NAME,...",
                        default=list(METHODS), help="scripts of examples/methods (34 of them)")
    parser.add_argument("--rates", type=several(rate), default=["0.05", "0.1", "0.2", "0.5"],
                        metavar="R,...", help="of the rows (0.05,0.1,0.2,0.5)")
    parser.add_argument("--reference", metavar="NAME", default="kvzip",
                        help="the .tsv has the difference from this one (kvzip)")
    options = parser.parse_args()
    options.answer, options.stop, options.question, options.cache = "right", "", "after", None
    for name in options.methods:
        if "/" in name or not os.path.exists(os.path.join(FOLDER, f"{name}.sh")):
            raise TaskError(f"--methods {name}: there is no such script in examples/methods")
    for path in options.table:
        check_table(path)
    return options


def read_text(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from None


def main():
    options = parse()
    pipes = Pipes(options)

    def measure_one(where, record, names):
        found = pipes.run(where, record, "\n".join(shell_text(options, names)))
        answers = {one["snapshot"]: one["text"] for one in found["answers"]}
        return {name: {"all": {one: read_found(record, found, f"{name}@{one}", answers)
                               for one in rates_of(name, options)}} for name in names}

    names = list(dict.fromkeys(["full", *options.methods]))
    settings = read_text(options.conf) if options.conf else ""
    whats = {name: [name, rates_of(name, options), settings] for name in names}
    lines = measure(options, pipes, whats, measure_one)
    found = with_wilson(summaries(rows_of(with_all(lines)), FIELDS, options.reference))
    write_or_print_tables(options.table, lambda: md_lines(found, options), found, FIELDS)


if __name__ == "__main__":
    sys.exit(run(main))
