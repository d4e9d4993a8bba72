#!/usr/bin/env python3
"""peer.py - prefill and decoding beside llama.cpp, on the same weights, in turns

usage: peer.py BUILD MODEL GGUF [--tokens N ...] [--steps N] [--rounds N] [--flash] [--products TYPE ...]

Processor time of one thread each, so that the figures hold on a busy machine; medians. MODEL is a folder,
GGUF the same weights for llama-cpp-python, which must be installed. Run it under taskset, on one core.
"""

import argparse
import pathlib
import random
import statistics
import subprocess
import time

import llama_cpp


def options():
    p = argparse.ArgumentParser(prog="peer.py")
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("gguf", type=pathlib.Path)
    p.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 4096])
    p.add_argument("--steps", type=int, default=16)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--flash", action="store_true", help="llama.cpp's flash attention")
    p.add_argument("--products", nargs="+", default=["f32", "bf16"])
    return p.parse_args()


def ours(o, tokens, products):
    """(prompt, step) in seconds"""
    command = [o.build / "tests/bench/bench_tokens", o.model, str(tokens), str(o.steps), products, "1"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return tuple(map(float, out.split()))


def theirs(o, llama, tokens):
    """The same of llama.cpp, where a short prompt has run before"""
    ids = [random.randrange(1000, llama.n_vocab()) for _ in range(tokens + o.steps)]
    llama.reset()
    llama.eval(ids[:48])
    llama.reset()
    start = time.process_time()
    llama.eval(ids[:tokens])
    prompt, steps = time.process_time() - start, []
    for i in range(tokens, len(ids)):
        start = time.process_time()
        llama.eval(ids[i:i + 1])
        steps.append(time.process_time() - start)
    return prompt, statistics.median(steps)


def main():
    o = options()
    llama = llama_cpp.Llama(str(o.gguf), n_ctx=max(o.tokens) + o.steps + 64, n_batch=512, n_ubatch=512, n_threads=1,
                            n_threads_batch=1, flash_attn=o.flash, verbose=False)
    print("| tokens | products | prompt, s | llama.cpp, s | ratio | step, ms | llama.cpp, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for tokens in o.tokens:
        peer, us = [], {products: [] for products in o.products}
        for _ in range(o.rounds):
            peer.append(theirs(o, llama, tokens))
            for products in o.products:
                us[products].append(ours(o, tokens, products))
        prompt, step = (statistics.median(column) for column in zip(*peer))
        for products in o.products:
            p, s = (statistics.median(column) for column in zip(*us[products]))
            print(f"| {tokens} | {products} | {p:.3f} | {prompt:.3f} | {prompt / p:.2f} | {s * 1e3:.2f} "
                  f"| {step * 1e3:.2f} | {step / s:.2f} |", flush=True)


if __name__ == "__main__":
    main()
