#!/usr/bin/env python3
"""The ids that kvpipe and llama.cpp give to the same texts, by the vocabulary of a GGUF file.

    experiments/gguf_ids.py [-n 300] [--seed 3] FILE.gguf ...

The texts are made of words of 20 ranges of Unicode, combining marks, emoji, digits, contractions
and spaces of all kinds. Needs llama-cpp-python; kv-tokenize comes from the PATH.
"""

import argparse
import pathlib
import random
import subprocess

from task_records import TaskError, run

RANGES = ((0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x4ff), (0x590, 0x6ff),
          (0x900, 0x97f), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x2000, 0x206f), (0x20a0, 0x20cf),
          (0x2190, 0x21ff), (0x2460, 0x24ff), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
          (0xfe00, 0xfe0f), (0xff01, 0xffee), (0x1d400, 0x1d7ff), (0x1f300, 0x1faff),
          (0x20000, 0x2a6df))
WORDS = ("the", "harbour", "'s", "'LL", "don't", "2026", "3.14", "1234567", "x_y", "C++",
         "e\u0301", "\u00e9", "\u2163\u00bd", "\u200d", "\U0001f469\u200d\U0001f467",
         "\U0001f1e9\U0001f1ea", "\ufb01")
SPACES = (" ", " ", " ", "", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000")


def text_of(rng):
    parts = []
    for _ in range(rng.randint(1, 24)):
        kind, (first, last) = rng.random(), rng.choice(RANGES)
        if kind < 0.45:
            parts += [chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8))]
        elif kind < 0.6:
            parts.append(rng.choice(WORDS))
        parts.append(rng.choice(SPACES))
    return "".join(parts)


def ours(file, text):
    done = subprocess.run(["kv-tokenize", "-q", "--plain", "--no-template", "-m", file, "-"],
                          input=text.encode(), stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise TaskError(f"kv-tokenize ended with status {done.returncode}")
    return [int(token) for token in done.stdout.split()]


def compare(file, texts):
    import llama_cpp
    llama = llama_cpp.Llama(file, vocab_only=True, verbose=False)
    same = ids = 0
    first = None
    for text in texts:
        theirs = llama.tokenize(text.encode(), add_bos=False, special=False)
        ids += len(theirs)
        if ours(file, text) == theirs:
            same += 1
        else:
            first = first or text
    print(f"{pathlib.Path(file).name}: {same} of {len(texts)} texts have the same ids, of {ids}",
          f"; the first that has not: {first!r}" if first else "", sep="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE.gguf")
    parser.add_argument("-n", type=int, default=300, help="texts (300)")
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    texts = [text for text in (text_of(rng) for _ in range(options.n)) if text.strip()]
    for file in options.files:
        compare(file, texts)


if __name__ == "__main__":
    run(main)
