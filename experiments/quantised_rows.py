#!/usr/bin/env python3
"""What quantised rows cost: the loss of a model that reads them, by teacher forcing.

    experiments/quantised_rows.py -m MODEL --text FILE [-n 8] [--tokens 2048] --table quantised.md

The text is cut into n passages of equal length. The first half of a passage runs with full rows
and is quantised (kv-quantize); the second half runs after it, and its rows are stored in the same
types. Over the tokens of the second half, beside full rows: the difference of the mean negative
log-likelihood (NLL, nats for each token), the divergence KL(full || quantised) of the
distributions (nats), and the share of tokens where both have the same likeliest token. Intervals
are the percentile bootstrap over passages (intervals.py).

Without --rows all types are measured: keys and values, one of them, with and without the Hadamard
transform, with the first and the last layer in full, and KIVI's. --rows 'NAME=OPTIONS' measures
this one instead, with options of kv-quantize, or with --in-prompt of kv-prefill: then tokens of the
first half attend to quantised rows, too. --sinks N measures what full sinks would bring, which no
type has: the first half has the numbers of quantised rows, but for its first N rows, and the second
half stays full (full_sinks.py). The programs are found by PATH.

--llama GGUF measures llama.cpp instead, with the same weights and tokens, beside its own f16 rows:
all of --rows are its types then, with and without its rotation (quantised_llama.py).

--transformers measures the quantised cache of Hugging Face's transformers instead, with the same
weights and tokens in float32, beside its own full cache; the second half runs one token at a time.
--rows are its settings then (quantised_transformers.py).
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

import full_sinks
import quantised_llama
import quantised_transformers
from measure_table import cell, check_table, md_table, summaries, write_tables
from task_records import TaskError, run

TYPES = ("q8_0", "int8", "fp8", "q5_0", "q4_1", "q4_0")
MEASURES = (("loss", "NLL more", False), ("divergence", "KL", False),
            ("same", "same token, %", True), ("bytes", "bytes, %", True))
AT_ONCE = 64            # tokens whose distributions are in memory


def default_rows(layers):
    """name: options of kv-quantize"""
    rows = {}
    for kind in TYPES:
        rows[kind] = f"--keys {kind} --values {kind}"
        rows[f"{kind}, keys only"] = f"--keys {kind}"
        rows[f"{kind}, values only"] = f"--values {kind}"
        rows[f"{kind}, rotated"] = f"--keys {kind} --values {kind} --rotate"
    both = "--keys q4_0 --values q4_0"
    ends = f"--skip-layers 0,{layers - 1}"
    rows["q4_0, ends in full"] = f"{both} {ends}"
    rows["q4_0, rotated, ends in full"] = f"{both} --rotate {ends}"
    rows["q8_0 keys, q4_0 values"] = "--keys q8_0 --values q4_0"
    rows["q8_0 keys, q4_0 values, rotated"] = "--keys q8_0 --values q4_0 --rotate"
    return rows


def rows_with_residual():
    """The same where the last rows stay full; a prompt does not run so, hence not with
    --in-prompt."""
    rows = {"q8_0, 32 rows full": "--keys q8_0 --values q8_0 --residual 32",
            "q5_0, rotated, 32 rows full": "--keys q5_0 --values q5_0 --rotate --residual 32",
            "q4_0, 32 rows full": "--keys q4_0 --values q4_0 --residual 32"}
    for n in (1, 32, 128):
        rows[f"q4_0, rotated, {n} row{'s' * (n > 1)} full"] = (
            f"--keys q4_0 --values q4_0 --rotate --residual {n}")
    for kind in ("kivi4", "kivi2"):
        rows[kind] = f"--keys {kind} --values {kind}"
        rows[f"{kind}, keys only"] = f"--keys {kind}"
        rows[f"{kind}, values only"] = f"--values {kind}"
        rows[f"{kind}, 32 rows full"] = f"--keys {kind} --values {kind} --residual 32"
    return rows


def program(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise TaskError(f"{words[0]} ended with status {done.returncode}")
    return done.stdout.decode()


def ids_of(model, path):
    return program("kv-tokenize", "-m", model, "--no-template", path).split()


def write_ids(path, ids):
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(ids) + "\n")


def kv_bytes(path):
    return json.loads(program("kv-info", "--json", path))["kv_bytes"]


class Passage:
    """Full rows of the first half, and the distributions of the second half after them."""

    def __init__(self, folder, options, ids):
        self.folder, self.model, self.in_prompt = folder, options.model, options.in_prompt
        self.sinks = options.sinks
        self.half = len(ids) // 2
        self.next = [int(token) for token in ids[self.half:]]
        write_ids(self.path("first.ids"), ids[:self.half])
        write_ids(self.path("second.ids"), ids[self.half:])
        self.prefill("full.kv")
        self.bytes = kv_bytes(self.path("full.kv"))
        self.full = Full(self.forced("full.kv"), self.next)

    def path(self, name):
        return os.path.join(self.folder, name)

    def prefill(self, snapshot, *words):
        program("kv-prefill", "-q", "-m", self.model, "--ids", "--no-template", *words, "-o",
                self.path(snapshot), self.path("first.ids"))

    def forced(self, snapshot):
        import numpy
        program("kv-prefill", "-q", "-m", self.model, "--ids", "-r", self.path(snapshot),
                "--logits", self.path("logits.npy"), "-o", self.path("second.kv"),
                self.path("second.ids"))
        return numpy.load(self.path("logits.npy"), mmap_mode="r")

    def measure(self, options):
        words = shlex.split(options)
        if self.in_prompt:
            self.prefill("small.kv", *words)
        else:
            program("kv-quantize", "-q", *words, "-o", self.path("small.kv"), self.path("full.kv"))
        read = "small.kv"
        if self.sinks is not None:
            read = "sinks.kv"
            full_sinks.with_full_sinks(program, self.path("full.kv"), self.path("small.kv"),
                                       self.sinks, self.path(read))
        return {**self.full.compare(self.forced(read)),
                "bytes": kv_bytes(self.path("small.kv")) / self.bytes}


class OtherPassage:
    """The same of another program, beside its own full rows"""

    def __init__(self, other, ids):
        self.other, self.ids = other, [int(token) for token in ids]
        self.half = len(ids) // 2
        self.full = Full(self.forced(other.full)[0], self.ids[self.half:])

    def forced(self, options):
        return self.other.forced(self.ids, self.half, options)

    def measure(self, options):
        logits, shares = self.forced(options)
        return {**self.full.compare(logits), **shares}


class Full:
    """What full rows say: of the logits after each of the tokens but the last, which judge the next
    token. With p = softmax(x) and log q = y - lse(y), KL(p || q) = sum p log p - p.y + lse(y)."""

    def __init__(self, logits, tokens):
        import numpy
        self.said = numpy.array(tokens[1:])
        self.p = numpy.empty((len(self.said), logits.shape[1]), numpy.float32)
        self.likeliest = numpy.empty(len(self.said), numpy.int64)
        self.loss = numpy.empty(len(self.said))
        self.negative_entropy = numpy.empty(len(self.said))
        for rows in self.pieces():
            x = logits[rows].astype(numpy.float64)
            x -= log_sum_exp(x)[:, None]
            p = numpy.exp(x)
            self.p[rows], self.likeliest[rows] = p, x.argmax(axis=1)
            self.loss[rows] = -numpy.take_along_axis(x, self.said[rows, None], 1)[:, 0]
            self.negative_entropy[rows] = (p * x).sum(axis=1)

    def pieces(self):
        return [slice(i, min(i + AT_ONCE, len(self.said)))
                for i in range(0, len(self.said), AT_ONCE)]

    def compare(self, logits):
        import numpy
        loss = divergence = same = 0.0
        for rows in self.pieces():
            y = logits[rows].astype(numpy.float64)
            lse = log_sum_exp(y)
            said = numpy.take_along_axis(y, self.said[rows, None], 1)[:, 0]
            loss += (lse - said - self.loss[rows]).sum()
            divergence += (self.negative_entropy[rows] - (self.p[rows] * y).sum(axis=1) +
                           lse * self.p[rows].sum(axis=1, dtype=numpy.float64)).sum()
            same += (y.argmax(axis=1) == self.likeliest[rows]).sum()
        n = len(self.said)
        return {"loss": loss / n, "divergence": max(0.0, divergence / n), "same": same / n}


def log_sum_exp(x):
    import numpy
    most = x.max(axis=1)
    return most + numpy.log(numpy.exp(x - most[:, None]).sum(axis=1))


def passages(ids, options):
    count, length = options.n, options.tokens
    if len(ids) < count * length:
        raise TaskError(f"--text: {len(ids)} tokens are not {count} passages of {length}")
    step = len(ids) // count
    return [ids[i * step:i * step + length] for i in range(count)]


def other_module(options):
    """Whose ROWS and read() are those of the program that is measured; None for kvpipe's"""
    if options.llama:
        return quantised_llama
    return quantised_transformers if options.transformers else None


