#!/usr/bin/env python3
"""Prints the records of --report as a table, and what the first token has waited for.

TTFT is the sum of the stages' own time (waits for each other left out) up to the first token: all
stages before kv-decode, and of that its part before the first token. Without kv-decode it is all of
it. Eviction overhead is the part that is neither kv-prefill nor kv-decode. With --flops and
--bandwidth stands beside it what the counted work takes at these rates: for each stage the greater
of FLOPs / (efficiency x rate) and bytes / (efficiency x bandwidth), as LookaheadKV (appendix B) has
it.
"""
import argparse
import json
import sys


def read(path):
    """The records of a file; a line that is none is named. One that is there twice is of one run,
    which several stages have shared, and counts once."""
    records = []
    with sys.stdin if path == "-" else open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                if "program" not in record:
                    raise ValueError("there is no program in it")
            except (ValueError, TypeError) as why:
                sys.exit(f"report.py: {path}: line {number}: {why}")
            if record.get("status") != 0:
                print(f"report.py: {path}: line {number}: {record['program']} has failed, left out",
                      file=sys.stderr)
                continue
            if record not in records:
                records.append(record)
    if not records:
        sys.exit(f"report.py: {path}: no record")
    return records


def total(part, key):
    """The sum of an object of counts; 0 where there is none."""
    return sum(part.get(key, {}).values())


def own_seconds(record):
    """Wall seconds without those in which a stage waited for the others."""
    return record["seconds"]["wall"] - record["seconds"]["wait"]["wall"]


def theory(part, args):
    """Seconds that the work of a stage, or of a part of it, takes at the given rates."""
    return max(total(part, "flops") / (args.flops * args.flops_efficiency),
               total(part, "traffic") / (args.bandwidth * args.memory_efficiency))


def until_first(record, args):
    """Own seconds before the first token, and what the work takes in theory (None: not asked)."""
    part, seconds = record, own_seconds(record)
    if record["program"] == "kv-decode":
        if "first_token" not in record:
            return None
        part = record["first_token"]
        seconds = part["wall"] - part["wait"]
    return seconds, theory(part, args) if args.flops else None


def stage(record, args):
    """A row of the table."""
    seconds = record["seconds"]
    columns = [f"{record['program']:14}", f"{own_seconds(record):9.3f}",
               f"{seconds['wait']['wall']:9.3f}", f"{seconds['cpu']:9.3f}",
               f"{record.get('tokens_run', 0):8d}", f"{total(record, 'flops') / 1e9:11.3f}",
               f"{total(record, 'traffic') / 1e9:9.4f}",
               f"{max(record['peak_host'], record.get('peak_device', 0)) / 2**20:9.1f}"]
    if args.flops:
        columns.append(f"{1000 * theory(record, args):12.4f}")
    return " ".join(columns)


def main():
    """Reads, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="records of one pipeline, - is standard input")
    parser.add_argument("--flops", type=float, help="of the device, per second")
    parser.add_argument("--bandwidth", type=float, help="of its memory, bytes per second")
    parser.add_argument("--flops-efficiency", type=float, default=0.7)
    parser.add_argument("--memory-efficiency", type=float, default=0.9)
    args = parser.parse_args()
    if (args.flops is None) != (args.bandwidth is None):
        parser.error("--flops and --bandwidth go together")
    rates = (args.flops_efficiency, args.memory_efficiency,
             1 if args.flops is None else args.flops,
             1 if args.bandwidth is None else args.bandwidth)
    if not all(0 < rate < float("inf") for rate in rates):
        parser.error("rates and efficiencies are greater than 0")
    records = sorted(read(args.file), key=lambda record: record["start"])
    print(f"{'stage':14} {'own s':>9} {'wait s':>9} {'cpu s':>9} {'tokens':>8} {'GFLOP':>11}"
          f" {'GB':>9} {'peak MiB':>9}" + (f" {'theory ms':>12}" if args.flops else ""))
    for record in records:
        print(stage(record, args))
    for name, left_out in (("TTFT", ()), ("eviction overhead", ("kv-prefill", "kv-decode"))):
        parts = [until_first(record, args) for record in records
                 if record["program"] not in left_out]
        parts = [part for part in parts if part is not None]
        line = f"{name}: {1000 * sum(part[0] for part in parts):.3f} ms"
        if args.flops:
            line += f", in theory {1000 * sum(part[1] for part in parts):.4f} ms"
        print(line)


if __name__ == "__main__":
    main()
