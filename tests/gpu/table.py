#!/usr/bin/python3
"""table.py - the measurements of tests/gpu/run.sh as tables

usage: table.py measured.jsonl

One line for each measurement, with both rounds of ours, and what memory gives as a share of what it gives to a sum of
a GB (of many rows that says little: products of matrices wait for the multiplication); then ours as a multiple of the peer's speed, where a peer did
the same: names are the same but for their first word.
"""

import json
import sys

OURS = ("attend", "top,")
PEERS = ("flash", "cuDNN", "torch.topk,")


def main():
    first, again, peers, ratios = {}, {}, {}, []
    for line in open(sys.argv[1]):
        row = json.loads(line)
        what = row.get("what")
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
            print(f"{what:<48}{row['us']:>12}{second:>12}{row['GB/s']:>10}{share:>8}{row['TFLOP/s']:>10}")
    for what, ratio, stage in ratios:
        print(f"{what:<48}{ratio:>12}  ({stage})")
    for what, row in peers.items():
        word, _, rest = what.partition(" ")
        ours = [r for w, r in first.items()
                if w.partition(" ")[0] in OURS and w.partition(" ")[2] == rest]
        if word in PEERS and ours:
            print(f"ours / {what:<41}{row['us'] / ours[0]['us']:>12.3f}")


if __name__ == "__main__":
    main()
