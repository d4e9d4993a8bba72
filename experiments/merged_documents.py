#!/usr/bin/env python3
"""Questions about documents that were prefilled apart and merged (kv-merge, kv-recompute).

    experiments/merged_documents.py -m MODEL --runs runs.jsonl --table merged.md TASK.jsonl ...

The context of each question is cut into pieces of equal length, the documents. Each is prefilled
behind the same first tokens (the beginning of the chat template), the snapshots are merged, and the
question comes behind what each way makes of them. `full` is the same text prefilled as a whole. The
score of the answer is the task's; nll is that of the first right answer, forced.
"""

import argparse
import shlex
import sys

from answer_pipes import Pipes, add_arguments, measure, named, several
from measure_table import (cell, check_table, md_table, summaries, with_all,
                           write_or_print_tables)
from metrics import grade
from task_records import NAME, TaskError, run

FIELDS = ("task", "documents", "method")
# name: shell text that writes a snapshot; apart: the documents, merged
METHODS = {
    "full": "whole",
    "apart": "apart",
    "apart-drop-4": "apart --drop-first 4",
    "epic-16": "apart | again --first 16",
    "epic-32": "apart | again --first 32",
    "cacheblend-5%": "apart | again --rate 0.05",
    "cacheblend-15%": "apart | again --rate 0.15",
    "cacheblend-30%": "apart | again --rate 0.3",
    "cacheblend-values-15%": "apart | again --rate 0.15 --by values",
    "random-15%": "apart | again --rate 0.15 --by random",
    "epic-16+cacheblend-15%": "apart | again --first 16 --rate 0.15",
    "full-kvzip": "whole | kvzip 0.2",
    "kvzip-apart": "each kvzip 0.2; apart",
    "kvzip-apart-cacheblend": "each kvzip 0.2; apart | again --rate 0.15",
    "apart-cacheblend-kvzip": "apart | again --rate 0.15 | kvzip 0.2",
    "q8_0-apart": "each q8_0; apart",
    "q8_0-apart-cacheblend": "each q8_0; apart | again --rate 0.15",
}
SHELL = r"""
# documents N PREFIX ORDER: cuts the prompt behind its first PREFIX tokens into N pieces, prefills
# each, and the whole
documents() {
	rest=$(($(wc -l <"$prompt") - $2))
	prefix=$2
	head -n "$2" "$prompt" >"$work/prefix.ids"
	tail -n "+$(($2 + 1))" "$prompt" |
		split -d -a 4 -l $(((rest + $1 - 1) / $1)) - "$work/piece."
	pieces=$(cd "$work" && find . -name 'piece.????' | sort ${3:+-r})
	for piece in $pieces; do
		cat "$work/prefix.ids" "$work/$piece" |
			kv-prefill -q -m "$model" --ids -o "$work/$piece.kv" -
	done
	{
		cat "$work/prefix.ids"
		for piece in $pieces; do cat "$work/$piece"; done
	} | kv-prefill -q -m "$model" --ids -o "$work/whole.kv" -
}

whole() { cat "$work/whole.kv"; }

# kvzip RATE, q8_0: filters
kvzip() {
	kv-observe -q -m "$model" --repeat-context | kv-score -q --method kvzip |
		kv-evict -q --rate "$1" --policy global
}
q8_0() { kv-quantize -q --keys q8_0 --values q8_0; }

# each FILTER [WORD ...]: of each document, for the next `apart`
each() {
	for piece in $pieces; do
		"$@" <"$work/$piece.kv" >"$work/$piece.own.kv"
	done
	own=own.
}

apart() {
	for piece in $pieces; do set -- "$@" "$work/$piece.${own:-}kv"; done
	kv-merge -q --prefix "$prefix" "$@"
	own=
}

again() { kv-recompute -q -m "$model" "$@"; }

# judge NAME: what follows $work/made.kv
judge() {
	kv-info --json "$work/made.kv" >"$FOUND/$1.info"
	kv-prefill -q -m "$model" --ids -r "$work/made.kv" -o "$work/asked.kv" "$QUESTION"
	kv-decode -q -m "$model" --ids --json --force "$GIVEN" "$work/asked.kv" >"$FOUND/$1.forced"
	kv-decode -q -m "$model" --json -n "$answer" "$work/asked.kv" >"$FOUND/$1.answer"
}
"""


