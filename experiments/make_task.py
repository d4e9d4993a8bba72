#!/usr/bin/env python3
"""Questions of a task to a long context, generated: JSON lines to standard output.

    experiments/make_task.py TASK -m MODEL -n COUNT --tokens N [--seed S] [--depth D ...]
        [options of the task]

The same seed, options and texts give the same bytes; more questions begin with the same ones. A
prompt has at most N tokens of the model, chat template and first words of the answer included, and
is N/256 below that at most, or what one word, pair or passage more would take. RULER counts the
tokens of the answer among the N; here they are not, but there must be positions for them.

tasks.md says what the tasks are, which settings a small model can do, and what a record has.
Standard library only, and kv-chat and kv-tokenize.
"""

import argparse
import random
from dataclasses import dataclass
from typing import Callable, Optional

from benchmark_formats import RULER
from task_chains import FACTS, MOST_FACTS, make_multihop, make_vt
from task_continuation import Parts, make_continuation
from task_haystacks import load_haystack
from task_lists import make_cwe, make_fwe
from task_needles import make_kv_recall, make_niah, make_passkey
from task_passages import make_qa, most_passages, read_squad
from task_prompts import Tokenizer, find_programs, read_positions
from task_records import FIELDS, UNGRADED, TaskError, run, write_objects


@dataclass
class Task:
    """A generator with the defaults of its options, and the least and the most size it can have.

    One that is exact has no size: it makes a prompt of the tokens that are asked for.
    """

    make: Callable
    about: str
    options: dict
    least: int = 0
    most: Optional[Callable] = None
    metric: str = "substring"
    depth: bool = True
    exact: bool = False


def niah(about, haystack, keys=1, values=1, queries=1, key_type="words", value_type="numbers"):
    return Task(make_niah, about, {
        "haystack": haystack, "keys": keys, "values": values, "queries": queries,
        "key_type": key_type, "value_type": value_type})


TASKS = {
    "niah_single_1": niah("a number of seven digits in noise", "noise"),
    "niah_single_2": niah("a number in a text", "licences"),
    "niah_single_3": niah("a UUID in a text", "licences", value_type="uuids"),
    "niah_multikey_1": niah("one of four numbers in a text", "licences", keys=4),
    "niah_multikey_2": niah("one of a whole context of numbers", "needles"),
    "niah_multikey_3": niah("one of a whole context of UUIDs, by a UUID", "needles",
                            key_type="uuids", value_type="uuids"),
    "niah_multivalue": niah("four numbers of one word in a text", "licences", values=4),
    "niah_multiquery": niah("the numbers of four words in a text", "licences", keys=4, queries=4),
    "vt": Task(make_vt, "the variables that have a value, which others copied", {
        "haystack": "noise", "chains": 1, "hops": 4, "examples": 1}, depth=False),
    "cwe": Task(make_cwe, "the ten most common words of a list", {
        "common": 10, "common_freq": None, "uncommon_freq": None, "examples": 1}, depth=False),
    "fwe": Task(make_fwe, "the three most frequent coded words of a text", {
        "alpha": 2.0, "coded_words": None}, least=100, depth=False),
    "qa": Task(make_qa, "a question to one of many passages", {"passages": None}, least=1,
               most=most_passages, metric="substring_any"),
    "passkey": Task(make_passkey, "a pass key of five digits in noise", {"haystack": "noise"}),
    "kv_recall": Task(make_kv_recall, "the value of a key in a JSON object of UUIDs", {
        "key_type": "uuids", "value_type": "uuids"}, least=1),
    "multihop": Task(make_multihop, "where facts about people lead, several of them in a row", {
        "haystack": "licences", "hops": 2, "chains": 4}),
    "continuation": Task(make_continuation, "how a text goes on, to be forced and not generated", {
        "haystack": "licences", "answer_tokens": 64}, metric=UNGRADED, depth=False, exact=True),
}


def count_of(least):
    def convert(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}: less than {least}")
        return value
    return convert


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text}: not between 0 and 1")
    return value


def above_one(text):
    value = float(text)
    if not 1 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text}: not between 1 and 100")
    return value


