#!/usr/bin/env python3
"""How good what methods keep is as a draft of the full cache (kv-decode --draft).

    experiments/draft_acceptance.py -m MODEL --runs runs.jsonl --table acceptance.md TASK.jsonl ...

For each question the full cache goes on, greedily. Each method keeps a share of the rows, and these
draft the same text, always 7 tokens at a time: accepted is the share of the drafted tokens that
the full cache chooses itself, of those that are judged, because all before them were right. And the
same text is forced behind these rows: the negative log-likelihood of its tokens, and the share of
them that is the likeliest. No answer has to be right, so any text will do. That the drafted text is
the full cache's is checked, too.
"""

import argparse
import shlex
import sys

from answer_pipes import Pipes, add_arguments, measure
from measure_table import (cell, check_table, md_table, summaries, with_all,
                           write_or_print_tables)
from score_agreement import add_method_arguments, chosen_methods, method_settings
from task_records import TaskError, run

FIELDS = ("task", "rate", "method")
DRAFTED = 7


def shell_text(methods, names, rates, tokens):
    """What is run for a question."""
    yield 'full >"$work/full.kv"'
    yield f'kv-decode -q -m "$model" --ids -n {tokens} "$work/full.kv" >"$work/text.ids"'
    yield 'kv-info --json "$work/full.kv" >"$FOUND"/full'
    for name in names:
        pipeline, evict = methods[name]
        yield f'{{ {pipeline}\n}} >"$work/scored.kv"'
        for one in rates:
            found = f'"$FOUND"/{shlex.quote(name)}@{one}'
            yield f'rate={one}'
            yield f'kv-evict -q {evict} --rate "$rate" -o "$work/kept.kv" "$work/scored.kv"'
            yield f'kv-info --json "$work/kept.kv" >{found}.info'
            yield f'kv-decode -q -m "$model" --ids -n {tokens} --draft-tokens {DRAFTED} --stats ' \
                  f'{found} --draft "$work/kept.kv" "$work/full.kv" >"$work/drafted.ids"'
            yield 'cmp "$work/text.ids" "$work/drafted.ids"'
            yield f'kv-decode -q -m "$model" --ids --json --force "$work/text.ids" ' \
                  f'"$work/kept.kv" >{found}.forced'


def read_found(found, name, rates):
    """The line of a method: measures of each rate."""
    line = {}
    for one in rates:
        stats, forced, info = (found[f"{name}@{one}{end}"] for end in ("", ".forced", ".info"))
        judged = sum(place["judged"] for place in stats["by_place"])
        line[one] = {
            "accepted": stats["accepted"] / judged if judged else None,
            "tokens_per_pass": stats["tokens_per_pass"],
            "nll": -sum(token["logprob"] for token in forced["each"]) / len(forced["each"]),
            "top1": sum(token["top"] for token in forced["each"]) / len(forced["each"]),
            "held": info["kv_bytes"] / found["full"]["kv_bytes"]}
    return {"all": line}


def rows_of(lines):
    for line in lines:
        for one, measures in line["all"].items():
            yield {"task": line["task"], "rate": one, "method": line["name"],
                   "question": line["question"], "measures": measures}


def md_lines(found, options):
    yield "Mean over questions [95 % interval], best first. accepted: share of the judged draft " \
          "tokens, in %; tokens: of the text in a pass of the full cache, at most " \
          f"{DRAFTED + 1}; nll, top-1: of the same text, forced behind the kept rows; held: " \
          "bytes of keys and values, in %."
    yield ""
    for task in dict.fromkeys(key[0] for key in found):
        for one in options.rates:
            part = {key[2]: of for key, of in found.items() if key[:2] == (task, one)}
            order = sorted((name for name in part if "accepted" in part[name]),
                           key=lambda name: -part[name]["accepted"]["mean"])
            count = max((of["nll"]["n"] for of in part.values()), default=0)
            yield f"## {task}, {100 * float(one):g} %, {count} question{'s' * (count != 1)}"
            yield ""
            yield from md_table(
                ["method", "accepted", "tokens", "nll", "top-1", "held"],
                ([name, cell(part[name]["accepted"], True),
                  cell(part[name]["tokens_per_pass"], False), cell(part[name]["nll"], False),
                  cell(part[name]["top1"], True), cell(part[name]["held"], True).split()[0]]
                 for name in order))


def parse():
    parser = argparse.ArgumentParser(description="what methods keep as drafts of the full cache")
    add_arguments(parser)
    parser.add_argument("--cache", metavar="DIR",
                        help="keep what the pipelines share (common.sh -c); large")
    add_method_arguments(parser, "rows that stay")
    parser.add_argument("--tokens", type=int, default=64, metavar="N", help="of each text (64)")
    options = parser.parse_args()
    options.answer, options.stop = "full", ""
    if options.tokens < 2:
        parser.error("--tokens is at least 2")
    for path in options.table:
        check_table(path)
    return options


def main():
    options = parse()
    methods = chosen_methods(options)
    pipes = Pipes(options, method_settings(options))

    def measure_one(where, record, names):
        text = "\n".join(shell_text(methods, names, options.rates, options.tokens))
        found = pipes.run(where, record, text)
        if any(f"{name}@{one}" not in found for name in names for one in options.rates):
            raise TaskError(f"{where}: a pipeline left no report")
        return {name: read_found(found, name, options.rates) for name in names}

    whats = {name: [*words, options.rates, options.tokens] for name, words in methods.items()}
    lines = measure(options, pipes, whats, measure_one)
    found = summaries(rows_of(with_all(lines)), FIELDS, options.reference)
    write_or_print_tables(options.table, lambda: md_lines(found, options), found, FIELDS)


if __name__ == "__main__":
    sys.exit(run(main))
