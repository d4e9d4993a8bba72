#!/usr/bin/python3
"""table.py - the results of tests/gpu/run.sh as tables

usage: table.py [--tiny] stages measured.jsonl

First the lines of SPEED.md's table of aims, all of them: with what was measured, or why it was not.
A floor is the least possible work at rates measured in the same run: for a prompt its operations
at the rate of a matrix product, for a step its bytes at that of a sum or of a copy, whichever is
greater. Rates are those of short bursts; the lines that say so take those of three seconds. Then
how each stage ended; then one line for each measurement, with both rounds of ours, and the memory
bandwidth as a share of that of a sum of a GB (meaningless for many rows, where matrix products are
bound by computation); "graph" is how many calls a CUDA graph held. Then ours as a multiple of the
peer's speed, where a peer did the same: names differ in their first word only.
"""

import json
import re
import sys

OURS = ("attend", "top,")
PEERS = ("flash", "cuDNN", "efficient", "math", "PyTorch's", "torch.topk,")
NONE = float("nan")                    # no aim
TINY = "--tiny" in sys.argv
BANDWIDTH = ("ceiling: sum", "ceiling: copy, read + write")
PRODUCT = "ceiling: product of bf16, 8192^3"
CELLS = ("us", "least", "most", "GB/s", "TFLOP/s", "graph", "calls", "what", "stage", "run")


def ratio(a, b, times=1):
    return None if a is None or not b else a / b * times


class Measured:
    """The rows of all stages by what they measure; the last ones where there are several."""

    def __init__(self, rows):
        self.rows, self.of_run, self.used = {}, {}, set()
        for row in rows:
            if "what" in row and row.get("stage") != "again":
                self.rows[row["what"]] = row
                self.of_run[row["what"], row["run"]] = row

    def get(self, what, key, run=None):
        """A figure, of that run if it has it"""
        row = self.of_run.get((what, run)) or self.rows.get(what, {})
        if key in row:
            self.used.add(row["run"])
        return row.get(key)

    def floor(self, what, step, how=""):
        """Milliseconds that a prompt, or a step behind it, takes at least."""
        run = self.rows.get(what, {}).get("run")
        if step:
            rates = [self.get(c + how, "GB/s", run) for c in BANDWIDTH]
            rate = max((r for r in rates if r), default=None)
            return ratio(self.get(what, "step GB"), rate, 1e3)
        return ratio(self.get(what, "TFLOP"), self.get(PRODUCT + how, "TFLOP/s", run), 1e3)


def attention_aims(m):
    for N in (80,) if TINY else (8192, 16384, 32768):
        shape = f"prefill 32/8 E 128 N {N}"
        for peer, aim in (("flash", 1.0), ("cuDNN", NONE)):
            yield (f"attention, {N} rows: speed, {peer} = 1", aim if N != 8192 else NONE, False,
                   "bench", ratio(m.get(f"{peer} {shape}", "us"), m.get(f"attend {shape}", "us")))


def full_aims(m):
    for N in (400,) if TINY else (8192, 32768, 131072):
        ours, theirs = f"kvpipe full {N}", f"transformers full {N}"
        for how in ("", ", 3 s"):
            yield (f"prompt of {N}: time, floor{how} = 1", 1.3 if N == 8192 and not how else NONE,
                   True, "model ceilings", ratio(m.get(ours, "prefill ms"),
                                                 m.floor(ours, False, how)))
        yield (f"prompt of {N}: speed, transformers = 1", NONE, False, "model transformers",
               ratio(m.get(theirs, "prefill ms"), m.get(ours, "prefill ms")))
        yield (f"step after {N}: share of the floor's speed", 0.8 if N != 32768 else NONE, False,
               "model ceilings", ratio(m.floor(ours, True), m.get(ours, "step ms")))
        yield (f"step after {N}: speed, transformers = 1", 3 if N != 32768 else NONE, False,
               "model transformers", ratio(m.get(theirs, "step ms"), m.get(ours, "step ms")))
        yield (f"step after {N}: speed, transformers in a graph = 1", NONE, False,
               "model transformers", ratio(m.get(f"transformers replayed {N}", "step ms"),
                                           m.get(ours, "step ms")))


