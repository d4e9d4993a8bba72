#!/usr/bin/env python3
"""Makes a data set for lookahead.py: prompts, and what the model answers to them.

usage: lookahead_data.py MODEL --out DATA.jsonl --groups N [options]

Documents are texts of this machine (--recipe texts), of a folder of *.txt files (--texts FOLDER),
or in the language of the demo model (--recipe demo), with invented facts among them. The answers
are the model's own, greedy. A group is a document with several questions; group number g of a seed
is always the same, so that --first makes parts in several runs. Every 20th group is held out; with
--recipe texts and --texts it has texts that no other group has.

--target kvzip makes documents without questions, and has programs of PATH score their rows as KVzip
does, or KVzip+ (kvzip-plus): kv-prefill, kv-observe --repeat-context, kv-score. Their snapshots
stand in the folder DATA.jsonl.scored.

DATA.jsonl has the groups, DATA.jsonl.sources what went into them: files with their SHA-256, and
samples by kind. Exit status: 0, 1 when a file cannot be read or a program fails, 2 when something
is refused.
"""

import argparse
import collections
import json
import os
import random
import sys
import time

import torch
from transformers import AutoTokenizer

from failures import exit_status
from lookahead_files import data_head, write_text
from lookahead_model import FrozenModel
from lookahead_prompts import demo_group, document_group, text_group
from lookahead_rows import TARGETS, make_scored
from lookahead_scores import respond
from lookahead_texts import load_parts

HELD_OUT_EVERY = 20
# share of the wrong answers that stay; the right answer stands for the others
WRONG_STAY = 0.3


def is_right(tokenizer, question, response):
    """None when any answer will do."""
    if question.answer is None:
        return None
    return question.answer.lower() in tokenizer.decode(response).lower()


def without_the_rest(tokenizer, question, response):
    """A right answer up to the end of its line: a model that does not stop goes on at random."""
    answer, found = question.answer.lower(), None
    for count in range(1, len(response) + 1):
        if found is None and answer in tokenizer.decode(response[:count]).lower():
            found = count
        elif found is not None and "\n" in tokenizer.decode(response[found:count]):
            return response[:count - 1]
    return response


def right_answer(tokenizer, question, tail):
    """The tokens of the answer that was asked for, behind this end of a prompt, and a new line."""
    before = tokenizer.decode(tail)
    text = before + ("" if before[-1:].isspace() else " ") + question.answer + "\n"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return ids[len(tail):] if ids[:len(tail)] == list(tail) else tokenizer(
        " " + question.answer + "\n", add_special_tokens=False).input_ids


def answered(group, model, tokenizer, rng):
    """The questions of a group as the data set has them."""
    limits = [question.limit for question in group.questions]
    kept = []
    for question, tail, response in zip(group.questions, group.tails,
                                        respond(model, group.prefix, group.tails, limits)):
        right = is_right(tokenizer, question, response)
        stays = rng.random() < WRONG_STAY
        if right:
            response = without_the_rest(tokenizer, question, response)
        elif right is False and not stays:
            response = right_answer(tokenizer, question, tail)
        if response:
            kept.append({"kind": question.kind, "tail": tail, "response": response,
                         "answer": question.answer, "right": right})
    return kept


