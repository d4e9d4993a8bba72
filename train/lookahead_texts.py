"""Texts that a machine has: manual pages, documentation of packages, docstrings of Python.

Each file becomes paragraphs of plain prose. Licences are left out, by the name of the file and by
the words of a paragraph: they serve to try the result on text of another kind.
Standard library only.
"""

import ast
import glob
import gzip
import hashlib
import os
import random
import re

from failures import Refused

LICENCE_FILES = re.compile(r"licen[cs]e|copying|copyright|gpl|artistic|common-licenses", re.I)
LICENCE_WORDS = re.compile(r"licen[cs]|copyright|warrant|redistribut|liabilit|gnu general", re.I)
PATTERNS = {
    "manual": ("/usr/share/man/man[1-8]*/*.gz",),
    "documentation": ("/usr/share/doc/*/README*", "/usr/share/doc/*/NEWS*",
                      "/usr/share/doc/*/*.txt*", "/usr/share/doc/*/*.md*",
                      "/usr/share/doc/*/TODO*", "/usr/share/doc/*/FAQ*",
                      "/usr/share/doc/*/*/*.txt*"),
    "docstrings": ("/usr/lib/python3*/*.py", "/usr/lib/python3*/[a-z]*/*.py",
                   "/usr/local/lib/python3*/*.py", "/usr/local/lib/python3*/[a-z]*/*.py"),
}
SHORTEST, LONGEST = 120, 900            # characters of a paragraph
LARGEST = 400_000                       # bytes of a file
ALIKE = 10                              # files whose names begin alike, git-add and git-am


class Source:
    """A file and its paragraphs."""

    def __init__(self, path, kind, paragraphs, digest):
        self.path, self.kind, self.paragraphs, self.digest = path, kind, paragraphs, digest
        # by the content, so that the same page in two places is not in both parts
        self.held_out = int(digest[:4], 16) % 10 == 0


def read_bytes(path):
    opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
    with opened as file:
        return file.read(LARGEST)


def roff_to_text(text):
    """Prose of a manual page: requests are dropped, escapes resolved, roughly."""
    text = re.sub(r"\\f(\[[^]]*\]|\(..|.)|\\&|\\s[-+]?\d", "", text)
    text = re.sub(r"\\\(aq|\\\(oq|\\\(cq", "'", text)
    text = re.sub(r"\\-|\\\(em|\\\(en", "-", text)
    text = re.sub(r"\\(\(..|\[[^]]*\]|e|.)", "", text)
    pieces = []
    for piece in re.split(r"\n\.[A-Z][^\n]*\n", text):
        pieces.append("\n".join(line for line in piece.split("\n")
                                if not line.startswith((".", "'"))))
    return "\n\n".join(pieces)


def docstrings(text):
    """All docstrings of a Python file, one after the other."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(ast.get_docstring(node) or "")
    return "\n\n".join(found)


def is_prose(paragraph):
    if not SHORTEST <= len(paragraph) <= LONGEST or LICENCE_WORDS.search(paragraph):
        return False
    letters = sum(c.isalpha() or c == " " for c in paragraph)
    return letters > 0.85 * len(paragraph) and paragraph.count(".") >= 1


def paragraphs_of(path, kind, data):
    text = data.decode("utf-8", "replace")
    if kind == "manual":
        text = roff_to_text(text)
    elif kind == "docstrings":
        text = docstrings(text)
    seen, kept = set(), []
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = " ".join(paragraph.split())
        if is_prose(paragraph) and paragraph not in seen:
            seen.add(paragraph)
            kept.append(paragraph)
    return kept


def files_of(patterns, most, rng):
    """Paths in an order by chance, not too many of names that begin alike."""
    paths = sorted({path for pattern in patterns for path in glob.glob(pattern)})
    rng.shuffle(paths)
    begin, kept = {}, []
    for path in paths:
        name = os.path.basename(path)
        if LICENCE_FILES.search(path) or "test" in path or not os.path.isfile(path):
            continue
        family = re.split(r"[-_.:]", name)[0] if "/man/" in path else os.path.dirname(path)
        begin[family] = begin.get(family, 0) + 1
        if begin[family] <= ALIKE or "/python3" in path:
            kept.append(path)
    return kept[:most]


def load_sources(seed, most=900):
    """Sources with two paragraphs at least; at most `most` files are read of each kind."""
    rng, sources, seen = random.Random(f"texts {seed}"), [], set()
    for kind, patterns in PATTERNS.items():
        for path in files_of(patterns, most, rng):
            try:
                data = read_bytes(path)
                paragraphs = paragraphs_of(path, kind, data)
            except (OSError, EOFError, SyntaxError, ValueError):
                continue
            digest = hashlib.sha256(data).hexdigest()
            if len(paragraphs) >= 2 and digest not in seen:
                seen.add(digest)
                sources.append(Source(path, kind, paragraphs, digest))
    return sources


def load_folder(folder):
    """Sources of a folder of *.txt files: paragraphs have an empty line between them.

    A tenth of the files is held out, one at least: there may be few.
    """
    sources = []
    for path in sorted(glob.glob(os.path.join(folder, "**", "*.txt"), recursive=True)):
        data = read_bytes(path)
        paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", data.decode("utf-8"))]
        paragraphs = [p[:LONGEST] for p in paragraphs if len(p) >= SHORTEST]
        if paragraphs:
            sources.append(Source(path, "folder", paragraphs, hashlib.sha256(data).hexdigest()))
    by_content = sorted(sources, key=lambda source: source.digest)
    for place, source in enumerate(by_content):
        source.held_out = place < max(1, len(sources) // 10)
    return sources


def load_parts(folder, seed):
    """(sources to train with, held-out ones) of a folder, or where that is None of this machine."""
    sources = load_folder(folder) if folder else load_sources(seed)
    parts = [s for s in sources if not s.held_out], [s for s in sources if s.held_out]
    if not all(parts):
        raise Refused(f"{folder or 'this machine'}: too few texts "
                      f"({len(parts[0])} to train with, {len(parts[1])} held out)")
    return parts
