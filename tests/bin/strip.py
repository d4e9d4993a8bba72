#!/usr/bin/env python3
"""Copies a snapshot without the sections of one type, or without that of one layer: strip.py TYPE IN OUT [LAYER]. With the
independent reader and writer, so that tests can make files that the tools never write."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "format"), str(ROOT / "formats" / "vectors")]
import kvread  # noqa: E402
import kvwrite  # noqa: E402


def main(drop, path, out, layer=None):
    kept = []
    with open(path, "rb") as file:
        source = kvread.Source(file)
        kvread.read_preamble(source, kvread.Snapshot())
        while True:
            section = kvread.read_header(source)
            content = kvread.read_content(source, section)
            if section.type == "ENDS":
                break
            if section.type == drop and layer in (None, str(section.layer)):
                continue
            if section.type not in ("pADD", "iNDX"):
                kept.append(kvwrite.Section(section.type, content, section.layer, section.element))
    pathlib.Path(out).write_bytes(kvwrite.stream(kept))


if __name__ == "__main__":
    main(*sys.argv[1:])
