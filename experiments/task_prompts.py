"""From a question to what the model reads, and how many tokens that is.

The prompt is context + question in the user's turn of the model's chat template, and the answer
prefix at the beginning of the model's turn. With `--chat none` it is a text without turns:
context, question, and behind a newline the answer prefix. kv-chat and kv-tokenize make the ids;
they come from the PATH, or from build/ (or the folder that O names).
"""

import json
import os
import subprocess

from task_records import TaskError

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ("whole", "context", "question")


def find_programs():
    """Programs that are run find those of the tree behind the PATH's, and Python kvsnapshot."""
    build = os.path.join(HERE, "..", os.environ.get("O", "build"))
    os.environ["PATH"] += os.pathsep + os.path.abspath(build)
    python = os.path.abspath(os.path.join(HERE, "..", "python"))
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{given}{os.pathsep}{python}" if given else python


def question_in_context(record):
    """The record with its question at the end of the context: behind both come only the end of the
    user's turn and the beginning of the answer."""
    return {**record, "context": record["context"] + record["question"], "question": "",
            "asked": record["question"]}


def plain_text(record, part):
    asked = record["question"] or record.get("asked")
    end = record["question"] + "\n" * bool(asked and record["answer_prefix"])
    return {"whole": record["context"] + end + record["answer_prefix"],
            "context": record["context"],
            "question": end + record["answer_prefix"]}[part]


def messages(record, part):
    """The turns of a part of the prompt: its context is all of the user's turn so far."""
    text = {"whole": record["context"] + record["question"], "context": record["context"],
            "question": record["question"]}[part]
    turns = [{"role": "user", "content": text}]
    if record["answer_prefix"] and part != "context":
        turns.append({"role": "assistant", "content": record["answer_prefix"]})
    return turns


def call(command, text):
    try:
        done = subprocess.run(command, input=text.encode("utf-8"), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise TaskError(f"{command[0]}: {error.strerror} (is it built?)") from None
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip()
        if command[0] == "kv-chat" and "--template" not in command:
            message += " (--chat NAME takes another one, --chat none takes none)"
        raise TaskError(message)
    return done.stdout


class Tokenizer:
    """Token ids of texts and prompts for one model."""

    def __init__(self, model, chat=None):
        self.model, self.chat = model, chat

    def prompt_ids(self, record, part="whole"):
        """The ids of the prompt, or of its context or its question, which together are the prompt.

        Parts are tokenised apart, so they may differ from the whole where a word goes across the
        cut: contexts end with a newline.
        """
        if self.chat == "none":
            command = ["kv-tokenize", "-q", "-m", self.model]
            if part == "question":
                command.append("--continue")
            return ids_of(call(command + ["--plain"], plain_text(record, part)))
        turns = messages(record, part)
        command = ["kv-chat", "-q", "-m", self.model]
        if self.chat:
            command += ["--template", self.chat]
        if part == "question":
            command.append("--continue")
        if part == "context" or turns[-1]["role"] == "assistant":
            command.append("--open")
        return ids_of(call(command, json.dumps(turns)))

    def count(self, record):
        return len(self.prompt_ids(record))

    def text_ids(self, text, behind=False):
        """The ids of a text without what a template puts around it; behind: as it continues
        another."""
        command = ["kv-tokenize", "-q", "-m", self.model, "--plain",
                   "--continue" if behind else "--no-template"]
        return ids_of(call(command, text))

    def text(self, ids):
        lines = "".join(f"{i}\n" for i in ids)
        text = call(["kv-tokenize", "-q", "-m", self.model, "-d", "--plain"], lines)
        return text.decode("utf-8")


def ids_of(output):
    return [int(line) for line in output.split()]


def read_number(model, key):
    """A whole number of the model's configuration, None where it does not say."""
    path = os.path.join(model, "config.json")
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise TaskError(f"{path}: {error}") from None
    for part in (config, config.get("text_config")) if isinstance(config, dict) else ():
        number = part.get(key) if isinstance(part, dict) else None
        if isinstance(number, int):
            return number
    return None


def read_positions(model):
    """How many positions the model has, None where its configuration does not say."""
    return read_number(model, "max_position_embeddings")
