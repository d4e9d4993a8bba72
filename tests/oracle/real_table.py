#!/usr/bin/env python3
"""real_table.py METHODS CARD TABLE: the table of every method, as compare.sh -T has written it,
as TAP

METHODS is examples/methods; CARD is examples/smollm2/README.md, whose lines "| METHOD | RIGHT
(LOW-HIGH) | ..." under the heading EVERY say what was measured. Each script must have run on all
documents of the full cache, and the recorded share of right answers must lie in the 95 % interval
(Wilson) of what was found now: other processors sum in other orders, so that single answers may
differ.
"""

import math
import pathlib
import re
import sys

HEADING = "## Every method"
Z = 1.959964


def interval(right, n):
    middle = (right / n + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(right / n * (1 - right / n) / n + Z * Z / (4 * n * n))
    return middle - half, middle + half


def recorded(card):
    """Method -> right answers in %."""
    part = card.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    return {m[1]: int(m[2]) for m in re.finditer(r"^\| ([a-z0-9-]+) \| (\d+) \(", part, re.M)}


def results(table):
    """Method -> [right answers, documents]"""
    found = {}
    for line in table.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            method, _, _, right, *_ = line.split("\t")
            counts = found.setdefault(method, [0, 0])
            counts[0] += int(right)
            counts[1] += 1
    return found


def main():
    methods, card, table = map(pathlib.Path, sys.argv[1:])
    names = sorted(path.stem for path in methods.glob("*.sh") if path.stem != "common")
    want, got = recorded(card), results(table)
    documents, well = got.get("full", [0, 0])[1], True
    for number, name in enumerate(names, 1):
        right, n = got.get(name, (0, 0))
        good = n == documents > 0 and name in want
        if good:
            low, high = interval(right, n)
            good = low - 0.005 <= want[name] / 100 <= high + 0.005
        well = well and good
        print(f"{'ok' if good else 'not ok'} {number} - {name}: {right} of {n} answers right, "
              f"recorded {want.get(name, 'nothing')} %")
    print(f"1..{len(names)}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
