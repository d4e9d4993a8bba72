#!/usr/bin/env python3
"""The text itself, coloured by how many KV heads of all layers keep each token: one HTML file.

    experiments/kept_text.py -m MODEL SNAPSHOT ... > page.html

MODEL is the folder whose tokenizer made the text. A token shows its position and its counts in each
layer under the pointer. Several snapshots are tabs.
"""

import argparse
import sys

from kept_page import page
from kept_rows import UNSUPPORTED, labels, need_package, read_kept
from task_prompts import find_programs
from task_records import TaskError, run
from token_texts import token_texts

MOST_COUNTS = 1 << 25       # tokens x layers of all snapshots


class Counter:
    """A fold for read_kept(): [T] how many KV heads of a layer keep each token."""

    def __init__(self):
        self.left = MOST_COUNTS

    def __call__(self, positions, tokens):
        import numpy
        self.left -= tokens
        if self.left < 0:
            raise TaskError(f"more than {MOST_COUNTS} tokens x layers are too many for one page",
                            UNSUPPORTED)
        counts = numpy.zeros(tokens, numpy.uint32)
        for one in positions:
            counts[numpy.asarray(one, numpy.int64)] += 1
        return counts.tolist()


class View:
    """What a page shows of a snapshot."""

    def __init__(self, name, kept, provenance, groups):
        self.name, self.groups, self.made = name, groups, provenance
        self.share, self.heads, self.layers = kept.share, kept.heads, kept.layers
        self.most = kept.heads * len(kept.layers)
        self.counts = [sum(row) for row in zip(*kept.layers)]


def made_by(kept):
    return "Made by " + " | ".join(
        " ".join([line["tool"], *(f"{k}={value}" for k, value in sorted(line["options"].items()))])
        for line in kept.provenance) + "." if kept.provenance else ""


def main():
    parser = argparse.ArgumentParser(
        description="the text, coloured by how many KV heads keep each token")
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("snapshots", nargs="+", metavar="SNAPSHOT")
    options = parser.parse_args()
    find_programs()
    need_package("numpy")
    counter, texts, views = Counter(), {}, []
    for path, name in zip(options.snapshots, labels(options.snapshots)):
        kept = read_kept(path, counter)
        ids = tuple(kept.tokens)
        if ids not in texts:
            texts[ids] = token_texts(options.model, ids)
        views.append(View(name, kept, made_by(kept), texts[ids]))
    whole = "\n".join(page(views)) + "\n"
    sys.stdout.buffer.write(whole.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(main)
