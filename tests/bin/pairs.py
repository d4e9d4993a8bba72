#!/usr/bin/python3
"""pairs.py - each family of models with all that the programs do with a cache: it keeps its rule,
or is refused with the reason that a table has

usage: pairs.py [--every N] [--families GLOBS] [--pairs GLOBS] SUBJECT [...]
       pairs.py --list | --pages       pairs; words of kvpipe(7) that the table names

Works in the current folder, which keeps models and snapshots for the next call. Prints a line for
each fault, then how many pairs were run and how many of them were refused. Exit 1: a fault. The
table is tests/fixtures/refusals.tsv; what a pair is and its rule: pair_rules.py. --every: a sample,
which has each family, and of each thing one family of N. --families: some of the families, or other
cases of mkfamily.py.
"""

import argparse
import fnmatch
import itertools
import os
import pathlib
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracle"), str(HERE.parent / "format")]

import mkfamily  # noqa: E402
import pair_rules  # noqa: E402
from pair_family import FAMILIES, Family, Fault, Refused  # noqa: E402

TABLE = HERE.parent / "fixtures" / "refusals.tsv"


def among(name, globs):
    """Does one of the globs match, and none of those behind a "!"?"""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs) and \
        not any(fnmatch.fnmatchcase(name, glob[1:]) for glob in globs if glob.startswith("!"))


class Refusal:
    """A line of the table: pairs and families as globs (!GLOB: but not these), exit status, words
    of the message; words of kvpipe(7), which tests/pairs.bats looks for"""

    def __init__(self, line, groups):
        pairs, families, self.status, self.words, self.page = line.split("\t")
        self.pairs, self.line, self.used = pairs.split(), line, False
        self.families, self.others = [], []
        for word in families.split():
            to = self.others if word.startswith("!") else self.families
            word = word.removeprefix("!")
            to.append(groups.get(word, [word]))

    def is_of(self, pair, family):
        return any(fnmatch.fnmatchcase(pair, glob) for glob in self.pairs) and \
            any(among(family, globs) for globs in self.families) and \
            not any(among(family, globs) for globs in self.others)


def table():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    groups = dict(line.split("\t") for line in lines if line.startswith("@"))
    groups = {name: globs.split() for name, globs in groups.items()}
    return [Refusal(line, groups) for line in lines if not line.startswith(("#", "@"))]


def tried(family, pair, rule, refusals):
    """(fault or None, whether it was refused)"""
    due = [refusal for refusal in refusals if refusal.is_of(pair, family.name)]
    for refusal in due:
        refusal.used = True
    if len(due) > 1:
        return "in two lines of the table", False
    try:
        rule()
    except Refused as e:
        if not due:
            return f"refused, and not in the table: {e}", True
        if str(e.status) != due[0].status or due[0].words not in e.message:
            return f"refused with {e}; the table has {due[0].status}, {due[0].words}", True
        return None, True
    except Fault as e:
        return str(e), False
    except (ArithmeticError, AssertionError, AttributeError, LookupError,
            TypeError, ValueError) as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        return f"{where.filename}:{where.lineno}: {e!r}", False
    return (f"works, and the table has: {due[0].line}" if due else None), False


def listed(program, option):
    """The first word of each line"""
    out = subprocess.run([program, option], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in out.splitlines()]


def values(program, option):
    """The values of an option that shells complete, without those that end in ="""
    out = subprocess.run([program, "--list-options"], check=True, capture_output=True, text=True)
    lines = [line.split("\t") for line in out.stdout.splitlines()]
    words = next(line[3] for line in lines if line[1:2] == [option])
    return [word for word in words.split() if not word.endswith("=")]


def all_pairs():
    """{subject: [(pair, function of a family)]}"""
    lists = {"methods": listed("kv-score", "--list"), "policies": listed("kv-evict", "--list"),
             "retrievals": values("kv-decode", "retrieve"), "types": values("kv-quantize", "keys")}
    return pair_rules.pairs(lists)


def matching(names, globs):
    return [n for n in names if any(fnmatch.fnmatchcase(n, g) for g in globs.split())]


def options():
    p = argparse.ArgumentParser(prog="pairs.py")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--families", default="*")
    p.add_argument("--pairs", default="*")
    p.add_argument("--list", action="store_true")
    p.add_argument("--pages", action="store_true")
    p.add_argument("subjects", nargs="*")
    return p.parse_args()


def main():
    o, subjects = options(), all_pairs()
    if o.pages:
        print(*sorted({refusal.page for refusal in table()}), sep="\n")
        return 0
    if o.list:
        for subject, pairs in subjects.items():
            print(subject, *(pair for pair, _ in pairs))
        return 0
    refusals, faults, ran, refused = table(), 0, 0, 0
    names = matching(FAMILIES, o.families) or matching(mkfamily.CASES, o.families)
    for number, name in enumerate(names):
        family, pairs = None, itertools.chain(*(subjects[subject] for subject in o.subjects))
        for at, (pair, rule) in enumerate(pairs):
            if (number + at) % o.every or not any(
                    fnmatch.fnmatchcase(pair, glob) for glob in o.pairs.split()):
                continue
            family = family or Family(name, pathlib.Path(os.getcwd()))
            fault, was = tried(family, pair, lambda: rule(family), refusals)
            ran, refused = ran + 1, refused + was
            if fault:
                faults += 1
                print(f"{name} with {pair}: {fault}")
    if o.every == 1 and o.pairs == o.families == "*":
        named = [pair for subject in o.subjects for pair, _ in subjects[subject]]
        for refusal in refusals:
            if not refusal.used and any(refusal.is_of(p, n) for p in named for n in names):
                faults += 1
                print("of no pair:", refusal.line)
    print(f"{ran} pairs, {refused} refused")
    return 1 if faults or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