TYPES = ("words", "numbers", "uuids")
OPTIONS = {
    "haystack": ({"metavar": "TEXT"}, "noise, licences, manuals, a text file, a folder of *.txt"),
    "keys": ({"type": count_of(1)}, "how many keys have needles"),
    "values": ({"type": count_of(1)}, "how many needles a key has"),
    "queries": ({"type": count_of(1)}, "how many keys are asked for"),
    "key_type": ({"choices": TYPES}, "what keys are"),
    "value_type": ({"choices": TYPES}, "what values are"),
    "chains": ({"type": count_of(1)}, "how many chains there are, one of which is asked for"),
    "hops": ({"type": count_of(0)}, "how many steps a chain has"),
    "examples": ({"type": int, "choices": (0, 1)}, "worked examples before the text"),
    "common": ({"type": count_of(1)}, "how many words are common"),
    "common_freq": ({"type": count_of(1)}, "how often these are there (30, below 4096 tokens 6)"),
    "uncommon_freq": ({"type": count_of(1)}, "how often the others are (3, below 4096 tokens 1)"),
    "alpha": ({"type": above_one}, "exponent of Zipf's law"),
    "coded_words": ({"type": count_of(4)}, "how many different words there are (N/50)"),
    "answer_tokens": ({"type": count_of(1), "metavar": "N"}, "how many tokens follow the passage"),
    "passages": ({"metavar": "FILE"}, "passages and questions as SQuAD's JSON has them"),
}


def parse():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-m", "--model", required=True, help="model folder, whose tokens count")
    common.add_argument("-n", type=count_of(1), default=20, metavar="COUNT",
                        help="how many questions (20)")
    common.add_argument("--tokens", type=count_of(1), required=True, metavar="N",
                        help="at most, of a prompt")
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--name", help="another name for the task in its records")
    common.add_argument("--chat", metavar="NAME",
                        help="another chat template (kv-chat --template), or none")
    common.add_argument("--new-tokens", type=count_of(1), metavar="N", help="of an answer "
                        "(twice the tokens of the right one, and 8)")
    common.add_argument("--kvpress", action="store_true", help="rows as kvpress reads them, "
                        "with the answer lengths of RULER")
    common.add_argument("--no-answer-prefix", action="store_true",
                        help="do not begin the answer for the model")
    parser = argparse.ArgumentParser(description="generate questions of a task")
    chosen = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    for name, task in TASKS.items():
        sub = chosen.add_parser(name, parents=[common], help=task.about, description=task.about)
        if task.depth:
            sub.add_argument("--depth", type=share, nargs="+", metavar="D", help="where what is "
                             "asked for stands, 0 to 1; questions take turns (by chance)")
        for option, default in task.options.items():
            settings, text = OPTIONS[option]
            given = "" if default is None else f" ({default})"
            sub.add_argument("--" + option.replace("_", "-"), default=default,
                             help=text + given, **settings)
    return parser.parse_args()


def check(options):
    """What no type of an option says; loads what the options name."""
    if options.task == "multihop":
        if not 1 <= options.hops <= len(FACTS):
            raise TaskError(f"--hops {options.hops}: 1 to {len(FACTS)} are possible")
        if options.chains > MOST_FACTS:
            raise TaskError(f"--chains {options.chains}: {MOST_FACTS} at most")
    if "queries" in options and options.queries > options.keys:
        options.keys = options.queries
    if options.task == "continuation":
        if options.haystack == "noise":
            raise TaskError("--haystack noise: it repeats itself, and says nothing of a model")
        if options.new_tokens:
            raise TaskError("--new-tokens: the answer of a continuation has --answer-tokens")
    if "haystack" in options:
        text = options.haystack
        options.haystack = load_haystack(text) if (options.task[:4], text) != ("niah", "needles") \
            else None
    if getattr(options, "passages", None):
        options.passages = read_squad(options.passages)
        options.order = list(range(len(options.passages[1])))
        random.Random(f"{options.seed} order").shuffle(options.order)
        if options.n > len(options.order):
            raise TaskError(f"-n {options.n}: there are {len(options.order)} questions")


