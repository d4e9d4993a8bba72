#!/usr/bin/env python3
"""peers_table.py - kvpipe beside other programs: all ratios in one table

usage: peers_table.py BUILD FOLDER [--llama PYTHON] [--torch PYTHON] [--models DIR ...]
                      [--parts PART ...] [--tokens N ...] [--rows N ...] [--rounds N]
                      [--stream-rows N] [--stream-dir DIR] [--retrieve-rows N]
                      [--row-types TYPE ...]

`make bench-peers` runs it. Its parts: prompt, step, start (beside llama.cpp and transformers),
row-types (steps behind quantised rows, llama.cpp), batch (llama.cpp), score (cat), retrieval (our
own attention over all rows). Each takes turns with its peer for so many rounds, and medians count;
a ratio is the peer's time divided by ours. --llama and --torch are Pythons that have these peers;
what one has not got is a row that says so. GGUF files are made in FOLDER. Model parts count
processor time of one thread on one core; score counts seconds of the clock, with all cores.
"""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys

import figures

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ["prompt", "step", "row-types", "start", "batch", "score", "retrieval"]
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


def options():
    p = argparse.ArgumentParser(prog="peers_table.py")
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--llama", type=pathlib.Path)
    p.add_argument("--torch", type=pathlib.Path)
    p.add_argument("--models", type=pathlib.Path, nargs="*", default=[])
    p.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    p.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 4096])
    p.add_argument("--rows", type=int, nargs="+", default=[512, 2048, 8192])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--stream-rows", type=int, default=65536)
    p.add_argument("--stream-dir", type=pathlib.Path)
    p.add_argument("--retrieve-rows", type=int, default=32768)
    p.add_argument("--row-types", nargs="+", default=["q8_0", "q4_0"], metavar="TYPE")
    return p.parse_args()


def cpuinfo(key):
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


