#!/usr/bin/env python3
"""Copies a snapshot without the sections of one type, or without that of one layer: strip.py TYPE
IN OUT [LAYER]. With the independent reader and writer, so that tests can make files that the tools
never write."""

import sys

import sections


def main(drop, path, out, layer=None):
    sections.write(out, [(s, content) for s, content in sections.read(path)
                         if not (s.type == drop and layer in (None, str(s.layer)))])


if __name__ == "__main__":
    main(*sys.argv[1:])