def largest(count, least, most, limit):
    """(size, its tokens) of the largest size with at most `limit` tokens, nearly.

    count(size) -> tokens grows with the size, but for a few tokens. Steps go where a straight line
    through what is known meets the limit, in halves where that is slow, and end near the limit.
    """
    low, low_tokens = least, count(least)
    if low_tokens > limit:
        raise TaskError(f"--tokens {limit}: {low_tokens} are the least that this task takes")
    high, probe = None, least + max(8, limit // 32)
    for step in range(64):
        if high is not None and high - low <= 1 or low_tokens >= limit - limit // 256 - 1:
            break
        if most is not None and probe >= most:
            if low == most:
                raise TaskError(f"--tokens {limit}: there is text for {low_tokens} only")
            probe = most
        tokens = count(probe)
        if tokens <= limit:
            slope = max(tokens - low_tokens, 1) / (probe - low)
            low, low_tokens = probe, tokens
        else:
            slope = max(tokens - low_tokens, 1) / (probe - low)
            high = probe
        probe = low + int((limit - low_tokens) / slope)
        if high is None:
            probe = min(max(probe, low + 1), 4 * (low + 8))
        else:
            if step % 4 == 3:
                probe = (low + high) // 2
            probe = min(max(probe, low + 1), high - 1)
    return low, low_tokens


def make_largest(options, tokenizer):
    """(record, its prompt's tokens) of the largest size that the tokens allow."""
    task, index = TASKS[options.task], options.index
    depths = getattr(options, "depth", None)
    depth = depths[index % len(depths)] if depths else None
    made = {}

    def question(size):
        record = task.make(random.Random(f"{options.seed} {options.task} {index}"), options, size,
                           depth)
        if options.no_answer_prefix:
            record["answer_prefix"] = ""
        return record

    def count(size):
        if size not in made:
            made[size] = question(size)
        return tokenizer.count(made[size])

    most = task.most(options) if task.most else None
    size, tokens = largest(count, task.least, most, options.tokens)
    record = made[size]
    record["new_tokens"] = options.new_tokens or \
        8 + 2 * len(tokenizer.text_ids(", ".join(record["answers"])))
    return record, tokens


def make_record(options, tokenizer, index):
    task = TASKS[options.task]
    options.index = index
    record, tokens = (task.make if task.exact else make_largest)(options, tokenizer)
    name = options.name or options.task
    record.update(id=f"{name}-{index:04}", task=name, metric=task.metric, tokens=tokens,
                  length=options.tokens, seed=options.seed)
    if record["depth"] is not None:
        record["depth"] = round(record["depth"], 4)
    record = {name: record[name] for name in FIELDS}
    if getattr(options, "haystack", None):
        record["haystack"] = options.haystack.name
    return record


def kvpress_row(record):
    """Its fields and metrics are those of benchmark_formats.py."""
    tokens = [most for begin, _, most in RULER if record["task"].startswith(begin)]
    if not tokens:
        raise TaskError(f"--kvpress: {record['task']} is no task of RULER (--name)")
    return {**{name: record[name] for name in ("context", "question", "answer_prefix")},
            "answer": record["answers"], "task": record["task"], "max_new_tokens": tokens[0]}


def main():
    options = parse()
    find_programs()
    check(options)
    tokenizer = Tokenizer(options.model, options.chat)
    positions = read_positions(options.model)
    if positions is not None and options.tokens > positions:
        raise TaskError(f"--tokens {options.tokens}: {options.model} has {positions} positions")
    if options.task == "continuation":
        options.parts = Parts(options, tokenizer)
    records = [make_record(options, tokenizer, index) for index in range(options.n)]
    longest = max(record["tokens"] + record["new_tokens"] for record in records)
    if positions is not None and longest > positions:
        raise TaskError(f"--tokens {options.tokens}: with the answer {longest}, and "
                        f"{options.model} has {positions} positions")
    write_objects([kvpress_row(record) for record in records] if options.kvpress else records)


if __name__ == "__main__":
    run(main)
