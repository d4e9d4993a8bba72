#!/usr/bin/python3
"""table.py - the measurements of tests/gpu/run.sh as tables

usage: table.py measured.jsonl

One line for each measurement, with both rounds of ours, and the memory bandwidth as a share of
that of a sum of a GB (meaningless for many rows, where matrix products are bound by computation);
then ours as a multiple of the peer's speed, where a peer did the same: names differ in their
first word only. Last come the lines of SPEED.md's table of aims. A floor is the least possible
work at rates measured in the same run: for a prompt its operations at the rate of a matrix
product, for a step its bytes at that of a sum or of a copy, whichever is greater.
"""

import json
import re
import sys

OURS = ("attend", "top,")
PEERS = ("flash", "cuDNN", "torch.topk,")


class Measured:
    """The rows of all stages by what they measure; the first one where there are two."""

    def __init__(self, rows):
        self.rows = {}
        for row in rows:
            self.rows.setdefault(row["what"].strip(), row)

    def get(self, what, key):
        return self.rows.get(what, {}).get(key)

    def numbers(self, pattern):
        """The N of every row whose name is the pattern with a number in it."""
        found = (re.fullmatch(pattern.replace("#", r"(\d+)"), what) for what in self.rows)
        return sorted(int(m[1]) for m in found if m)

    def floor(self, what, step):
        """Milliseconds that a prompt, or a step behind it, takes at least."""
        if step:
            rates = [self.get(c, "GB/s") for c in ("ceiling: sum", "ceiling: copy, read + write")]
            rate = max((r for r in rates if r), default=None)
            return ratio(self.get(what, "step GB"), rate, 1e3)
        rate = self.get("ceiling: product of bf16, 8192^3", "TFLOP/s")
        return ratio(self.get(what, "TFLOP"), rate, 1e3)


def ratio(a, b, times=1):
    return None if a is None or not b else a / b * times


def aims(m):
    """What SPEED.md wants: name, aim (NaN: none), is less better, figure."""
    none = float("nan")
    for N in m.numbers("attend prefill 32/8 E 128 N #"):
        shape = f"prefill 32/8 E 128 N {N}"
        for peer, aim in (("flash", 1.0), ("cuDNN", none)):
            yield (f"attention, {N} rows: speed, {peer} = 1", aim if N != 8192 else none, False,
                   ratio(m.get(f"{peer} {shape}", "us"), m.get(f"attend {shape}", "us")))
    for N in m.numbers("kvpipe full #"):
        ours, theirs = f"kvpipe full {N}", f"transformers full {N}"
        yield (f"prompt of {N}: time, floor = 1", 1.3 if N == 8192 else none, True,
               ratio(m.get(ours, "prefill ms"), m.floor(ours, False)))
        yield (f"prompt of {N}: speed, transformers = 1", none, False,
               ratio(m.get(theirs, "prefill ms"), m.get(ours, "prefill ms")))
        yield (f"step after {N}: share of the floor's speed", 0.8 if N != 32768 else none, False,
               ratio(m.floor(ours, True), m.get(ours, "step ms")))
        yield (f"step after {N}: speed, transformers = 1", 3 if N != 32768 else none, False,
               ratio(m.get(theirs, "step ms"), m.get(ours, "step ms")))
    for N in m.numbers("kvpipe tsp #"):
        ours, full = f"kvpipe tsp {N}", f"kvpipe full {N}"
        yield (f"FastKV, {N}: share of the possible speed-up", 0.95, False,
               ratio(ratio(m.get(full, "prefill ms"), m.get(ours, "prefill ms")),
                     ratio(m.get(full, "TFLOP"), m.get(ours, "TFLOP"))))
        yield (f"FastKV, {N}: a step's time, floor = 1", 1.15, True,
               ratio(m.get(ours, "step ms"), m.floor(ours, True)))
    for N in m.numbers("kvpipe scored #"):
        yield (f"scoring and eviction, {N}: time, without = 1", 1.01, True,
               ratio(m.get(f"kvpipe scored {N}", "prefill ms"),
                     m.get(f"kvpipe full {N}", "prefill ms")))
    yield ("column sums: time, attention = 1", 0.6, True, m.get("attend_mass / attend", "ratio"))
    for N in m.numbers("kvpipe fier #"):
        yield (f"FIER, step after {N}: speed, full = 1", 1.55, False,
               ratio(m.get(f"kvpipe fier full {N}", "step ms"),
                     m.get(f"kvpipe fier {N}", "step ms")))
    for what in (w for w in m.rows if w.startswith("top, ")):
        yield (f"{what}: speed, torch.topk = 1", 4, False,
               ratio(m.get(f"torch.topk, {what[5:]}", "us"), m.get(what, "us")))
    yield ("weights to the GPU: rate, pinned copies = 1", 0.9, False,
           ratio(m.get("kvpipe weights", "GB/s"),
                 m.get("ceiling: pinned memory to device", "GB/s")))


def print_aims(m):
    print(f"\n{'':<52}{'aim':>8}{'measured':>10}")
    for name, aim, less, figure in aims(m):
        wanted = "" if aim != aim else f"<={aim:g}" if less else f">={aim:g}"
        verdict = "" if figure is None or aim != aim else \
            "  reached" if (figure <= aim if less else figure >= aim) else "  MISSED"
        print(f"{name:<52}{wanted:>8}{'-' if figure is None else f'{figure:.3f}':>10}{verdict}")


def main():
    first, again, peers, ratios, all_rows = {}, {}, {}, [], []
    for line in open(sys.argv[1]):
        row = json.loads(line)
        what = row.get("what")
        if what is not None:
            all_rows.append(row)
        if what is None:
            print("  ".join(f"{k} {v}" for k, v in row.items() if k != "stage"))
        elif "ratio" in row:
            ratios.append((what.strip(), row["ratio"], row["stage"]))
        elif "us" not in row:
            print(f"{what:<48}" + "  ".join(f"{k} {v}" for k, v in row.items()
                                           if k not in ("what", "stage")))
        else:
            {"bench": first, "again": again}.get(row["stage"], peers)[what] = row
    stream = peers.get("ceiling: sum", {}).get("GB/s", 0)
    print(f"{'':<48}{'us':>12}{'again':>12}{'GB/s':>10}{'of sum':>8}{'TFLOP/s':>10}")
    for rows in (peers, first):
        for what, row in rows.items():
            second = again.get(what, {}).get("us", "") if rows is first else ""
            share = f"{row['GB/s'] / stream:.1%}" if stream and row["GB/s"] else ""
            print(f"{what:<48}{row['us']:>12}{second:>12}{row['GB/s']:>10}{share:>8}"
                  f"{row['TFLOP/s']:>10}")
    for what, figure, stage in ratios:
        print(f"{what:<48}{figure:>12}  ({stage})")
    for what, row in peers.items():
        word, _, rest = what.partition(" ")
        ours = [r for w, r in first.items()
                if w.partition(" ")[0] in OURS and w.partition(" ")[2] == rest]
        if word in PEERS and ours:
            print(f"ours / {what:<41}{row['us'] / ours[0]['us']:>12.3f}")
    print_aims(Measured(all_rows))


if __name__ == "__main__":
    main()
