"""peer_llama.py - llama.cpp, as llama-cpp-python has it, for peer.py: batches of 512

Processor time of one thread; with several the clock."""

import random
import time

import llama_cpp


# Types of rows by our names; f16 is what llama.cpp takes where nothing is said.
ROW_TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q8_0": 8}


def open_model(gguf, flash, rows, row_type="f16", threads=1):
    kind = ROW_TYPES[row_type.removesuffix("-hadamard")]
    return llama_cpp.Llama(str(gguf), n_ctx=rows, n_batch=512, n_ubatch=512, n_threads=threads,
                           n_threads_batch=threads, flash_attn=flash, type_k=kind, type_v=kind,
                           verbose=False)


def start(gguf, flash, text):
    """Processor time from opening the model to the first token's logits"""
    begin = time.process_time()
    llama = open_model(gguf, flash, 512)
    llama.eval(llama.tokenize(text.encode())[:1])
    return time.process_time() - begin


def describe():
    flags = llama_cpp.llama_print_system_info().decode()
    return f"llama-cpp-python {llama_cpp.__version__}: {flags.strip(' |')}"


class Peer:
    def __init__(self, gguf, flash, rows, row_type="f16", threads=1):
        self.llama = open_model(gguf, flash, rows, row_type, threads)
        self.now = time.process_time if threads == 1 else time.perf_counter
        self.rows = 0
        self.llama.eval(self.ids(48))

    def ids(self, n):
        return [random.randrange(1000, self.llama.n_vocab()) for _ in range(n)]

    def timed(self, n):
        ids, begin = self.ids(n), self.now()
        self.llama.eval(ids)
        return self.now() - begin

    def prompt(self, tokens):
        self.llama.reset()
        return self.timed(tokens)

    def fill(self, rows):
        """A cache of so many rows, behind which steps() is"""
        self.prompt(rows)
        self.rows = rows

    def steps(self, count):
        """Seconds of each of these; the cache is cut back after them."""
        seconds = [self.timed(1) for _ in range(count)]
        self.llama.n_tokens = self.rows       # eval() drops the rows behind
        return seconds
