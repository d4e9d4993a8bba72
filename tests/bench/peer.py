#!/usr/bin/env python3
"""peer.py - prompts and steps beside llama.cpp or transformers, on the same weights, in turns

usage: peer.py BUILD MODEL (--llama GGUF [--no-flash] | --transformers f32|bf16)
               [--tokens N ...] [--rows N ...] [--steps N] [--rounds N] [--threads N]
               [--products TYPE ...] [--row-types TYPE ...] [--start] [--head]

Processor time of one thread each, so that the figures hold on a busy machine; medians. With
--threads it is the clock's time of so many (prompts and steps beside llama.cpp alone). MODEL is a
folder, GGUF the same weights (peer_gguf.py), or both are the same GGUF file. --tokens are the
lengths of prompts, --rows those of the caches behind which a step is measured, without values none.
--row-types measures steps behind
quantised rows of these types, llama.cpp's of the same (-hadamard: see its LLAMA_ATTN_ROT_DISABLE),
beside our own in the weights' type. --start measures loading and the first token instead. Run it
under taskset, on one core, with a Python that has the peer.
"""

import argparse
import importlib
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

import figures

TEXT = "Hello"


def options():
    p = argparse.ArgumentParser(prog="peer.py")
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("model", type=pathlib.Path)
    peer = p.add_mutually_exclusive_group(required=True)
    peer.add_argument("--llama", type=pathlib.Path, metavar="GGUF")
    peer.add_argument("--transformers", choices=["f32", "bf16"])
    p.add_argument("--no-flash", action="store_true", help="llama.cpp without flash attention")
    p.add_argument("--tokens", type=int, nargs="*", default=[512, 2048, 4096])
    p.add_argument("--rows", type=int, nargs="*", default=[512, 2048, 8192])
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--products", nargs="+", default=["f32"])
    p.add_argument("--row-types", nargs="*", default=[], metavar="TYPE")
    p.add_argument("--start", action="store_true", help="loading and the first token")
    # what --start starts for the peer
    p.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--head", action="store_true", help="the head of the table, too")
    return p.parse_args()


def peer_of(o):
    """The module of the peer, its name in the table, and what it opens."""
    if o.llama:
        name = "llama.cpp" + (" without flash attention" if o.no_flash else "")
        return importlib.import_module("peer_llama"), name, (o.llama, not o.no_flash)
    module = importlib.import_module("peer_transformers")
    return module, f"transformers {o.transformers}", (o.model, o.transformers)


def measure_prompts(o, peer, name):
    program = [o.build / "tests/bench/bench_tokens", o.model]
    for tokens in o.tokens:
        ways = {name: lambda: (peer.prompt(tokens),)}
        for products in o.products:
            ways[products] = lambda p=products: figures.seconds_of(*program, tokens, 1, p,
                                                                 o.threads)
        found = figures.in_turns(o.rounds, ways)
        for products in o.products:
            figures.row(f"prompt of {tokens}, products in {products}", o.model.name,
                        found[products][0], name, found[name][0])


def measure_steps(o, peer, name):
    program = [o.build / "tests/bench/bench_tokens", o.model]
    for rows in o.rows:
        peer.fill(rows)
        found = figures.in_turns(o.rounds, {
            name: lambda: (statistics.median(peer.steps(o.steps)),),
            "ours": lambda: figures.seconds_of(*program, rows, o.steps, "f32", o.threads,
                                               "filled")})
        figures.row(f"step behind {rows} rows", o.model.name, found["ours"][1], name,
                    found[name][0])


def measure_row_types(o, module, where, name):
    """A peer for each type is open at a time: its rows may take much memory."""
    program = [o.build / "tests/bench/bench_tokens", o.model]
    for rows in o.rows:
        for kind in o.row_types:
            peer = module.Peer(*where, rows + o.steps + 64, kind)
            peer.fill(rows)
            ways = {"ours": (kind,), "plain": ()}
            found = figures.in_turns(o.rounds, {
                name: lambda: (statistics.median(peer.steps(o.steps)),),
                **{way: lambda words=words: figures.seconds_of(
                    *program, rows, o.steps, "f32", 1, "filled", *words)
                   for way, words in ways.items()}})
            work = f"step behind {rows} rows in {kind}"
            figures.row(work, o.model.name, found["ours"][1], name, found[name][0])
            figures.row(work, o.model.name, found["ours"][1], "our rows in the weights' type",
                        found["plain"][1])


def processor_time(command):
    """Of a whole process"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_start(o, name):
    """A process for each, as a shell starts them; that of the peer leaves out Python's imports."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write(TEXT)
        text.flush()
        command = [o.build / "kv-prefill", "-q", "-j", "1", "-m", o.model, "-o", "/dev/null",
                   text.name]
        found = figures.in_turns(o.rounds, {
            name: lambda: figures.seconds_of(sys.executable, *sys.argv, "--once"),
            "ours": lambda: (processor_time(command),)})
    figures.row("start: loading, the first token", o.model.name, found["ours"][0], name,
                found[name][0])


def main():
    o = options()
    module, name, where = peer_of(o)
    if o.once:
        print(module.start(*where, TEXT))
        return
    if o.head:
        print(figures.HEAD)
    if o.start:
        measure_start(o, name)
        return
    if o.row_types:
        measure_row_types(o, module, where, name)
        return
    more = {"threads": o.threads} if o.llama else {}
    peer = module.Peer(*where, max(o.tokens + o.rows) + o.steps + 64, **more)
    measure_prompts(o, peer, name)
    measure_steps(o, peer, name)


if __name__ == "__main__":
    main()