class Bench:
    def __init__(self, o):
        self.o = o
        self.one_core = {max(os.sched_getaffinity(0))}
        self.all_cores = os.sched_getaffinity(0)
        self.bf16 = "avx512_bf16" in cpuinfo("flags").split()
        self.failed = 0
        self.there = {"llama.cpp": self.described(o.llama, "peer_llama"),
                      "transformers": self.described(o.torch, "peer_transformers")}

    def described(self, python, module):
        """(does it run?, what it says of itself, or why it does not)"""
        if python is None or not python.exists():
            return False, f"not there: {'no Python named' if python is None else f'no {python}'}"
        got = subprocess.run([python, "-c", f"import {module}; print({module}.describe())"],
                             env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True,
                             text=True)
        if got.returncode != 0:
            return False, f"not there: {last_line(got.stderr)}"
        return True, got.stdout.strip()

    def output(self, work, command, cores):
        """What a command prints, and whether it ended well; if not, a row says so."""
        os.sched_setaffinity(0, cores)
        got = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        os.sched_setaffinity(0, self.all_cores)
        if got.returncode != 0:
            self.failed = 1
            figures.no_row(work, "", "", f"failed: {last_line(got.stderr)}")
        return got.stdout, got.returncode == 0

    def rows_of(self, work, command, cores=None):
        print(self.output(work, command, cores or self.one_core)[0], end="", flush=True)

    def gguf(self, model):
        """The GGUF of a folder, made where there is none or an older one; None when that failed."""
        path = self.o.folder / f"{model.name}.gguf"
        made_of = [HERE / "peer_gguf.py", *model.glob("*.json"), *model.glob("*.safetensors")]
        if path.exists() and path.stat().st_mtime >= max(f.stat().st_mtime for f in made_of):
            return path
        new = path.with_suffix(".new")
        command = [self.o.llama, HERE / "peer_gguf.py", model, new]
        if not self.output(f"GGUF of {model}", command, self.all_cores)[1]:
            return None
        return new.rename(path)

    def has(self, peer, work, model):
        there, why = self.there[peer]
        if not there:
            figures.no_row(work, model.name, peer, why)
        return there

    def peer(self, part, model, name, which):
        """Prompts, steps or the start of a model beside one peer"""
        o, python = self.o, self.o.llama if name == "llama.cpp" else self.o.torch
        command = [python, HERE / "peer.py", o.build, model, *which, "--rounds", o.rounds]
        command += {"prompt": ["--rows", "--tokens", *o.tokens],
                    "step": ["--tokens", "--rows", *o.rows], "start": ["--start"]}[part]
        if part == "prompt":
            command += ["--products", "f32", *(["bf16"] if self.bf16 else [])]
        if part == "start" and not (model / "tokenizer.json").exists():
            figures.no_row(part, model.name, name, "the folder has no tokenizer.json")
        else:
            self.rows_of(part, command)

    def of_models(self, part):
        """Products in bf16 of transformers only where the processor has them: elsewhere they are
        many times slower, and nobody would use them."""
        for model in self.o.models:
            if self.has("llama.cpp", part, model) and (gguf := self.gguf(model)):
                self.peer(part, model, "llama.cpp", ["--llama", gguf])
            if self.has("transformers", part, model):
                for dtype in ["f32", "bf16"] if self.bf16 or part == "start" else ["f32"]:
                    self.peer(part, model, "transformers", ["--transformers", dtype])

    def batch(self):
        for model in self.o.models:
            if self.has("llama.cpp", "batch", model) and (gguf := self.gguf(model)):
                self.rows_of("batch", [self.o.llama, HERE / "peer_batch.py", self.o.build, model,
                                       gguf, "--rows", self.o.rows[0], "--rounds", self.o.rounds])

    def row_types(self):
        o = self.o
        for model in o.models:
            if self.has("llama.cpp", "row-types", model) and (gguf := self.gguf(model)):
                self.rows_of("row-types", [
                    o.llama, HERE / "peer.py", o.build, model, "--llama", gguf, "--rounds",
                    o.rounds, "--rows", *o.rows, "--row-types", *o.row_types])

    def score(self):
        o = self.o
        command = [sys.executable, HERE / "stream.py", o.build, "--table"]
        command += ["--rows", o.stream_rows, "--runs", o.rounds, "--dir", o.stream_dir or o.folder]
        self.rows_of("score", command, self.all_cores)

    def retrieval(self):
        """bench_retrieve takes its own nine rounds in turns."""
        rows, program = self.o.retrieve_rows, self.o.build / "tests/bench/bench_retrieve"
        out, _ = self.output("retrieval", [program, 1, rows, "cpu"], self.one_core)
        line = r"^(FIER|Quest), (H \S+), a step; dense +(\S+) /s +peer +(\S+) /s"
        for name, shape, ours, dense in re.findall(line, out, re.M):
            figures.row(f"{name}, a layer's step, {rows} rows, 11 % read", f"{shape}, width 128",
                        1 / float(ours), "all rows", 1 / float(dense))

    def head(self):
        o = self.o
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        flags = [flag for flag in FLAGS if flag in cpuinfo("flags").split()]
        version, _ = self.output("", [o.build / "kv-prefill", "--version"], self.all_cores)
        compiler = (o.build / "cc.flags").read_text().split(" -Wall")[0]
        family = f"family {cpuinfo('cpu family')}, model {cpuinfo('model')}"
        print(f"{cpuinfo('model name')} ({family}), {len(self.all_cores)} cores, {memory:.0f} GiB; "
              f"{' '.join(flags)}; load {os.getloadavg()[0]:.1f}; {datetime.date.today()}")
        print(f"kvpipe: {'; '.join(version.splitlines())}; {compiler}")
        for name, (_, words) in self.there.items():
            print(f"{name}: {words}")
        print(f"Medians of {o.rounds} rounds in turns; ratio: the peer's time / ours. "
              "Processor time of one thread,\nby the clock where cat is the peer. llama.cpp: "
              "the same weights in the same type, flash attention,\nbatches of 512, rows in "
              "f16; ours: rows in the weights' type.\n")
        print(figures.HEAD, flush=True)


def main():
    o = options()
    o.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(o)
    bench.head()
    for part in PARTS:
        if part in o.parts:
            if part in ("prompt", "step", "start"):
                bench.of_models(part)
            else:
                getattr(bench, part.replace("-", "_"))()
    return bench.failed


if __name__ == "__main__":
    sys.exit(main())
