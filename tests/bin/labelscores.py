#!/usr/bin/env python3
"""Copies a snapshot with other labels of its scores, one for each layer: labelscores.py IN OUT
LABEL ...

With the independent reader and writer."""

import sys

import sections

LABEL = 192


def labelled(path, labels):
    for section, content in sections.read(path):
        if section.type == "sCOR":
            content = labels[section.layer].encode().ljust(LABEL, b"\0") + content[LABEL:]
        yield section, content


def main(path, out, *labels):
    sections.write(out, list(labelled(path, labels)))


if __name__ == "__main__":
    main(*sys.argv[1:])
