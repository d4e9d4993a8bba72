#!/usr/bin/env python3
"""Copies a snapshot as if it were of the weights in another folder: reweigh.py [--samples] MODEL IN
OUT. With --samples as older programs called them. With the independent reader, writer and
fingerprint, because no program does that."""

import json
import pathlib
import subprocess
import sys

import sections

FINGERPRINT = pathlib.Path(__file__).resolve().parents[1] / "oracle/fingerprint.py"


def main(rule, model, path, out):
    digits = subprocess.run([sys.executable, FINGERPRINT, *rule, model], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.strip()

    def edited(section, content):
        if section.type != "HEAD":
            return content
        head = json.loads(content)
        head["model"]["weights"] = digits
        if rule:
            head["model"].pop("weights_rule", None)
        return json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    sections.write(out, [(s, edited(s, content)) for s, content in sections.read(path)])


if __name__ == "__main__":
    main([a for a in sys.argv[1:] if a == "--samples"],
         *[a for a in sys.argv[1:] if a != "--samples"])