def aims(m):
    """What SPEED.md wants: name, aim, is less better, stages that it needs, figure."""
    yield from attention_aims(m)
    yield from full_aims(m)
    long, middle, short = (400, 400, 200) if TINY else (131072, 32768, 32768)
    ours, full = f"kvpipe tsp {long}", f"kvpipe full {long}"
    yield (f"FastKV, {long}: share of the possible speed-up", 0.95, False, "model",
           ratio(ratio(m.get(full, "prefill ms"), m.get(ours, "prefill ms")),
                 ratio(m.get(full, "TFLOP"), m.get(ours, "TFLOP"))))
    yield (f"FastKV, {long}: a step's time, floor = 1", 1.15, True, "model ceilings",
           ratio(m.get(ours, "step ms"), m.floor(ours, True)))
    yield (f"scoring and eviction, {middle}: time, without = 1", 1.01, True, "model",
           ratio(m.get(f"kvpipe scored {middle}", "prefill ms"),
                 m.get(f"kvpipe full {middle}", "prefill ms")))
    yield ("column sums: time, attention = 1", 0.6, True, "bench",
           m.get("attend_mass / attend", "ratio"))
    yield (f"FIER, step after {short}: speed, full = 1", 1.55, False, "fier",
           ratio(m.get(f"kvpipe fier full {short}", "step ms"),
                 m.get(f"kvpipe fier {short}", "step ms")))
    for what in ("8 x 5000, k 550", "32 x 5000, k 550") if TINY else ("8 x 65536, k 7208",
                                                                       "32 x 65536, k 7208"):
        yield (f"top, {what}: speed, torch.topk = 1", 4, False, "bench",
               ratio(m.get(f"torch.topk, {what}", "us"), m.get(f"top, {what}", "us")))
    yield ("rows from host memory: rate, pinned copies = 1", 0.8, False, "bench ceilings",
           ratio(m.get("fetch, 8 x 100 of 800 rows, 100 % new" if TINY else
                       "fetch, 8 x 2048 of 32768 rows, 100 % new", "GB/s"),
                 m.get("ceiling: pinned memory to device", "GB/s")))
    yield ("weights to the GPU: rate, pinned copies = 1", 0.9, False, "model ceilings",
           ratio(m.get("kvpipe weights", "GB/s"),
                 m.get("ceiling: pinned memory to device", "GB/s")))


def why_not(stages, ended):
    """Why there is no figure that needs these stages"""
    for stage in stages.split():
        verdict = ended.get(stage)
        if verdict is None:
            return f"not measured: {stage} has not ended"
        died = re.fullmatch(r"FAILED: exit (\d+)", verdict)
        if died:
            return f"not measured: {stage} died with {died[1]}"
        if verdict != "passed":
            return f"not measured: {stage}: {verdict}"
    return f"not measured: {stages.replace(' ', ' or ')} passed without it"


def print_aims(m, ended):
    print(f"{'':<52}{'aim':>8}{'measured':>10}")
    figures = aims(m)
    while True:
        m.used.clear()
        line = next(figures, None)
        if line is None:
            break
        name, aim, less, stages, figure = line
        wanted = "" if aim != aim else f"<={aim:g}" if less else f">={aim:g}"
        if figure is None:
            print(f"{name:<52}{wanted:>8}{'-':>10}  {why_not(stages, ended)}")
            continue
        verdict = "" if aim != aim else \
            "  reached" if (figure <= aim if less else figure >= aim) else "  MISSED"
        runs = f"  (runs {', '.join(map(str, sorted(m.used)))})" if len(m.used) > 1 else ""
        print(f"{name:<52}{wanted:>8}{figure:>10.3f}{verdict}{runs}")
    print()


def print_other(rows):
    """Rows that are no times: devices, versions, sizes, failures"""
    for row in rows:
        if "us" in row or "ratio" in row:
            continue
        text = "  ".join(f"{k} {v}" for k, v in row.items() if k not in ("what", "stage", "run"))
        print(f"{row['what']:<48}{text}" if "what" in row else f"run {row['run']}: {text}")


def print_times(rows):
    first, again, peers = {}, {}, {}
    for row in (r for r in rows if "us" in r):
        theirs = row["what"].partition(" ")[0] in PEERS or row["stage"] == "ceilings"
        (again if row["stage"] == "again" else peers if theirs else first)[row["what"]] = row
    stream = peers.get("ceiling: sum", {}).get("GB/s", 0)
    print(f"\n{'':<48}{'us':>12}{'again':>12}{'GB/s':>10}{'of sum':>8}{'TFLOP/s':>10}{'graph':>7}")
    for table in (peers, first):
        for what, row in table.items():
            second = again.get(what, {}).get("us", "") if table is first else ""
            share = f"{row['GB/s'] / stream:.1%}" if stream and row["GB/s"] else ""
            print(f"{what:<48}{row['us']:>12}{second:>12}{row['GB/s']:>10}{share:>8}"
                  f"{row['TFLOP/s']:>10}{row.get('graph') or 'no':>7}")
    for row in (r for r in rows if "ratio" in r):
        print(f"{row['what']:<48}{row['ratio']:>12}  ({row['stage']})")
    for what, row in peers.items():
        word, _, rest = what.partition(" ")
        ours = [r for w, r in first.items()
                if w.partition(" ")[0] in OURS and w.partition(" ")[2] == rest]
        if word in PEERS and ours:
            print(f"ours / {what:<41}{row['us'] / ours[0]['us']:>12.3f}")


def rows_of(path):
    """The objects of a file, one a line; a line that a stage that died has left is no object."""
    for line in open(path, errors="replace"):
        try:
            yield json.loads(line)
        except ValueError:
            print(f"table.py: no object: {line.strip()[:80]}", file=sys.stderr)


def main():
    stages, measured = [a for a in sys.argv[1:] if a != "--tiny"]
    lines = [line.split(None, 3) for line in open(stages)]
    ended = {words[0]: words[3].strip() for words in lines if len(words) == 4}
    rows = list(rows_of(measured))
    print_aims(Measured(rows), ended)
    print(open(stages).read())
    print_other(rows)
    print_times(rows)


if __name__ == "__main__":
    main()
