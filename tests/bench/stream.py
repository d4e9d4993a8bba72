#!/usr/bin/env python3
"""How fast kv-score and kv-evict pass a snapshot, against cat, and how much memory they need.

    stream.py BUILD [--rows N] [--runs K] [--dir D]

Makes a random snapshot of the shape of Llama-3.2-1B (2 GiB with 65536 rows), then runs in turn `cat F | cat > G` and the tools, K times, and prints
medians of bytes of input per second, their ratio to cat's, and the largest resident set in layers (keys and values of one layer).
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time


def run(command):
    """Seconds and the largest resident set (bytes) of a shell command."""
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", f"set -o pipefail; exec {command}" if "|" not in command else command])
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - begin
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    return seconds, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    build = pathlib.Path(options.build).resolve()
    os.environ["PATH"] = f"{build}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        os.chdir(work)
        make = f"{build}/tests/bin/mksnapshot --preset llama-3.2-1b --rows {options.rows}"
        subprocess.run(f"{make} --observe 32 --scores random -o in.kv", shell=True, check=True)
        size = os.path.getsize("in.kv")
        layer = size / 16
        commands = {
            "cat | cat": "cat in.kv | cat > out",
            "kv-score knorm": "kv-score --method knorm in.kv > out",
            "kv-score knorm, pipes": "kv-score --method knorm < <(cat in.kv) > >(cat > out)",
            "kv-score snapkv": "kv-score --method snapkv in.kv > out",
            "kv-evict 10 %": "kv-evict --rate 0.1 in.kv > out",
            "kv-evict 90 %": "kv-evict --rate 0.9 in.kv > out",
            "kv-evict 90 %, pipes": "kv-evict --rate 0.9 < <(cat in.kv) > >(cat > out)",
        }
        times = {name: [] for name in commands}
        memory = dict.fromkeys(commands, 0)
        for _ in range(options.runs):
            for name, command in commands.items():
                os.path.exists("out") and os.unlink("out")
                seconds, resident = run(command)
                times[name].append(seconds)
                memory[name] = max(memory[name], resident)
        base = statistics.median(times["cat | cat"])
        print(f"input {size / 2**30:.2f} GiB, layer {layer / 2**20:.0f} MiB, medians of {options.runs}")
        for name in commands:
            median = statistics.median(times[name])
            line = f"{name:24} {size / median / 1e9:6.2f} GB/s   {base / median:5.2f} x cat"
            if name != "cat | cat":
                line += f"   {memory[name] / layer:5.2f} layers"
            print(line)


if __name__ == "__main__":
    main()
