#!/usr/bin/env python3
"""kvpress's leaderboard from graded answers: a method, a compression ratio, a score.

    leaderboard.py [--kvpress ANSWERS.jsonl --task TASK.jsonl] --table TABLE.md ... GRADED.jsonl ...

GRADED.jsonl are those of a sweep of methods (results/.../graded/*/*/*/*/*/*.jsonl). The score is
kvpress's: the mean over tasks of the mean over questions, times 100. `held` is what kvpress does
not print: the bytes of keys and values that the cache holds behind the compression, in % of all.
--kvpress adds the answers of kvpress itself (kvpress_answers.py) to the same questions, and says of
each method that both have how many answers are the same text, and how many are right in one only.
A file TABLE.tsv has a line for each method, ratio and task.
"""

import argparse
from statistics import fmean

from intervals import bootstrap, compare, read_graded
from measure_table import check_table, md_table, write_lines
from metrics import check_metric, grade
from task_records import TaskError, need, read_objects, read_records, run

OURS, THEIRS = "kvpipe", "kvpress"


def parse():
    parser = argparse.ArgumentParser(description="kvpress's leaderboard from graded answers")
    parser.add_argument("files", nargs="+", metavar="GRADED.jsonl")
    parser.add_argument("--kvpress", metavar="ANSWERS.jsonl", help="what kvpress_answers.py wrote")
    parser.add_argument("--task", metavar="TASK.jsonl", help="its questions")
    parser.add_argument("--table", action="append", required=True, metavar="TABLE",
                        help="a file .md or .tsv")
    options = parser.parse_args()
    if (options.kvpress is None) != (options.task is None):
        parser.error("--kvpress needs --task, and --task --kvpress")
    for path in options.table:
        check_table(path)
    return options


def ratio_of(rate):
    """The compression ratio as kvpress writes it."""
    return "0" if rate == "all" else f"{1 - float(rate):.3f}".rstrip("0").rstrip(".")


def our_rows(paths):
    for path in paths:
        for row in read_graded(path).values():
            yield {**row, "program": OURS}


def their_rows(path, records):
    for number, row in read_objects(path):
        where = f"{path}:{number}"
        name = need(where, row, "id", "a text")
        need(where, row, "answer", "a text")
        if name not in records:
            raise TaskError(f"{where}: there is no question {name}")
        check_metric(where, records[name])
        yield {**row, "program": THEIRS, "task": records[name]["task"],
               "score": grade(records[name], row["answer"])}


def key_of(row):
    return row["program"], row["method"], row["rate"]


def gather(rows):
    """(program, method, rate) -> {id: row}, in the order in which they come"""
    found = {}
    for row in rows:
        questions = found.setdefault(key_of(row), {})
        if row["id"] in questions:
            raise TaskError(f"{row['method']} at {row['rate']}: two answers to {row['id']}")
        questions[row["id"]] = row
    return found


def score_of(rows):
    """The mean over tasks of the mean over their questions, in %, and an interval of the mean over
    questions."""
    tasks = {}
    for row in rows:
        tasks.setdefault(row["task"], []).append(100 * row["score"])
    low, high = bootstrap([100 * row["score"] for row in rows])
    return fmean(map(fmean, tasks.values())), low, high, {t: fmean(s) for t, s in tasks.items()}


def same_questions(found):
    """Leaves the questions that all runs have."""
    ids = set.intersection(*(set(rows) for rows in found.values()))
    if not ids:
        raise TaskError("there is no question that every method has answered")
    return {key: {name: row for name, row in rows.items() if name in ids}
            for key, rows in found.items()}


def lines(found):
    """One line of each run, those of a method side by side."""
    order = sorted(found, key=lambda key: (ratio_of(key[2]), key[1], key[0]))
    for key in order:
        rows = list(found[key].values())
        mean, low, high, tasks = score_of(rows)
        yield {"program": key[0], "method": key[1], "ratio": ratio_of(key[2]), "n": len(rows),
               "score": mean, "low": low, "high": high,
               "held": fmean(row["bytes"] for row in rows), "tasks": tasks}


def pairs(found):
    for key, ours in sorted(found.items(), key=lambda run: (ratio_of(run[0][2]), run[0])):
        theirs = found.get((THEIRS, *key[1:]))
        if key[0] == OURS and theirs is not None:
            ids = list(ours)
            same = sum(ours[i]["answer"].strip() == theirs[i]["answer"].strip() for i in ids)
            test = compare([ours[i]["score"] for i in ids], [theirs[i]["score"] for i in ids])
            yield [key[1], ratio_of(key[2]), str(len(ids)), str(same), str(test["better"]),
                   str(test["worse"]), f"{test['p']:.2g}"]


def md(found):
    table = list(lines(found))
    yield "Score: mean over tasks [95 % interval of the mean over questions]; held: bytes of " \
          "keys and values behind the compression, in %."
    yield ""
    yield from md_table(["ratio", "method", "program", "n", "score", "held"], (
        [row["ratio"], row["method"], row["program"], str(row["n"]),
         f"{row['score']:.1f} [{row['low']:.1f}, {row['high']:.1f}]", f"{row['held']:.1f}"]
        for row in table))
    both = list(pairs(found))
    if both:
        yield f"{OURS} and {THEIRS} on the same questions: answers that are the same text, and " \
              "questions on which one of them scores more (exact sign test)."
        yield ""
        yield from md_table(["method", "ratio", "n", "same text", f"{OURS} more",
                             f"{THEIRS} more", "p"], both)


def tsv(found):
    yield "program\tmethod\tratio\ttask\tn\tscore\tlow\thigh\theld"
    for row in lines(found):
        numbers = (f"{row[name]:.6g}" for name in ("score", "low", "high", "held"))
        yield "\t".join([row["program"], row["method"], row["ratio"], "all", str(row["n"]),
                         *numbers])
        for task, score in row["tasks"].items():
            yield "\t".join([row["program"], row["method"], row["ratio"], task, "",
                             f"{score:.6g}", "", "", f"{row['held']:.6g}"])


def main():
    options = parse()
    rows = list(our_rows(options.files))
    if options.kvpress:
        rows += their_rows(options.kvpress, read_records(options.task))
    found = same_questions(gather(rows))
    for path in options.table:
        write_lines(path, md(found) if path.endswith(".md") else tsv(found))


if __name__ == "__main__":
    run(main)
