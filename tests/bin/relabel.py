#!/usr/bin/env python3
"""Copies a snapshot with a text of one's own wherever a snapshot holds text: relabel.py TEXT IN OUT. That is the architecture, the
labels of scores and of attention paid, and a line of provenance. With the independent reader and writer, because no program does
that."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "format"), str(ROOT / "formats" / "vectors")]
import kvread  # noqa: E402
import kvwrite  # noqa: E402

LABEL = 192


def relabelled(section, content, text):
    if section.type == "HEAD":
        head = json.loads(content)
        head["model"]["architecture"] = text
        return json.dumps(head, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if section.type in ("sCOR", "pAID"):
        return text.encode().ljust(LABEL, b"\0") + content[LABEL:]
    if section.type == "pROv":
        return json.dumps({"tool": text, "version": text, "options": {text: text}}).encode() + b"\n"
    return content


def main(text, path, out):
    sections = []
    with open(path, "rb") as file:
        source = kvread.Source(file)
        kvread.read_preamble(source, kvread.Snapshot())
        while True:
            section = kvread.read_header(source)
            content = bytes(kvread.read_content(source, section))
            if section.type == "ENDS":
                break
            if section.type not in ("pADD", "iNDX"):
                sections.append(kvwrite.Section(section.type, relabelled(section, content, text), section.layer,
                                                section.element))
    pathlib.Path(out).write_bytes(kvwrite.stream(sections))


if __name__ == "__main__":
    main(*sys.argv[1:])
