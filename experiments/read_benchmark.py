#!/usr/bin/env python3
"""Questions of a benchmark's JSON lines, as records to standard output.

    experiments/read_benchmark.py -m MODEL FILE.jsonl [--task NAME] [--metric NAME]
        [--template FILE] [--middle-cut N]

Read are LongBench's fields (context, input, answers, all_classes, dataset, length, _id), RULER's
(input, outputs, answer_prefix, index), kvpress's (context, question, answer_prefix, answer, task,
max_new_tokens), and plain ones: prompt, or context and input or question;
answers, answer, outputs or output; id, metric, new_tokens, answer_prefix, classes, relevance where
they are there.

tasks.md has the particulars. Standard library only, and kv-chat and kv-tokenize.
"""

import argparse
import os
import sys

from benchmark_formats import (PLAIN_TOKENS, answers_of, facts_of, form_of, id_of, read_texts,
                               text_of)
from metrics import METRICS, check_metric
from task_prompts import Tokenizer, find_programs, read_positions
from task_records import NAME, UNGRADED, TaskError, read_objects, run, write_objects


def parse():
    parser = argparse.ArgumentParser(description="read questions of a benchmark")
    parser.add_argument("-m", "--model", required=True, help="model folder, whose tokens count")
    parser.add_argument("file", metavar="FILE.jsonl", help="- for standard input")
    parser.add_argument("--task", metavar="NAME", help="of the records (the data set's; or that of "
                        "the file, or of its folder where the file is validation or test)")
    parser.add_argument("--metric", choices=[*METRICS, UNGRADED], metavar="NAME",
                        help="instead of the benchmark's: " + ", ".join([*METRICS, UNGRADED]))
    parser.add_argument("--new-tokens", type=int, metavar="N",
                        help=f"of an answer, instead of the benchmark's ({PLAIN_TOKENS})")
    parser.add_argument("--template", metavar="FILE", help="the user's turn, with {context} once "
                        "and {input} once or not at all, instead of ours")
    parser.add_argument("--chat", metavar="NAME",
                        help="another chat template (kv-chat --template), or none")
    parser.add_argument("--middle-cut", type=int, metavar="N", help="cut prompts of more than N "
                        "tokens, without the chat template, to the first and the last N/2")
    options = parser.parse_args()
    for name in ("new_tokens", "middle_cut"):
        value = getattr(options, name)
        if value is not None and value < 2:
            parser.error(f"--{name.replace('_', '-')} {value}: less than 2")
    if options.task and not NAME.fullmatch(options.task):
        parser.error(f"--task {options.task}: letters, digits, '.', '_' and '-' are possible")
    return options


def read_template(path):
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not UTF-8 at byte {error.start + 1}") from None
    if text.count("{context}") != 1 or text.count("{input}") > 1:
        raise TaskError(f"{path}: {{context}} must be there once, {{input}} once at most")
    return text


def name_of_file(path):
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem in ("validation", "test"):
        stem = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return stem if NAME.fullmatch(stem) else "benchmark"


def whole(where, value, name):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TaskError(f"{where}: {name} is not a whole number above 0")
    return value


def make_record(options, template, number, row):
    """A record without its number of tokens."""
    where = f"{options.file}:{number}"
    form = form_of(row)
    own = text_of(where, row, "task") if form == "kvpress" else None
    task = own or options.task or text_of(where, row, "dataset", "task") \
        or name_of_file(options.file)
    if form == "kvpress":
        whole(where, row["max_new_tokens"], "max_new_tokens")
    metric, tokens, first_line = facts_of(form, row, task)
    metric = options.metric or text_of(where, row, "metric") or metric
    if not metric:
        raise TaskError(f"{where}: no metric is known for {task}: give one with --metric")
    context, question = read_texts(where, row, form, template)
    prefix = text_of(where, row, "answer_prefix") or ""
    given, name = id_of(where, row, form, task, number)
    tokens = options.new_tokens or row.get("new_tokens") or tokens or PLAIN_TOKENS
    record = {
        "id": name, "task": task, "context": context, "question": question,
        "answer_prefix": prefix if form == "kvpress" else prefix.strip(" "),
        "answers": answers_of(where, row), "metric": metric,
        "new_tokens": whole(where, tokens, "new_tokens"), "length": row.get("length"),
        "tokens": None, "depth": row.get("depth"), "seed": row.get("seed"),
    }
    classes = row.get("classes") or row.get("all_classes")
    record.update({name: value for name, value in (
        ("classes", classes), ("relevance", row.get("relevance")),
        ("first_line", first_line or row.get("first_line") or None)) if value is not None})
    if given is not None and given != name:
        record["source_id"] = given
    check_metric(where, record)
    return record


def cut_middle(where, tokenizer, record, most):
    """Cuts tokens out of the middle of the context as LongBench does; returns how many."""
    ids = tokenizer.text_ids(record["context"] + record["question"])
    if len(ids) <= most:
        return 0
    half = most // 2
    text = tokenizer.text(ids[:half]) + tokenizer.text(ids[-half:])
    if not text.endswith(record["question"]):
        raise TaskError(f"{where}: --middle-cut {most}: the question is longer than a half of that")
    record["context"] = text[:len(text) - len(record["question"])]
    record["cut"] = len(ids) - 2 * half
    return record["cut"]


def read_all(options, tokenizer):
    positions = read_positions(options.model)
    template = read_template(options.template) if options.template else None
    records, cuts = {}, 0
    for number, row in read_objects(options.file):
        where = f"{options.file}:{number}"
        record = make_record(options, template, number, row)
        if record["id"] in records:
            raise TaskError(f"{where}: there is a question {record['id']} before")
        if options.middle_cut:
            cuts += cut_middle(where, tokenizer, record, options.middle_cut) > 0
        record["tokens"] = tokenizer.count(record)
        if not isinstance(record["length"], int):
            record["length"] = record["tokens"]
        longest = record["tokens"] + record["new_tokens"]
        if positions is not None and longest > positions:
            raise TaskError(f"{where}: {longest} tokens with the answer, and {options.model} has "
                            f"{positions} positions (--middle-cut cuts)")
        records[record["id"]] = record
    if cuts:
        print(f"read_benchmark.py: {cuts} of {len(records)} prompts were cut", file=sys.stderr)
    return records


def main():
    options = parse()
    find_programs()
    write_objects(read_all(options, Tokenizer(options.model, options.chat)).values())


if __name__ == "__main__":
    run(main)
