#!/usr/bin/env python3
"""Copies a snapshot with gate scores, in place of those that it may have: addgate.py LABEL IN OUT.

A row's score is a sine that depends on its layer, KV head and position, so that a row keeps it
while others go. With the independent reader and writer."""

import math
import struct
import sys

import sections
from sections import kvread, kvwrite

LABEL = 192


def scores(positions, l, label):
    numbers = [math.sin(1 + 37 * l + 11 * g + 1.3 * p)
               for g, held in enumerate(positions) for p in held]
    return label.encode().ljust(LABEL, b"\0") + struct.pack(f"<{len(numbers)}f", *numbers)


def gated(path, label):
    with open(path, "rb") as file:
        layers = kvread.read(file).layers
    done = -1                           # the last layer that has its scores
    for section, content in sections.read(path):
        if section.type == "gATE":
            continue
        l = section.layer
        if section.type in ("nCAU", "sCOR", "KEYS") and l > done:
            gate = kvwrite.Section("gATE", layer=l, element=4)
            yield gate, scores(layers[l].positions, l, label)
            done = l
        yield section, content


def main(label, path, out):
    sections.write(out, list(gated(path, label)))


if __name__ == "__main__":
    main(*sys.argv[1:])