def chosen_rows(options):
    other = other_module(options)
    if other and not options.rows:
        return {words: words for words in other.ROWS}
    with open(os.path.join(options.model, "config.json"), encoding="utf-8") as file:
        layers = json.load(file)["num_hidden_layers"]
    if not options.rows:
        return {**default_rows(layers), **({} if options.in_prompt else rows_with_residual())}
    chosen = {}
    for text in options.rows:
        name, equals, words = text.partition("=")
        if not equals or not words.strip():
            raise TaskError(f"--rows {text}: not NAME=OPTIONS")
        chosen[name] = words
        if other:
            other.read(words)
    return chosen


def other_program(options):
    if options.llama:
        return quantised_llama.Llama(options.llama, options.tokens)
    return quantised_transformers.Transformers(options.model) if options.transformers else None


def small_cell(summary):
    """As cell(), with digits for differences that are small"""
    mean, low, high = (f"{summary[name]:.4f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]" if summary["n"] > 1 else mean


def md_lines(found):
    yield from md_table(["rows", *(head for _, head, _ in MEASURES)],
                        [[name, *(cell(one[what], True) if percent else small_cell(one[what])
                                  for what, _, percent in MEASURES)]
                         for (name,), one in found.items()])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("--text", required=True, help="a text that is long enough")
    parser.add_argument("-n", type=int, default=8, help="passages (8)")
    parser.add_argument("--tokens", type=int, default=2048, help="of a passage (2048)")
    parser.add_argument("--rows", action="append", default=[], metavar="NAME=OPTIONS",
                        help="options of kv-quantize, repeatable")
    parser.add_argument("--in-prompt", action="store_true",
                        help="OPTIONS are of kv-prefill")
    parser.add_argument("--sinks", type=int, metavar="N",
                        help="measure what N full rows at the beginning would bring")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--llama", metavar="GGUF", help="measure llama.cpp")
    other.add_argument("--transformers", action="store_true",
                       help="measure transformers' quantised cache")
    parser.add_argument("--table", action="append", default=[], metavar="FILE",
                        help="NAME.md or NAME.tsv, repeatable")
    return parser.parse_args()


def main():
    options = arguments()
    for path in options.table:
        check_table(path)
    if options.n < 1 or options.tokens < 4:
        raise TaskError("-n is at least 1, --tokens at least 4")
    rows, chosen = [], chosen_rows(options)
    other = other_program(options)
    for number, ids in enumerate(passages(ids_of(options.model, options.text), options)):
        with tempfile.TemporaryDirectory(prefix="quantised.") as folder:
            passage = OtherPassage(other, ids) if other else Passage(folder, options, ids)
            for name, words in chosen.items():
                rows.append({"rows": name, "question": number,
                             "measures": passage.measure(words)})
        print(f"passage {number + 1} of {options.n}", file=sys.stderr)
    found = summaries(rows, ("rows",))
    write_tables(options.table, lambda: md_lines(found), found, ("rows",))
    for line in md_lines(found):
        print(line)


if __name__ == "__main__":
    run(main)
