"""Questions as JSON lines: what the programs of this folder read and write.

A record has the members of FIELDS. Messages about a file name the line. Programs write nothing
until all of it is known to be good.
"""

import json
import re
import sys

UNGRADED = "none"       # the metric of a record whose answer is forced (kv-decode --force)
FIELDS = ("id", "task", "context", "question", "answer_prefix", "answers", "metric", "new_tokens",
          "length", "tokens", "depth", "seed")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
KINDS = {"a text": str, "a number": (int, float), "a list": list}


class TaskError(Exception):
    """What the user must know: the message says which file and line."""

    def __init__(self, message, status=2):
        super().__init__(message)
        self.status = status    # as kvpipe(7), EXIT STATUS has it


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def read_lines(path):
    """(number, text) of the lines of a file that are not blank; `-` is standard input."""
    try:
        with open(0 if path == "-" else path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise TaskError(f"{path}:{number}: not UTF-8 at byte {error.start + 1} "
                                    "of the line") from None
                if text.strip():
                    yield number, text
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from None


def read_objects(path):
    """(number, object) of the lines of a file, one of them at least."""
    found = False
    for number, text in read_lines(path):
        try:
            value = json.loads(text, parse_constant=refuse_constant)
            text = json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise TaskError(f"{path}:{number}: half of a surrogate pair in a text") from None
        except (ValueError, RecursionError) as error:
            what = getattr(error, "msg", None) or str(error)
            at = f" (character {error.pos + 1})" if hasattr(error, "pos") else ""
            raise TaskError(f"{path}:{number}: not JSON: {what}{at}") from None
        if not isinstance(value, dict):
            raise TaskError(f"{path}:{number}: not a JSON object")
        found = True
        yield number, value
    if not found:
        raise TaskError(f"{path}: there is no line in it")


def need(where, row, name, kind):
    """The member `name`, which must be there and of a kind of KINDS."""
    if name not in row:
        raise TaskError(f"{where}: there is no {name}")
    if not isinstance(row[name], KINDS[kind]) or isinstance(row[name], bool):
        raise TaskError(f"{where}: {name} is not {kind}")
    return row[name]


def need_answers(where, answers):
    """Answers, or one, as a list of texts that are not empty."""
    if isinstance(answers, str):
        answers = [answers]
    if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
        raise TaskError(f"{where}: answers are neither a text nor a list of texts")
    if not answers:
        raise TaskError(f"{where}: the list of answers is empty")
    if not all(a.strip() for a in answers):
        raise TaskError(f"{where}: an answer is empty")
    return answers


def read_records(path):
    """The records of a file that make_task.py or read_benchmark.py wrote, by id, in their order."""
    records = {}
    for number, row in read_objects(path):
        where = f"{path}:{number}"
        name = need(where, row, "id", "a text")
        if name in records:
            raise TaskError(f"{where}: there is a question {name} before")
        for field in ("task", "context", "question", "answer_prefix", "metric"):
            need(where, row, field, "a text")
        need_answers(where, need(where, row, "answers", "a list"))
        records[name] = row
    return records


def write_objects(rows):
    """Rows as lines to standard output."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


def run(main):
    """Calls a program; ends with one line where something is wrong, and with 2, as argparse does,
    or what the error says."""
    try:
        sys.exit(main())
    except TaskError as error:
        print(f"{sys.argv[0].rpartition('/')[2]}: {error}", file=sys.stderr)
        sys.exit(error.status)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
