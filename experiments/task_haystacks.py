"""What needles are hidden in: text of the machine or of the user, or noise.

A haystack is a sequence of words without end: it begins again where it is used up.
    noise       five short sentences over and over, as RULER has them; a line for each five
    licences    the licence texts of a Debian system
    manuals     manual pages of the machine, as prose
    FILE        a text in UTF-8 that the user names, or a folder of *.txt
RULER's essays always begin with their first word. Here each question begins with another sentence,
so that questions differ in more than their needles.
"""

import glob
import hashlib
import os
import re
import sys

from task_records import TaskError

LICENCES = "/usr/share/common-licenses"
MANUALS = "/usr/share/man/man1/*.gz"
MOST_MANUALS = 2000
TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train")
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[\"'(]*[A-Z])")


class Haystack:
    """Words, where sentences begin among them, and what stands between two pieces."""

    def __init__(self, name, text, noise=False):
        self.text, self.noise = text, noise
        words = self.words = text.split()
        self.joint = "\n" if noise else " "
        self.begins = [0] + [i + 1 for i, word in enumerate(words[:-1]) if word[-1] in ".!?"]
        digest = hashlib.sha256(" ".join(words).encode("utf-8")).hexdigest()
        self.name = name if noise else f"{name}@{digest[:8]}"

    def start(self, rng):
        """A place to begin at; one number is drawn in any case."""
        place = rng.choice(self.begins)
        return 0 if self.noise else place

    def pieces(self, start, size):
        """`size` words from a place on, as pieces between which needles may stand."""
        words = [self.words[(start + i) % len(self.words)] for i in range(size)]
        if self.noise:
            line = len(self.words)
            return [" ".join(words[i:i + line]) for i in range(0, size, line)]
        if words and words[-1][-1] not in ".!?":        # a sentence that is cut off ends here
            words[-1] = words[-1].rstrip(",;:") + "."
        return SENTENCE_ENDS.split(" ".join(words)) if words else []


def read_text(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not UTF-8 at byte {error.start + 1}") from None


def read_manuals():
    """Prose of manual pages, read as train/ reads them for its own texts."""
    sys.path.append(TRAIN)
    try:
        import lookahead_texts
    except ImportError:
        raise TaskError(f"haystack manuals: {TRAIN}/lookahead_texts.py is not there") from None
    texts = []
    for path in sorted(glob.glob(MANUALS))[:MOST_MANUALS]:
        try:
            data = lookahead_texts.read_bytes(path)
            texts += lookahead_texts.paragraphs_of(path, "manual", data)
        except (OSError, EOFError):
            continue
    return "\n".join(texts)


def read_folder(folder, pattern):
    paths = sorted(glob.glob(os.path.join(folder, pattern)))
    return "\n".join(read_text(path) for path in paths
                     if os.path.isfile(path) and not os.path.islink(path))


def load_haystack(name):
    if name == "noise":
        return Haystack(name, NOISE, noise=True)
    if name == "licences":
        text, place = read_folder(LICENCES, "*"), LICENCES
    elif name == "manuals":
        text, place = read_manuals(), MANUALS
    elif os.path.isdir(name):
        text, place = read_folder(name, "*.txt"), os.path.join(name, "*.txt")
    else:
        text, place = read_text(name), name
    if not text.split():
        raise TaskError(f"{place}: there is no text")
    return Haystack(os.path.basename(os.path.abspath(name)), text)


def insert(pieces, places):
    """Pieces with (depth, text) between them: a share `depth` of the pieces stands before the text.

    Texts at the same depth stay in their order.
    """
    rows = [(i + 0.5, 0, piece) for i, piece in enumerate(pieces)]
    rows += [(round(depth * len(pieces)), order, text)
             for order, (depth, text) in enumerate(places, 1)]
    rows.sort(key=lambda row: row[:2])
    return [text for _, _, text in rows]
