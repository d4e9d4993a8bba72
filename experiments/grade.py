#!/usr/bin/env python3
"""Scores of answers, as JSON lines: each question with its answer and its score, without the texts.

    experiments/grade.py TASK.jsonl ANSWERS.jsonl > graded.jsonl

An answer is an object with `id` and `answer`, both texts; further members are kept. Every question
needs one answer, and every answer a question. Questions with the metric none have a line without
`answer`, and the score null: what counts is how likely the right answer was.
"""

import argparse

from metrics import check_metric, grade
from task_records import (FIELDS, UNGRADED, TaskError, need, read_objects, read_records, run,
                          write_objects)

TEXTS = ("context", "question", "answer_prefix")


def read_answers(path, records):
    """The lines of answers by id."""
    answers = {}
    for number, row in read_objects(path):
        where = f"{path}:{number}"
        name = need(where, row, "id", "a text")
        if records.get(name, {}).get("metric") != UNGRADED:
            need(where, row, "answer", "a text")
        elif "answer" in row:
            raise TaskError(f"{where}: {name}: the metric {UNGRADED}: no answer is right or wrong; "
                            "kv-decode --force says how likely the right one is")
        if name in answers:
            raise TaskError(f"{where}: there is an answer to {name} before")
        if name not in records:
            raise TaskError(f"{where}: there is no question {name}")
        taken = [field for field in row if field in FIELDS and field != "id" or field == "score"]
        if taken:
            raise TaskError(f"{where}: {taken[0]} is the name of something else in the result")
        answers[name] = row
    return answers


def main():
    parser = argparse.ArgumentParser(description="score answers")
    parser.add_argument("task", metavar="TASK.jsonl")
    parser.add_argument("answers", metavar="ANSWERS.jsonl")
    options = parser.parse_args()
    records = read_records(options.task)
    for name, record in records.items():
        check_metric(f"{options.task}: {name}", record)
    answers = read_answers(options.answers, records)
    missing = [name for name in records if name not in answers]
    if missing:
        raise TaskError(f"{options.answers}: there is no answer to {missing[0]}"
                        + (f" and {len(missing) - 1} other questions" if missing[1:] else ""))
    graded = []
    for name, record in records.items():
        kept = {field: value for field, value in record.items() if field not in TEXTS}
        row = answers[name]
        score = grade(record, row["answer"]) if "answer" in row else None
        graded.append({**kept, **row, "score": score})
    write_objects(graded)


if __name__ == "__main__":
    run(main)