def shell_text(methods, names, count, prefix, order):
    """What is run for a question."""
    yield SHELL
    yield f"documents {count} {prefix} {order}"
    for name in names:
        yield "own="
        yield f'{{ {methods[name]}\n}} >"$work/made.kv"'
        yield f"judge {shlex.quote(name)}"


def read_found(record, found, name):
    forced, answer, info = (found[f"{name}.{end}"] for end in ("forced", "answer", "info"))
    return {"score": grade(record, answer["text"]),
            "nll": -sum(token["logprob"] for token in forced["each"]) / len(forced["each"]),
            "held": info["kv_bytes"]}


def rows_of(lines):
    for line in lines:
        for count, measures in line["all"].items():
            yield {"task": line["task"], "documents": count, "method": line["name"],
                   "question": line["question"], "measures": measures}


def p_of(summaries_of, key):
    against = summaries_of[key]["nll"]["against"]
    return f"{against['p']:.2g}" if against else "-"


def md_lines(found, from_apart, options):
    yield "Mean over questions [95 % interval]. score: of the task, in %; nll: of the right " \
          "answer behind the same rows; p: of the difference in nll, by the sign test, from the " \
          "whole prefill, and from the documents as they were merged."
    yield ""
    for task in dict.fromkeys(key[0] for key in found):
        for count in options.documents:
            part = {key[2]: of for key, of in found.items() if key[:2] == (task, str(count))}
            n = max((of["nll"]["n"] for of in part.values()), default=0)
            yield f"## {task}, {count} documents, {n} question{'s' * (n != 1)}"
            yield ""
            yield from md_table(
                ["method", "score", "nll", "p, full", "p, apart"],
                ([name, cell(of["score"], True), cell(of["nll"], False),
                  p_of(found, (task, str(count), name)), p_of(from_apart, (task, str(count), name))]
                 for name, of in part.items()))


def parse():
    parser = argparse.ArgumentParser(description="questions about merged documents")
    add_arguments(parser)
    parser.add_argument("--documents", type=several(int), default=[2, 4, 8], metavar="N,...",
                        help="in how many the context is cut (2,4,8)")
    parser.add_argument("--methods", type=several(str), metavar="NAME,...", help="only these")
    parser.add_argument("--method", action="append", default=[], metavar="NAME=SHELL",
                        help="one more; repeatable")
    parser.add_argument("--reversed", action="store_true",
                        help="the documents in the opposite order, in the whole prefill, too")
    options = parser.parse_args()
    options.answer, options.stop, options.question, options.cache = "right", "", "after", None
    if min(options.documents) < 1:
        parser.error("--documents: want at least one")
    for path in options.table:
        check_table(path)
    return options


def chosen(options):
    methods = named(options.methods or METHODS, METHODS)
    for text in options.method:
        name, _, words = text.partition("=")
        if not NAME.fullmatch(name) or not words.strip() or name in methods:
            raise TaskError(f"--method {text}: not NAME=SHELL, or a method is called so")
        methods[name] = words
    return methods


def prefix_length(tokenizer, record):
    """How many tokens of the prompt stand before its context."""
    with_text = tokenizer.prompt_ids(record, "context")
    other = tokenizer.prompt_ids({**record, "context": "\n\n0"}, "context")
    same = 0
    while same < min(len(with_text), len(other)) and with_text[same] == other[same]:
        same += 1
    return same


def main():
    options = parse()
    methods = chosen(options)
    pipes = Pipes(options)
    order = "r" if options.reversed else ""

    def measure_one(where, record, names):
        prefix = prefix_length(pipes.tokenizer, record)
        lines = {name: {"all": {}} for name in names}
        for count in options.documents:
            text = "\n".join(shell_text(methods, names, count, prefix, order))
            found = pipes.run(where, record, text)
            for name in names:
                lines[name]["all"][str(count)] = read_found(record, found, name)
        return lines

    whats = {name: [words, options.documents, order] for name, words in methods.items()}
    lines = measure(options, pipes, whats, measure_one)
    rows = list(rows_of(with_all(lines)))
    found, from_apart = summaries(rows, FIELDS, "full"), summaries(rows, FIELDS, "apart")
    write_or_print_tables(options.table, lambda: md_lines(found, from_apart, options), found,
                          FIELDS)


if __name__ == "__main__":
    sys.exit(run(main))
