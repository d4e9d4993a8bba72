"""What score_agreement.py, retrieval_recall.py, adjacent_overlap.py and tsp_distance.py share:
pipelines over each question of a task (answer_pipes.sh), and results that a second run goes on
with."""

import argparse
import hashlib
import json
import os
import subprocess
import tempfile

from forced_answer import answer_ids
from run_part import build_of_programs, write_ids
from task_prompts import Tokenizer, find_programs
from task_records import TaskError, read_objects, read_records

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = 1     # kvpipe(7), EXIT STATUS
LINE = b'{"task": "'        # that lines of --runs begin with
MEMBERS = {"task": str, "id": str, "name": str, "all": dict, "of": str, "question": str}


def several(kind):
    """A type of argparse: values with commas between, each of them once."""
    def parse(text):
        values = [kind(one) for one in text.split(",")]
        if len(set(values)) != len(values):
            raise argparse.ArgumentTypeError(f"{text}: a value is there twice")
        return values
    parse.__name__ = kind.__name__
    return parse


def named(names, methods):
    """Those of `methods` with these names, which --methods gives."""
    for name in names:
        if name not in methods:
            raise TaskError(f"--methods {name}: there is no such method; there are "
                            f"{', '.join(methods)}")
    return {name: methods[name] for name in names}


def add_arguments(parser):
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("--runs", required=True, metavar="FILE",
                        help="results, a line each; what is there is not measured again")
    parser.add_argument("--table", action="append", default=[], metavar="FILE",
                        help="ends in .md or .tsv; repeatable")
    parser.add_argument("--chat", metavar="NAME", help="another chat template, or none")
    parser.add_argument("--count", type=int, metavar="N", help="only the first N questions of each")
    parser.add_argument("files", nargs="+", metavar="TASK.jsonl")


def add_answer_arguments(parser):
    parser.add_argument("--answer", choices=("full", "right"), default="full",
                        help="whose tokens look: those of the full cache's answer, or of the first "
                        "right one (full)")
    parser.add_argument("--stop", default="", metavar="TEXT", help="ends an answer")
    parser.add_argument("--cache", metavar="DIR",
                        help="keep what the pipelines share (common.sh -c); large")


def stamp(folder):
    """Names, sizes and times of the files of a model folder."""
    try:
        return sorted((entry.name, entry.stat().st_size, int(entry.stat().st_mtime))
                      for entry in os.scandir(folder))
    except OSError as error:
        raise TaskError(f"{folder}: {error.strerror}") from None


class Pipes:
    """Runs shell text over questions of one model."""

    def __init__(self, options, settings=()):
        find_programs()
        self.options, self.settings = options, list(settings)
        self.tokenizer = Tokenizer(options.model, options.chat)
        self.build, self.stamp = build_of_programs(), stamp(options.model)

    def asked_after(self):
        return getattr(self.options, "question", "inside") == "after"

    def digest(self, record, what):
        """Of all that a result of this build comes from."""
        asked = [getattr(self.options, name, None) for name in ("answer", "chat", "stop")]
        asked += ["after"] * self.asked_after()
        text = json.dumps([self.stamp, *asked, self.settings, record, what], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def run(self, where, record, text):
        """Runs it in a folder of its own; the JSON files that it left in $FOUND, by name."""
        with tempfile.TemporaryDirectory() as work:
            prompt, found = os.path.join(work, "prompt.ids"), os.path.join(work, "found")
            cache = self.options.cache or os.path.join(work, "cache")
            os.makedirs(cache, exist_ok=True)
            os.mkdir(found)
            after = self.asked_after()
            write_ids(prompt, self.tokenizer.prompt_ids(record, "context" if after else "whole"))
            command = ["sh", os.path.join(HERE, "answer_pipes.sh"), "-i", "-c", cache,
                       "-m", self.options.model, "-n", str(record.get("new_tokens") or 32)]
            for setting in [f"stop={self.options.stop}"] * bool(self.options.stop) + self.settings:
                command += ["-s", setting]
            environment = {**os.environ, "PIPES": "set -e\n" + text, "FOUND": found, "GIVEN": "",
                           "QUESTION": "",
                           "KVPIPE_METHODS": os.path.join(HERE, "..", "examples", "methods")}
            if after:
                environment["QUESTION"] = os.path.join(work, "question.ids")
                write_ids(environment["QUESTION"], self.tokenizer.prompt_ids(record, "question"))
            if self.options.answer == "right":
                part = "question" if after else "whole"
                environment["GIVEN"] = os.path.join(work, "right.ids")
                write_ids(environment["GIVEN"], answer_ids(self.tokenizer, record, part))
            done = subprocess.run([*command, prompt], env=environment, check=False)
            if done.returncode:
                raise TaskError(f"{where}: its pipelines ended with {done.returncode}", RUN)
            return {name: read_json(os.path.join(found, name)) for name in os.listdir(found)}


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def drop_cut_line(path, begin):
    """Drops a last line that is cut off, as a kill leaves it; lines of the program begin so.
    Returns whether a line is there."""
    try:
        with open(path, "ab+") as file:
            file.seek(0)
            data = file.read()
            whole = data.rfind(b"\n") + 1
            if not data[whole:].startswith(begin[:len(data) - whole]):
                raise TaskError(f"{path}: its last line is not of this program")
            file.truncate(whole)
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}", RUN) from None
    return whole > 0


def read_runs(path):
    """digest -> line"""
    runs = {}
    for number, row in read_objects(path) if drop_cut_line(path, LINE) else ():
        if not all(isinstance(row.get(name), kind) for name, kind in MEMBERS.items()):
            raise TaskError(f"{path}:{number}: not a line of this program")
        runs[row["of"]] = row
    return runs


def questions(options):
    """(where, record) of all files."""
    for path in options.files:
        records = list(read_records(path).values())
        for record in records[:options.count]:
            yield f"{path}: {record['id']}", record


def measure(options, pipes, whats, measure_one):
    """The lines for all questions and all of whats (name -> what its result depends on); those that
    are not in --runs are measured by measure_one(where, record, names), which gives a line for each
    name, and are added to it."""
    runs, lines = read_runs(options.runs), []
    for where, record in questions(options):
        question = pipes.digest(record, "")
        keys = {name: pipes.digest(record, [name, what]) for name, what in whats.items()}
        missing = [name for name in whats if keys[name] not in runs]
        if missing:
            measured = measure_one(where, record, missing)
            for name in missing:
                runs[keys[name]] = {"task": record["task"], "id": record["id"], "name": name,
                                    **measured[name], "build": pipes.build, "of": keys[name],
                                    "question": question}
            append(options.runs, [runs[keys[name]] for name in missing])
        lines += [runs[keys[name]] for name in whats]
    return lines


def append(path, rows):
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}", RUN) from None
