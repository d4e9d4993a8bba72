#!/usr/bin/python3
"""ncu_rows.py - one JSON object for each kernel that Nsight Compute has seen

usage: ncu_rows.py PART FILE.csv       (of ncu --csv --page details)

Lines before the table are skipped. Prints the metrics of METRICS, under ncu's own names and units.
"""

import csv
import json
import sys

METRICS = ("Duration", "Memory Throughput", "DRAM Throughput", "Compute (SM) Throughput",
           "L2 Hit Rate", "Achieved Occupancy", "Registers Per Thread", "Grid Size")


def short(kernel):
    """Without what comes first and without the arguments: template arguments stay."""
    kernel, depth = kernel.removeprefix("void "), 0
    for i, c in enumerate(kernel):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return kernel[:i][:70]
    return kernel[:70]


def main():
    part, path = sys.argv[1:]
    with open(path, newline="", errors="replace") as f:
        lines = [line for line in f if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(lines):
        if row.get("Metric Name") in METRICS:
            name = f"{row['Metric Name']} {row.get('Metric Unit') or ''}".strip()
            kernels.setdefault((row["ID"], row["Kernel Name"]), {}).setdefault(
                name, row.get("Metric Value"))
    for (_, kernel), metrics in kernels.items():
        print(json.dumps({"what": f"ncu {part}: {short(kernel)}", **metrics}))
    if not kernels:
        sys.exit(f"ncu_rows.py: {path}: no kernel")


if __name__ == "__main__":
    main()
