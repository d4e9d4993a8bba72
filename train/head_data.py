"""Training texts: files and man pages as token ids, documents with passkeys, windows of plain text.

Every sample is a function of (seed, step, number in the batch): nothing has to be kept so that an
interrupted run goes on as if it had not been interrupted.
"""

import dataclasses
import gzip
import hashlib
import json
import os
import random
import re

from failures import BrokenFile, Refused

MAN = "/usr/share/man"
MAN_PAGE = re.compile(r"\.[1-9][a-z0-9]*(\.gz)?$")
# Licences are what methods are judged on elsewhere: they are held out, whatever folder they are in.
HELD_OUT_PATH = re.compile(r"licen[cs]e|copying|copyright|artistic|(^|[^a-z])[al]?gpl", re.I)
HELD_OUT_TEXT = re.compile(r"TERMS AND CONDITIONS|Licensed under the Apache License, Version")
HELD_OUT_FOLDER = "/common-licenses/"
MULTIPLE = 16                           # of a document's tokens
DEPTHS = 1000                           # places between the first and the last depth
FIRST_DEPTH, LAST_DEPTH = 0.05, 0.95


def seeded(*what):
    """A generator that depends on these values only."""
    return random.Random(" ".join(map(str, what)))


def plain(troff):
    """The running text of a man page."""
    text = re.sub(r"\\f(\(..|\[.*?\]|.)|\\s[-+]?\d|\\&|\\\|", "", troff)
    text = re.sub(r"\\\((em|en|hy)", "-", text.replace("\\-", "-").replace("\\e", "\\"))
    text = re.sub(r"\\\((..)|\\\[.*?\]", "", text)
    paragraphs, lines = [], []
    for line in text.split("\n"):
        if line[:1] not in (".", "'"):
            lines.append(line.strip())
        elif lines and re.match(r"\.(SH|SS|Sh|Ss|PP|Pp|P|LP|TP|IP|It)\b", line):
            paragraphs.append(" ".join(lines))
            lines = []
        elif re.match(r"\.([BI]|[BIR]{2}|[A-Z][a-z])\s", line):
            lines.append(re.sub(r"^\S+\s+", "", line).replace('"', ""))
    paragraphs.append(" ".join(lines))
    return "\n\n".join(" ".join(part.split()) for part in paragraphs if part.strip())


def read_text(path, named):
    """The text of a file; '' where it is none for training. `named`: the user named it."""
    if HELD_OUT_PATH.search(os.path.basename(path)) or HELD_OUT_FOLDER in os.path.realpath(path):
        if named:
            raise Refused(f"{path}: licence texts are held out, to judge on")
        return ""
    try:
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as file:
            data = file.read()
    except (OSError, EOFError) as problem:
        raise BrokenFile(f"{path}: {getattr(problem, 'strerror', None) or problem}") from None
    page = MAN_PAGE.search(path) is not None
    try:
        text = data.decode(errors="replace" if page else "strict")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise BrokenFile(f"{path}: line {line}: this is no UTF-8 text") from None
    if "\0" in text:
        raise BrokenFile(f"{path}: line {text.count(chr(10), 0, text.index(chr(0))) + 1}: "
                         "this is no text")
    text = plain(text) if page else text
    if HELD_OUT_TEXT.search(text):
        if named:
            raise Refused(f"{path}: licence texts are held out, to judge on")
        return ""
    return text


def list_files(sources):
    """(path, named by the user), folders in order of names."""
    files = []
    for source in sources:
        if not os.path.isdir(source):
            files.append((source, True))
            continue
        for folder, folders, names in os.walk(source):
            folders.sort()
            files += [(os.path.join(folder, name), False) for name in sorted(names)
                      if os.path.isfile(os.path.join(folder, name))]
    return files


def default_files():
    """The English manual pages of this machine, links left out."""
    folders = [entry for entry in list_folder(MAN) if re.fullmatch(r"man\d", entry.name)]
    pages = [(entry.path, False) for folder in folders for entry in list_folder(folder.path)
             if MAN_PAGE.search(entry.name) and not entry.is_symlink()]
    if not pages:
        raise Refused(f"there are no manual pages in {MAN}: name texts with --texts")
    return pages


def list_folder(path):
    return sorted(os.scandir(path), key=lambda entry: entry.name) if os.path.isdir(path) else []


class Texts:
    """Documents as lists of token ids: all files that the user named, and of those in folders, in
    an order that the seed gives, as many as make `tokens` of them all together."""

    def __init__(self, sources, tokenizer, tokens, seed):
        files = list_files(sources) if sources else default_files()
        seeded(seed, "files").shuffle(files)
        files.sort(key=lambda file: not file[1])
        self.documents, self.size = [], 0
        digest = hashlib.sha256()
        for path, named in files:
            if self.size >= tokens and not named:
                break
            ids = tokenizer(read_text(path, named), add_special_tokens=False,
                            verbose=False).input_ids
            if ids:
                self.documents.append(ids)
                self.size += len(ids)
                digest.update(repr(ids).encode())
        self.digest = digest.hexdigest()[:16]
        if not self.documents:
            raise Refused("there is no text in " + ", ".join(sources or [MAN]))

    def run_of(self, rng, tokens, between):
        """So many tokens: from a document that is long enough from any place of it, else whole
        documents behind each other, `between` them."""
        at = rng.randrange(len(self.documents))
        ids = self.documents[at]
        if len(ids) >= tokens:
            start = rng.randrange(len(ids) - tokens + 1)
            return ids[start:start + tokens]
        ids = list(ids)
        while len(ids) < tokens:
            at = (at + 1) % len(self.documents)
            ids += between + self.documents[at]
        return ids[:tokens]


