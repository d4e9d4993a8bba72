#!/usr/bin/env python3
"""How fast kv-score and kv-evict pass a snapshot, against cat, and how much memory they need.

    stream.py BUILD [--rows N] [--runs K] [--dir D] [--table]

Makes a random snapshot of the shape of Llama-3.2-1B (2 GiB with 65536 rows), then runs in turn `cat
F | cat > G` and the tools, K times, and prints medians of bytes of input per second, their ratio to
cat's, and the largest resident set in layers (keys and values of one layer). --table: the rows of
kv-score for the table of peers_table.py instead; seconds by the clock.
"""

import argparse
import os
import pathlib
import subprocess
import tempfile
import time

import figures

PEERS = {"cat | cat": "cat F \\| cat > G", "cat": "cat F > G"}
COMMANDS = {
    "cat | cat": "cat in.kv | cat > out",
    "cat": "cat in.kv > out",
    "kv-score knorm": "kv-score --method knorm in.kv > out",
    "kv-score knorm, pipes": "kv-score --method knorm < <(cat in.kv) > >(cat > out)",
    "kv-score snapkv": "kv-score --method snapkv in.kv > out",
    "kv-evict 10 %": "kv-evict --rate 0.1 in.kv > out",
    "kv-evict 90 %": "kv-evict --rate 0.9 in.kv > out",
    "kv-evict 90 %, pipes": "kv-evict --rate 0.9 < <(cat in.kv) > >(cat > out)",
}


def run(command):
    """Seconds and the largest resident set (bytes) of a shell command; its output is new."""
    if os.path.exists("out"):
        os.unlink("out")
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        shell = f"set -o pipefail; exec {command}" if "|" not in command else command
        os.execvp("bash", ["bash", "-c", shell])
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - begin
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    return seconds, usage.ru_maxrss * 1024


def print_rates(found, size, runs):
    layer, base = size / 16, found["cat | cat"][0]
    print(f"input {size / 2**30:.2f} GiB, layer {layer / 2**20:.0f} MiB, medians of {runs}")
    for name, (seconds, memory) in found.items():
        line = f"{name:24} {size / seconds / 1e9:6.2f} GB/s   {base / seconds:5.2f} x cat"
        if name not in PEERS:
            line += f"   {memory / layer:5.2f} layers"
        print(line)


def print_rows(found, size):
    for name in ("kv-score knorm", "kv-score knorm, pipes", "kv-score snapkv"):
        work = name.replace("pipes", "between two cat")
        for cat, command in PEERS.items():
            figures.row(f"{work}, {size / 2**30:.2f} GiB", "Llama 3.2 1B's cache", found[name][0],
                        command, found[cat][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    os.environ["PATH"] = f"{build}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        os.chdir(work)
        make = f"{build}/tests/bin/mksnapshot --preset llama-3.2-1b --rows {options.rows}"
        subprocess.run(f"{make} --observe 32 --scores random -o in.kv", shell=True, check=True)
        size = os.path.getsize("in.kv")
        ways = {name: lambda c=command: run(c) for name, command in COMMANDS.items()
                if not (options.table and "evict" in name)}
        found = figures.in_turns(options.runs, ways)
        if options.table:
            print_rows(found, size)
        else:
            print_rates(found, size, options.runs)


if __name__ == "__main__":
    main()
