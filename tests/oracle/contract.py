#!/usr/bin/env python3
"""contract - what must hold for the rows that kv-evict leaves: contract.py RULE TABLE

Each line of TABLE names two outputs of kv-info --positions, before and after, then the method, then
kv-evict's options. Prints how many KV heads the rule was held against; exit 1 names the first that
breaks it. Rules: budget, rate (both of the uniform policy), order, always, identity, monotone.

contract.py content BEFORE.kv AFTER.kv compares what the rows hold.
"""

import argparse
import os
import sys
from collections import defaultdict

HERE = os.path.dirname(os.path.abspath(__file__))


def read_rows(path):
    """{(layer, KV head): positions}"""
    with open(path, encoding="ascii") as file:
        numbers = [[int(word) for word in line.split()] for line in file]
    return {(line[0], line[1]): line[2:] for line in numbers}


def number(word):
    return float(word) if word[0].isdigit() else word


def read_table(path):
    """(before, after, method, options) of each line; options by their names without dashes."""
    with open(path, encoding="ascii") as file:
        for line in file:
            before, after, method, *words = line.split()
            yield before, after, method, {name[2:]: number(value)
                                          for name, value in zip(words[::2], words[1::2])}


def is_uniform(options):
    return options.get("policy", "uniform") == "uniform"


def budget(old, new, options):
    return not is_uniform(options) or "budget" not in options or (
        len(new) == min(len(old), options["budget"]))


def rate(old, new, options):
    return not is_uniform(options) or "rate" not in options or (
        len(new) == int(len(old) * options["rate"] + 1e-9))


def identity(old, new, options):
    return options.get("rate") != 1 or new == old


def order(old, new, _options):
    return new == sorted(set(new)) and set(new) <= set(old)


def always(old, new, options, end):
    first, last = options.get("sink", 0), end - options.get("recent", 0)
    return all(p in new for p in old if p < first or p >= last)


def check_each(rule, table):
    """Holds a rule of one head against every head of every run."""
    count = 0
    for before, after, method, options in table:
        old, new = read_rows(before), read_rows(after)
        # the last position is in one head at least: every shape has its observation window
        extra = (1 + max(p for rows in old.values() for p in rows),) if rule is always else ()
        if old.keys() != new.keys():
            sys.exit(f"{before} {method} {options}: other heads")
        for head, rows in old.items():
            if not rule(rows, new[head], options, *extra):
                sys.exit(f"{before} {method} {options} layer, KV head {head}: "
                         f"{rows} -> {new[head]}")
            count += 1
    return count


def check_monotone(table):
    """Runs of one method with nothing but a budget, or nothing but a rate: each contains the
    smaller ones."""
    runs = defaultdict(list)
    for before, after, method, options in table:
        for name in ("budget", "rate"):
            if list(options) == [name]:
                runs[before, method, name].append((options[name], after))
    count = 0
    for key, series in runs.items():
        rows = [read_rows(after) for _, after in sorted(series)]
        for small, large in zip(rows, rows[1:]):
            for head, kept in small.items():
                if not set(kept) <= set(large[head]):
                    sys.exit(f"{key} layer, KV head {head}: {kept} not all in {large[head]}")
                count += 1
    return count


def check_content(before, after):
    """Keys, values and attention received of the rows that are left, bit for bit."""
    sys.path.insert(0, os.path.join(HERE, "..", "format"))
    import kvread
    with open(before, "rb") as a, open(after, "rb") as b:
        old, new = kvread.read(a), kvread.read(b)
    count = 0
    for l, (was, now) in enumerate(zip(old.layers, new.layers)):
        for g, (p, q) in enumerate(zip(was.positions, now.positions)):
            at = [p.index(x) for x in q]
            for what in "keys", "values":
                if (old.array(l, what, g)[at] != new.array(l, what, g)).any():
                    sys.exit(f"{what} of layer {l} KV head {g} differ")
            if now.mass[g] != [[one[i] for i in at] for one in was.mass[g]]:
                sys.exit(f"attention received of layer {l} KV head {g} differs")
            if (was.paid is None) != (now.paid is None):
                sys.exit(f"attention paid of layer {l} is there only once")
            if was.paid and now.paid.values[g] != [[one[i] for i in at]
                                                   for one in was.paid.values[g]]:
                sys.exit(f"attention paid of layer {l} KV head {g} differs")
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description="what must hold for the rows that are left")
    parser.add_argument("rule", choices=["budget", "rate", "order", "always", "identity",
                                         "monotone", "content"])
    parser.add_argument("path", nargs="+", help="a table, or two snapshots")
    args = parser.parse_args()
    if args.rule == "content":
        count = check_content(*args.path)
    elif args.rule == "monotone":
        count = check_monotone(read_table(*args.path))
    else:
        rules = {"budget": budget, "rate": rate, "order": order, "always": always,
                 "identity": identity}
        count = check_each(rules[args.rule], read_table(*args.path))
    print(count, "heads")


if __name__ == "__main__":
    main()
