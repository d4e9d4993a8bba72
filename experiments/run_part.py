#!/usr/bin/env python3
"""One method at one rate over a part of a task's questions: a job of the workflow.

    run_part.py keep ... --shared DIR --out DIR --script FILE [WORD ...]
    run_part.py answer ... --kept DIR > answers.jsonl

`keep` runs a script of examples/methods for each question, up to the snapshot that the answer
begins with, in the folder --out; `answer` lets the model answer, and adds what the snapshot kept,
what was read and what it has cost; with --nll also how likely the right answer is behind the same
snapshot. A question with the metric none has no answer but that. With --question after the script
sees the context only, and the question comes behind what it kept; with --question aware it sees the
question, too, and what follows that in the prompt comes behind what it kept.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from forced_answer import answer_ids
from task_prompts import Tokenizer, find_programs, question_in_context
from task_records import UNGRADED, TaskError, read_records, run, write_objects

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "examples"))

from report import own_seconds, read as read_stages, total      # noqa: E402

PROGRAMS = ("kv-chat", "kv-decode", "kv-evict", "kv-index", "kv-observe", "kv-prefill",
            "kv-quantize1b", "kv-score", "kv-tokenize")


def call(where, command, **options):
    """A program's output. Its messages go where ours go."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False, **options)
    except OSError as error:
        raise TaskError(f"{where}: {command[0]}: {error.strerror}") from None
    if done.returncode:
        raise TaskError(f"{where}: {os.path.basename(command[0])} ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def build_of_programs():
    """Eight digits for the build: results of different ones are not of the same programs."""
    digest = hashlib.sha256()
    for name in PROGRAMS:
        path = shutil.which(name)
        if path is None:
            raise TaskError(f"there is no {name} on the PATH or in build/: is it built?")
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:8]


def chosen(options):
    """The records of the part, numbered from 0 over the whole task."""
    first, count = (int(n) for n in options.part.split("/"))
    records = list(read_records(options.task).values())
    if options.question == "aware":
        records = [question_in_context(record) for record in records]
    return [(number, record) for number, record in enumerate(records) if number % count == first]


def write_ids(path, ids):
    with open(path, "w", encoding="ascii") as file:
        file.writelines(f"{i}\n" for i in ids)


def keep(options, work):
    tokenizer = Tokenizer(options.model, options.chat)
    os.makedirs(options.out, exist_ok=True)
    os.makedirs(options.shared, exist_ok=True)
    environment = {**os.environ, "KVPIPE_METHODS": os.path.join(HERE, "..", "examples", "methods")}
    for number, record in chosen(options):
        where = f"{options.task}: {record['id']}"
        prompt, out = os.path.join(work, "prompt.ids"), os.path.join(options.out, f"{number:05}.kv")
        part = "whole" if options.question == "inside" else "context"
        write_ids(prompt, tokenizer.prompt_ids(record, part))
        environment["KV_REPORT"] = os.path.abspath(f"{out}.stages.jsonl")
        call(where, ["sh", options.script[0], "-i", "-c", options.shared,
                     "-n", str(record["new_tokens"]), "-o", out, *options.script[1:], prompt],
             env=environment)


def cost(snapshot):
    """What the programs have done that made a snapshot: seconds of their own and operations."""
    stages = read_stages(f"{snapshot}.stages.jsonl")
    return {"keep_seconds": round(sum(own_seconds(stage) for stage in stages), 3),
            "keep_flops": sum(total(stage, "flops") for stage in stages)}


def percent(text, name):
    return round(100 * json.loads(text)[name], 3)


