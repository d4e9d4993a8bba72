#!/usr/bin/env python3
"""Copies a snapshot with a text of one's own wherever a snapshot holds text: relabel.py TEXT IN
OUT. That is the architecture, the labels of scores and of attention paid, and a line of provenance.
With the independent reader and writer, because no program does that."""

import json
import sys

import sections

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
    sections.write(out, [(s, relabelled(s, content, text)) for s, content in sections.read(path)])


if __name__ == "__main__":
    main(*sys.argv[1:])
