#!/usr/bin/env python3
"""Prints the records of --report as a table, and what the first token has waited for.

TTFT is the sum of the stages' own time (waits for each other left out) up to the first token of the
answer: all stages before the last kv-decode, and of that its part before the first token. Without
kv-decode it is all of it. Eviction overhead is what a plain prefill and the answer would not have
run: stages that are neither, a draft (another kv-decode, and a kv-prefill before the last one: that
of the draft's model), and of kv-prefill its own scoring and eviction. Stages that begin when the
answer is complete count for nothing. With --flops and --bandwidth stands beside it what the counted
work takes at these rates: for each stage the greater of FLOPs / (efficiency x rate) and bytes /
(efficiency x bandwidth), as LookaheadKV (appendix B) has it.
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


def whole(record, args):
    """(own seconds, theory) of a stage."""
    return own_seconds(record), theory(record, args) if args.flops else 0


def part_of(record, key, args):
    """The same of a part of it; of none where it has not got that far."""
    part = record.get(key)
    if part is None:
        return 0, 0
    return part["wall"] - part.get("wait", 0), theory(part, args) if args.flops else 0


def answer_of(records):
    """The kv-decode that answers: the last one; None without."""
    return next((one for one in reversed(records) if one["program"] == "kv-decode"), None)


def plain_prefills(records):
    """The kv-prefills that the answer needs in any case: all, or, where there is a draft, the last
    one: another is that of the draft's model."""
    drafts = [one for one in records if one["program"] == "kv-decode"][:-1]
    found = [one for one in records if one["program"] == "kv-prefill"]
    return found[-1:] if drafts else found


def before_answer(records):
    """Without stages that began when the answer was complete."""
    last = answer_of(records)
    end = last["start"] + last["seconds"]["wall"] if last else float("inf")
    return [one for one in records if one["start"] < end]


def ttft(records, args):
    """What passes until the first token of the answer, stage by stage."""
    last = answer_of(records)
    return [part_of(one, "first_token", args) if one is last else whole(one, args)
            for one in records]


def overhead(records, args):
    """What a plain prefill and the answer would not have run, stage by stage."""
    last, plain = answer_of(records), plain_prefills(records)
    return [part_of(one, "eviction", args) if any(one is other for other in plain)
            else whole(one, args) for one in records if one is not last]


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
    counted = before_answer(records)
    for name, parts in (("TTFT", ttft(counted, args)),
                        ("eviction overhead", overhead(counted, args))):
        line = f"{name}: {1000 * sum(part[0] for part in parts):.3f} ms"
        if args.flops:
            line += f", in theory {1000 * sum(part[1] for part in parts):.4f} ms"
        print(line)


if __name__ == "__main__":
    main()