class Maker:
    """Groups by number."""

    def __init__(self, args, model, tokenizer):
        self.args, self.model, self.tokenizer = args, model, tokenizer
        self.parts = load_parts(args.texts, args.seed) if args.recipe == "texts" else ([], [])
        self.used = {}

    def make(self, number):
        """The line of one group, or None when no answer is of use."""
        held_out = number % HELD_OUT_EVERY == 0
        args = self.args
        if args.target != "answers":
            return self.make_document(number, held_out)
        if args.recipe == "demo":
            group = demo_group(args.seed, number, self.tokenizer, args.questions)
        else:
            group = text_group(args.seed, number, self.tokenizer, self.parts[held_out],
                               args.questions)
        rng = random.Random(f"kept {args.seed} {number}")
        questions = answered(group, self.model, self.tokenizer, rng)
        if not questions:
            return None
        return self.line(number, held_out, group) | {"questions": questions}

    def make_document(self, number, held_out):
        """The line of a document, and beside the data set the scores of its rows."""
        args = self.args
        if args.recipe == "demo":
            group = demo_group(args.seed, number, self.tokenizer, args.questions)
        else:
            group = document_group(args.seed, number, self.tokenizer, self.parts[held_out])
        name = os.path.join(os.path.basename(args.out) + ".scored", f"{number}.kv")
        digest = make_scored(args.model, group.prefix, args.target, args.threads,
                             os.path.join(os.path.dirname(args.out), name))
        return self.line(number, held_out, group) | {"scored": name, "sha256": digest}

    def line(self, number, held_out, group):
        """What the line of a group has in any case."""
        for source in group.sources:
            self.used[source.path] = source.digest
        return {"group": number, "split": "heldout" if held_out else "train", "form": group.form,
                "source": sorted({source.path for source in group.sources}),
                "prefix": group.prefix}


class Counts:
    """Samples by kind and split."""

    def __init__(self):
        self.kinds = collections.defaultdict(collections.Counter)
        self.groups = self.samples = self.tokens = 0

    def add(self, line):
        self.groups += 1
        if "scored" in line:
            self.samples += 1
            self.tokens += len(line["prefix"])
            self.kinds[line["form"]][line["split"]] += 1
        for question in line.get("questions", ()):
            self.samples += 1
            self.tokens += len(line["prefix"]) + len(question["tail"])
            counter = self.kinds[question["kind"]]
            counter[line["split"]] += 1
            if question["right"] is not None:
                counter["right" if question["right"] else "wrong"] += 1

    def report(self):
        return {"groups": self.groups, "samples": self.samples,
                "mean prompt tokens": round(self.tokens / max(self.samples, 1)),
                "kinds": {kind: dict(self.kinds[kind]) for kind in sorted(self.kinds)}}


def make_data(args):
    model = FrozenModel.load(args.model, getattr(torch, args.dtype)) \
        if args.target == "answers" else None
    tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
    settings = {"recipe": args.recipe, "texts": args.texts, "seed": args.seed,
                "first": args.first, "groups": args.groups, "questions": args.questions,
                "dtype": args.dtype, "target": args.target}
    maker, counts, start = Maker(args, model, tokenizer), Counts(), time.monotonic()
    part = args.out + ".part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(json.dumps(data_head(args.model, settings)) + "\n")
        for number in range(args.first, args.first + args.groups):
            line = maker.make(number)
            if line is None:
                continue
            counts.add(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            if counts.groups % args.every == 0:
                seconds = time.monotonic() - start
                print(f"group {number}: {counts.samples} samples, "
                      f"{seconds / counts.samples:.2f} s each", file=sys.stderr, flush=True)
    report = {"settings": settings, **counts.report(), "files": dict(sorted(maker.used.items()))}
    write_text(args.out + ".sources", json.dumps(report, indent=1) + "\n")
    os.replace(part, args.out)


def main():
    parser = argparse.ArgumentParser(
        description="make a data set for lookahead.py: prompts, and the model's answers to them")
    parser.add_argument("model", help="model folder")
    parser.add_argument("--out", required=True, help="the data set, a file of JSON lines")
    parser.add_argument("--groups", type=int, default=300, help="how many documents (300)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--questions", type=int, default=8, help="for each document (8)")
    parser.add_argument("--recipe", choices=("texts", "demo"), default="texts")
    parser.add_argument("--target", choices=("answers", *TARGETS), default="answers",
                        help="what learned rows are to look at: what the model's answers look at, "
                        "or the rows that score high with KVzip or KVzip+ (answers)")
    parser.add_argument("--texts", help="folder of *.txt files instead of this machine's texts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=10, help="groups for a line of progress (10)")
    args = parser.parse_args()
    if args.groups < 1 or args.first < 0 or args.questions < 1 or args.threads < 1:
        parser.error("need --groups, --questions, --threads >= 1 and --first >= 0")
    torch.set_num_threads(args.threads)
    return exit_status("lookahead_data.py", make_data, args)


if __name__ == "__main__":
    sys.exit(main())
