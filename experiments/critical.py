#!/usr/bin/env python3
"""The least that a method needs to keep 90 % of the full cache's score: its critical footprint.

    experiments/critical.py TABLE.tsv critical.tsv critical.md

For each task and method of the workflow's table: the rows kept, KV footprint, peak and bytes read
at which its score is 90 % of that of `full`, on the line between two rates, as PruLong's paper and
`kv-critical` has it. `>20` says that it is not reached at 20, the most that was
measured, `<5` that 5, the least, is enough. Of rates that cost the same the best score counts;
where all of them do, that is the figure.
"""

import argparse
import json
from itertools import groupby

from picture import write_whole
from sweep_table import GROUP, markdown, read_table
from task_prompts import call, find_programs
from task_records import TaskError, run

KEEP = 0.9
MEASURES = ("kept", "footprint", "peak", "read")
MARKS = {"below": "<{:.4g}", "at": "{:.4g}", "above": ">{:.4g}"}


def crossings(full, methods, measure):
    """method -> where it still has its share of the score, as a text."""
    lines, found = [f"full 100 {full!r}"], {}
    for method, rows in methods.items():
        best = {}
        for row in rows:
            best[row[measure]] = max(row["score"], best.get(row[measure], 0))
        if len(best) == 1 < len(rows) and max(best.values()) >= KEEP * full:
            found[method] = f"{rows[0][measure]:.4g}"
        lines += [f"{method} {cost!r} {score!r}" for cost, score in best.items()]
    output = call(["kv-critical", "--json", "--keep", str(KEEP)],
                  "".join(f"{line}\n" for line in lines))
    for verdict in json.loads(output):
        (kind, at), = verdict["critical"].items()
        found.setdefault(verdict["method"], MARKS[kind].format(at))
    return found


def critical_rows(table):
    """The rows of the result, and what it has no figures for."""
    rows, without = [], []
    for group, own in groupby(table, lambda row: tuple(row[name] for name in GROUP)):
        methods = {}
        for row in own:
            methods.setdefault(row["method"], []).append(row)
        full = methods.pop("full", [{"score": None}])[0]["score"]
        if not full or not methods:
            without.append(", ".join(group))
            continue
        found = {measure: crossings(full, methods, measure) for measure in MEASURES}
        rows += [{**dict(zip(GROUP, group)), "method": method,
                  **{measure: found[measure][method] for measure in MEASURES}}
                 for method in methods]
    return rows, without


def main():
    parser = argparse.ArgumentParser(description="what methods need for 90 %% of the full score")
    parser.add_argument("table", metavar="TABLE.tsv")
    parser.add_argument("tsv", metavar="critical.tsv")
    parser.add_argument("md", metavar="critical.md")
    options = parser.parse_args()
    find_programs()
    table = read_table(options.table)
    if all(row["method"] != "full" for row in table):
        raise TaskError(f"{options.table}: there is no method full to compare with")
    rows, without = critical_rows(table)
    columns = (*GROUP, "method", *MEASURES)
    tsv = ["\t".join(columns), *("\t".join(row[name] for name in columns) for row in rows)]
    md = [f"The least of each, in %, at which a method has {100 * KEEP:.0f} % of the full cache's "
          "score:", "", *markdown(rows, [(f"{name} %" if name in MEASURES else name, f"{{{name}}}")
                                         for name in columns])]
    if without:
        md += ["", f"The full cache has no score above 0: {'; '.join(without)}."]
    for path, lines in ((options.tsv, tsv), (options.md, md)):
        text = "".join(f"{line}\n" for line in lines).encode("utf-8")
        write_whole(path, lambda file, text=text: file.write(text))


if __name__ == "__main__":
    run(main)
