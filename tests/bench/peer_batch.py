#!/usr/bin/env python3
"""peer_batch.py - steps of several sequences at once beside llama.cpp, in turns

usage: peer_batch.py BUILD MODEL GGUF [--rows N] [--sequences N ...] [--steps N] [--rounds N]
                     [--no-flash] [--head]

Processor time of one thread each, so that the figures hold on a busy machine; medians of rounds.
GGUF has the weights of the folder MODEL for llama-cpp-python, which must be installed; its
sequences have streams of rows of their own. Run it under taskset, on one core.
"""

import argparse
import ctypes
import pathlib
import random
import statistics
import subprocess
import time

import llama_cpp as ll

import figures

MEASURED = [1, 4, 16, 32]       # by bench_batch


def options():
    p = argparse.ArgumentParser(prog="peer_batch.py")
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("gguf", type=pathlib.Path)
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--sequences", type=int, nargs="+", default=MEASURED, choices=MEASURED)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--no-flash", action="store_true", help="llama.cpp without flash attention")
    p.add_argument("--head", action="store_true", help="the head of the table, too")
    return p.parse_args()


def ours(o):
    """Seconds of a step for each number of sequences"""
    command = [o.build / "tests/bench/bench_batch", o.model, str(o.rows), str(o.steps), "cpu", "1"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = map(str.split, out.splitlines()[2:])
    found = {int(words[0]): float(words[1]) / 1e3 for words in lines}
    return tuple(found[n] for n in o.sequences)


class Theirs:
    def __init__(self, o):
        most = max(o.sequences)
        ll.llama_backend_init()
        self.quiet = ll.llama_log_callback(lambda *_: None)
        ll.llama_log_set(self.quiet, ctypes.c_void_p(0))
        self.model = ll.llama_model_load_from_file(str(o.gguf).encode(),
                                                   ll.llama_model_default_params())
        self.vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self.model))
        p = ll.llama_context_default_params()
        room = o.rows + len(o.sequences) * (o.steps + 1) * o.rounds + 64
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = most * room, 512, 512, most
        p.n_threads = p.n_threads_batch = 1
        p.kv_unified = False
        p.flash_attn_type = 0 if o.no_flash else 1
        self.context = ll.llama_init_from_model(self.model, p)
        self.batch = ll.llama_batch_init(512, 0, 1)
        self.length = [0] * most
        for sequence in range(most):
            for at in range(0, o.rows, 512):
                self.run([sequence] * min(512, o.rows - at))

    def run(self, sequences):
        """A random token behind each of these; seconds"""
        b = self.batch
        b.n_tokens = len(sequences)
        for i, s in enumerate(sequences):
            b.token[i], b.pos[i] = random.randrange(1000, self.vocabulary), self.length[s]
            b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = 1, s, True
            self.length[s] += 1
        start = time.process_time()
        if ll.llama_decode(self.context, b) != 0:
            raise SystemExit("peer_batch.py: llama_decode failed")
        ll.llama_get_logits(self.context)
        return time.process_time() - start

    def steps(self, n, count):
        self.run(list(range(n)))
        return statistics.median(self.run(list(range(n))) for _ in range(count))


def main():
    o = options()
    peer = Theirs(o)
    found = figures.in_turns(o.rounds, {
        "theirs": lambda: tuple(peer.steps(n, o.steps) for n in o.sequences),
        "ours": lambda: ours(o)})
    if o.head:
        print(figures.HEAD)
    for n, us, them in zip(o.sequences, found["ours"], found["theirs"]):
        figures.row(f"step of {n} sequences, {o.rows} rows each", o.model.name, us,
                    "llama.cpp" + (" without flash attention" if o.no_flash else ""), them)


if __name__ == "__main__":
    main()
