"""figures.py - what scripts that measure beside other programs share: turns, medians, the table

A ratio is the other program's time divided by ours: above 1 we are faster. Both are medians of the
same run, in which they take turns, because a machine that others use changes from minute to minute.
"""

import statistics
import subprocess

HEAD = ("| work | model | kvpipe | peer | peer's | ratio |\n"
        "|---|---|---|---|---|---|")


def in_turns(rounds, ways):
    """{name: medians} of functions that return tuples of seconds; in a round each runs once."""
    found = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return {name: tuple(map(statistics.median, zip(*figures))) for name, figures in found.items()}


def seconds_of(*command):
    """The numbers that a program of ours prints."""
    out = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout
    return tuple(map(float, out.split()))


def written(seconds):
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def row(work, model, ours, peer, theirs):
    """Prints one row of the table."""
    print(f"| {work} | {model} | {written(ours)} | {peer} | {written(theirs)} "
          f"| {theirs / ours:.2f} |", flush=True)


def no_row(work, model, peer, why):
    """Prints the row of what could not be measured."""
    print(f"| {work} | {model} | | {peer} | {why} | |", flush=True)