def words_of(snapshot):
    with open(f"{snapshot}.options", encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def scoring_options(layer):
    """Options that carry on what rows are scored by while decoding, as kv-info has a layer."""
    return ["--mass"] * layer["mass"] + (["--observe", str(layer["queries"])]
                                         if layer["queries"] else [])


def ask(options, where, work, ids, snapshot, more):
    """The snapshot behind the question, where that came after the eviction."""
    question, asked = os.path.join(work, "question.ids"), os.path.join(work, "asked.kv")
    write_ids(question, ids)
    call(where, ["kv-prefill", "-q", "-m", options.model, "--resume", snapshot, "--ids", *more,
                 "-o", asked, question])
    return asked


def generate(options, where, record, words, snapshot):
    """What the model answers."""
    for stop in options.stop:
        words = [*words, "--stop", stop]
    said = json.loads(call(where, ["kv-decode", "-q", "--json", "-m", options.model, "-n",
                                   str(record["new_tokens"]), *words, snapshot]))
    return {"answer": said["text"], "answer_tokens": said["tokens"]}


def force(options, where, right, words, snapshot):
    """How likely the right answer is, nats per token."""
    said = json.loads(call(where, ["kv-decode", "-q", "--json", "-m", options.model, "--ids",
                                   "--force", right, *words, snapshot]))
    return {"nll": said["nll"], "top1": said["top1"], "nll_tokens": said["tokens"]}


def answer_one(options, work, record, kept, tokenizer):
    """The fields of an answer."""
    where = f"{options.task}: {record['id']}"
    scored = record["metric"] != UNGRADED
    if not scored and not options.nll:
        raise TaskError(f"{where}: the metric none asks how likely the answer is: "
                        "it needs --nll (nll: true)")
    after, stats = os.path.join(work, "after.kv"), os.path.join(work, "stats")
    words = words_of(kept)
    measured = ["-o", after, *words] + (["--stats", stats] if "--retrieve" in words else [])
    info = json.loads(call(where, ["kv-info", "--json", kept]))
    started = time.monotonic()
    snapshot = kept
    if options.question != "inside":
        snapshot = ask(options, where, work, tokenizer.prompt_ids(record, "question"), kept,
                       scoring_options(info["layers"][0]) if "--evict" in words else [])
    right = os.path.join(work, "right.ids")
    if options.nll:
        write_ids(right, answer_ids(tokenizer, record, "whole" if options.question == "inside"
                                    else "question"))
    if scored:
        row = generate(options, where, record, measured, snapshot)
    else:
        row = force(options, where, right, measured, snapshot)
    seconds = time.monotonic() - started
    if scored and options.nll:
        row.update(force(options, where, right, words, snapshot))
    share, stored = (round(100 * info[name], 3) for name in ("share_kept", "share_bytes"))
    read = stored
    if "--retrieve" in words and share:
        with open(stats, encoding="utf-8") as file:     # a share of the bytes of all kept rows
            read = round((json.load(file)["all"]["share"] or 0) * 100 * stored / share, 3)
    footprint = call(where, ["kv-footprint", "--json", after])
    return {"id": record["id"], **row, "kept": share, "bytes": stored, "read": read,
            **{name: percent(footprint, name) for name in ("footprint", "memory", "peak")},
            **cost(kept), "answer_seconds": round(seconds, 3)}


def answer(options, work):
    tokenizer = Tokenizer(options.model, options.chat)
    build = build_of_programs()
    rows = []
    for number, record in chosen(options):
        snapshot = os.path.join(options.kept, f"{number:05}.kv")
        rows.append({**answer_one(options, work, record, snapshot, tokenizer),
                     **dict(options.field), "build": build})
    write_objects(rows)


def pair(text):
    name, _, value = text.partition("=")
    return name, value


def main():
    parser = argparse.ArgumentParser(description="run a method over a part of a task")
    parser.add_argument("stage", choices=("keep", "answer"))
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("--task", required=True, metavar="TASK.jsonl")
    parser.add_argument("--part", required=True, metavar="I/N",
                        help="questions I, I + N, I + 2N, ...")
    parser.add_argument("--question", choices=("inside", "after", "aware"),
                        default="inside")
    parser.add_argument("--chat", metavar="NAME", help="another chat template, or none")
    parser.add_argument("--shared", help="keep: folder for what methods and rates have in common")
    parser.add_argument("--out", help="keep: folder for its snapshots")
    parser.add_argument("--kept", help="answer: folder of `keep`")
    parser.add_argument("--stop", action="append", default=[], help="answer: a text that ends it")
    parser.add_argument("--nll", action="store_true",
                        help="answer: force the right answer, too, and say how likely it is")
    parser.add_argument("--field", action="append", default=[], type=pair, metavar="NAME=VALUE",
                        help="answer: a further member of each line")
    parser.add_argument("--script", nargs=argparse.REMAINDER, default=[], metavar="WORD",
                        help="keep: a script of examples/methods and its options; comes last")
    options = parser.parse_args()
    needed = ("shared", "out", "script") if options.stage == "keep" else ("kept",)
    missing = [name for name in needed if not getattr(options, name)]
    if missing:
        parser.error(f"{options.stage} needs --{missing[0]}")
    find_programs()
    with tempfile.TemporaryDirectory() as work:
        {"keep": keep, "answer": answer}[options.stage](options, work)


if __name__ == "__main__":
    run(main)