@dataclasses.dataclass
class Task:
    """The words of a document with passkeys. Defaults are those of DuoAttention's data.py,
    spelling included; a JSON file changes any of them."""

    begin: str = "<|im_start|> This is a very long story book: <book> "
    end: str = " </book>.\n\n"
    before_needle: str = "\n\n"
    needle: str = "Remeber this sequence of words, it's the {name} passkey to the vault: "
    after_needle: str = "\n\n"
    question: str = ("Based on the content of the book, what is the {name} passkey to the vault?\n"
                     "Passkey: ")
    after_answer: str = "\n\n"
    key: str = ""                       # in front of the words of a passkey
    names: list = dataclasses.field(default_factory=lambda: (
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth "
        "twentieth").split())
    words: list = dataclasses.field(default_factory=lambda: (
        "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november "
        "oscar papa quebec romeo sierra tango uniform victor whiskey xray yankee zulu").split())
    draw_names: bool = False            # names in random order instead of the first ones


def read_task(path):
    """A Task from a JSON file, or the default."""
    if path is None:
        return Task()
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except json.JSONDecodeError as problem:
        raise BrokenFile(f"{path}: line {problem.lineno}: {problem.msg}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise BrokenFile(f"{path}: {getattr(problem, 'strerror', None) or 'not text'}") from None
    kinds = {field.name: type(getattr(Task(), field.name)) for field in dataclasses.fields(Task)}
    if not isinstance(values, dict):
        raise BrokenFile(f"{path}: line 1: this is no JSON object")
    for name, value in values.items():
        if name not in kinds:
            raise BrokenFile(f"{path}: there is no {name!r}, only " + ", ".join(kinds))
        if not isinstance(value, kinds[name]) or (
                isinstance(value, list) and not (value and all(isinstance(x, str) for x in value))):
            raise BrokenFile(f"{path}: {name!r} must be a {kinds[name].__name__}"
                             + (" of texts" if kinds[name] is list else ""))
    return Task(**values)


@dataclasses.dataclass
class Sample:
    ids: list
    labels: list                        # [T] bool: of a question, its answer and what ends it
    answers: list                       # [T] bool: of an answer only


class Passkeys:
    """Documents of haystack with needles at random depths, all asked for at the end."""

    def __init__(self, texts, tokenizer, task, lengths, passkeys, words):
        if passkeys > len(task.names):
            raise Refused(f"there are {len(task.names)} names for {passkeys} passkeys")
        self.texts, self.tokenizer, self.task = texts, tokenizer, task
        self.lengths, self.passkeys, self.words = lengths, passkeys, words
        self.begin = tokenizer(task.begin).input_ids
        self.end = self.encode(task.end)
        most = self.most_tokens()
        if min(lengths) <= most:
            raise Refused(f"{passkeys} passkeys of {words} words need up to {most} tokens, and the "
                          f"shortest text has {min(lengths)}")

    def most_tokens(self):
        """Tokens of a document without haystack, at most."""
        task = self.task
        word = max(len(self.encode(before + word)) for word in task.words for before in ("", " "))
        each = max(len(self.encode(task.needle.format(name=name)))
                   + len(self.encode(task.question.format(name=name))) for name in task.names)
        each += sum(len(self.encode(text)) for text in
                    (task.before_needle, task.after_needle, task.after_answer, task.key, task.key))
        return len(self.begin + self.end) + self.passkeys * (each + 2 * self.words * word)

    def encode(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def length(self, seed, number):
        """Every length once before one comes again, in random order."""
        rounds, place = divmod(number, len(self.lengths))
        order = list(self.lengths)
        seeded(seed, "lengths", rounds).shuffle(order)
        return order[place]

    def draw(self, seed, number):
        """The sample of this number. Its length is that of the list, rounded up to 16."""
        rng, task = seeded(seed, "passkeys", number), self.task
        names = rng.sample(task.names, self.passkeys) if task.draw_names \
            else task.names[:self.passkeys]
        keys = [self.encode(task.key + " ".join(rng.choices(task.words, k=self.words)))
                for _ in names]
        needles = [self.encode(task.before_needle) + self.encode(task.needle.format(name=name))
                   + key + self.encode(task.after_needle) for name, key in zip(names, keys)]
        questions = [self.encode(task.question.format(name=name)) for name in names]
        behind = self.encode(task.after_answer)
        total = -(-self.length(seed, number) // MULTIPLE) * MULTIPLE
        room = total - sum(map(len, [self.begin, self.end] + needles + questions + keys)) \
            - len(behind) * len(keys)
        hay = self.texts.run_of(rng, room, self.encode("\n\n"))
        places = sorted(rng.sample(range(DEPTHS), self.passkeys))
        ids, last = list(self.begin), 0
        for place, needle in zip(places, needles):
            depth = FIRST_DEPTH + (LAST_DEPTH - FIRST_DEPTH) * place / (DEPTHS - 1)
            ids += hay[last:int(room * depth)] + needle
            last = int(room * depth)
        ids += hay[last:] + self.end
        labels, answers = [False] * len(ids), [False] * len(ids)
        for question, key in zip(questions, keys):
            ids += question + key + behind
            labels += [True] * (len(question) + len(key) + len(behind))
            answers += [False] * len(question) + [True] * len(key) + [False] * len(behind)
        return Sample(ids, labels, answers)


class Windows:
    """Plain text of so many tokens, behind the token that the tokenizer begins a text with."""

    def __init__(self, texts, tokenizer, length):
        self.texts, self.length = texts, length
        self.begin = tokenizer("").input_ids
        self.between = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []

    def draw(self, seed, number):
        rng = seeded(seed, "windows", number)
        return Sample(self.begin + self.texts.run_of(rng, self.length - len(self.begin),
                                                     self.between), [], [])
