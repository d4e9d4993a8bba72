#!/usr/bin/env python3
"""Token ids of the prompt of one question, one a line, for kv-prefill --ids.

    experiments/prompt_ids.py -m MODEL [--part whole|context|question] [--chat NAME] TASK.jsonl ID

The whole prompt, or its two parts: the context in a turn of the user that is left open, and what
comes behind it: the question, the end of the turn, and the first words of the answer (kv-prefill
--resume).
"""

import argparse
import sys

from task_prompts import PARTS, Tokenizer, find_programs
from task_records import TaskError, read_records, run


def main():
    parser = argparse.ArgumentParser(description="token ids of the prompt of one question")
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("--part", choices=PARTS, default="whole", help="of the prompt (whole)")
    parser.add_argument("--chat", metavar="NAME",
                        help="another chat template (kv-chat --template), or none")
    parser.add_argument("file", metavar="TASK.jsonl")
    parser.add_argument("id", metavar="ID")
    options = parser.parse_args()
    find_programs()
    records = read_records(options.file)
    if options.id not in records:
        raise TaskError(f"{options.file}: there is no question {options.id}")
    ids = Tokenizer(options.model, options.chat).prompt_ids(records[options.id], options.part)
    sys.stdout.write("".join(f"{i}\n" for i in ids))


if __name__ == "__main__":
    run(main)
