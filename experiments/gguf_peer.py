#!/usr/bin/env python3
"""kvpipe and llama.cpp on the same GGUF files: logits, greedy text, loss.

    experiments/gguf_peer.py --text FILE [-n 8] [--tokens 512] FILE.gguf ...

The text is cut into n passages. On the first 300 tokens of the first one logits are compared, at
every position, as |a - b| / |b| in the L2 norm: the median over positions, and the greatest. The
reference is llama.cpp with the weights of the file dequantised to f32, and with rows in f32; it is
compared with kvpipe without rounding (--products f32, rows in f32), which should differ by the
order of sums alone, with kvpipe and llama.cpp as they are, which have rows in f16, and llama.cpp
with itself in batches of 512 and of 1 token. Then each program continues the first 64 tokens of
each passage by 64, greedily; where texts part, the margin is the difference of llama.cpp's two
greatest logits there. Last, the mean negative
log-likelihood (NLL, nats for each token) of all passages, and by how much it is above that of the
first file, with the same program; intervals are the percentile bootstrap over passages.

Needs llama-cpp-python and gguf; the programs of kvpipe come from the PATH.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

from measure_table import check_table, md_table, summaries, write_tables
from task_records import TaskError, run

POSITIONS, PROMPT, ANSWER = 300, 64, 64
PARTS = ("logits", "texts", "losses")


def program(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False, **options)
    if done.returncode:
        raise TaskError(f"{words[0]} ended with status {done.returncode}")
    return done.stdout


class Ours:
    def __init__(self, file, folder, *prefill):
        self.words, self.prefill = ["-q", "-m", file, "--ids"], ["--no-template", *prefill]
        self.folder = folder

    def logits(self, ids):
        path = os.path.join(self.folder, "logits.npy")
        program("kv-prefill", *self.words, *self.prefill, "--logits", path, "-o", os.devnull,
                input=lines(ids))
        return numpy.load(path)

    def text(self, ids, count):
        snapshot = program("kv-prefill", *self.words, *self.prefill, input=lines(ids))
        found = program("kv-decode", *self.words, "--ignore-eos", "-n", str(count), input=snapshot)
        return [int(token) for token in found.split()]


def lines(ids):
    return "".join(f"{token}\n" for token in ids).encode()


class Llama:
    """rows: of keys and values, 0 f32, 1 f16 as llama.cpp has them by default"""

    def __init__(self, file, rows=1, batch=512):
        import llama_cpp
        self.llama = llama_cpp.Llama(str(file), n_ctx=1024, n_batch=batch, n_ubatch=batch,
                                     logits_all=True, type_k=rows, type_v=rows, verbose=False)

    def logits(self, ids):
        self.llama.reset()
        self.llama.eval(ids)
        return self.llama.scores[:len(ids)].copy()

    def text(self, ids, count):
        found = []
        self.llama.reset()
        self.llama.eval(ids)
        while len(found) < count:
            found.append(int(self.llama.scores[self.llama.n_tokens - 1].argmax()))
            self.llama.eval(found[-1:])
        return found


def write_dequantised(source, path):
    """The same model in f32"""
    import gguf
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    out = gguf.GGUFWriter(path, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        out.add_key_value(field.name, field.contents(), field.types[0], of)
    for tensor in reader.tensors:
        x = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        out.add_tensor(tensor.name, x.reshape([int(n) for n in tensor.shape][::-1]))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def apart(a, b):
    """(median, greatest) over positions"""
    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    errors = numpy.linalg.norm(a - b, axis=1) / numpy.linalg.norm(b, axis=1)
    return float(numpy.median(errors)), float(errors.max())


def compare_logits(file, ids, folder):
    exact_file = os.path.join(folder, "exact.gguf")
    write_dequantised(file, exact_file)
    exact = Llama(exact_file, rows=0).logits(ids)
    os.unlink(exact_file)
    theirs, alone = Llama(file).logits(ids), Llama(file, batch=1).logits(ids)
    ours = Ours(file, folder).logits(ids)
    plain = Ours(file, folder, "--products", "f32", "--dtype", "f32").logits(ids)
    return {"kvpipe f32": apart(plain, exact),
            "kvpipe": apart(ours, exact), "llama.cpp": apart(theirs, exact),
            "between": apart(ours, theirs), "llama.cpp, batch 1": apart(alone, theirs)}


def margin(llama, ids, a, b):
    """(tokens before a and b part, the difference of llama.cpp's two greatest logits there)"""
    at = next(i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1])
    greatest = numpy.sort(llama.logits(ids + b[:at])[-1])
    return at, float(greatest[-1] - greatest[-2])


def compare_texts(file, passages, folder):
    """(texts that are the same, (tokens, margin) of those that are not)"""
    ours, llama, parted = Ours(file, folder), Llama(file), []
    for ids in passages:
        a, b = ours.text(ids[:PROMPT], ANSWER), llama.text(ids[:PROMPT], ANSWER)
        if a != b:
            parted.append(margin(llama, ids[:PROMPT], a, b))
    return len(passages) - len(parted), parted


def loss(logits, ids):
    x = logits[:-1].astype(numpy.float64)
    most = x.max(axis=1)
    total = most + numpy.log(numpy.exp(x - most[:, None]).sum(axis=1))
    return float((total - x[numpy.arange(len(x)), ids[1:]]).mean())


def losses(file, passages, folder):
    """A row of summaries() for each program and passage"""
    for name, model in (("kvpipe", Ours(file, folder)), ("llama.cpp", Llama(file))):
        for number, ids in enumerate(passages):
            yield {"program": name, "file": pathlib.Path(file).name, "question": number,
                   "measures": {"NLL": loss(model.logits(ids), ids)}}


def types_of(file):
    """How many tensors have which type"""
    import gguf
    count = {}
    for tensor in gguf.GGUFReader(file).tensors:
        name = tensor.tensor_type.name
        count[name] = count.get(name, 0) + 1
    return ", ".join(f"{n} {name}" for name, n in sorted(count.items(), key=lambda x: -x[1]))


def logit_lines(found):
    if not found:
        return
    ways = list(next(iter(found.values())))
    yield from md_table(["file", *ways], [
        [name, *(f"{one[way][0]:.1e}, {one[way][1]:.1e}" for way in ways)]
        for name, one in found.items()])


def text_lines(found):
    if not found:
        return
    yield from md_table(["file", "the same text", "tokens before they part: margin"], [
        [name, f"{same} of {same + len(parted)}",
         "; ".join(f"{at}: {by:.3f}" for at, by in parted) or "-"]
        for name, (same, parted) in found.items()])


def loss_lines(found):
    rows = []
    if not found:
        return
    for (program_name, file), measures in found.items():
        one, against = measures["NLL"], measures["NLL"]["against"]
        rows.append([file, program_name,
                     f"{one['mean']:.4f} [{one['low']:.4f}, {one['high']:.4f}]",
                     "-" if against is None else f"{against['difference']:+.4f} "
                     f"[{against['low']:+.4f}, {against['high']:+.4f}]"])
    yield from md_table(["file", "program", "NLL", "above the first file"], sorted(rows))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", metavar="FILE.gguf")
    parser.add_argument("--text", required=True, help="a text that is long enough")
    parser.add_argument("-n", type=int, default=8, help="passages (8)")
    parser.add_argument("--tokens", type=int, default=512, help="of a passage (512)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--table", action="append", default=[], metavar="FILE",
                        help="NAME.md or NAME.tsv of the losses, repeatable")
    return parser.parse_args()


def passages_of(options):
    ids = program("kv-tokenize", "-q", "-m", options.files[0], "--no-template", options.text)
    ids = [int(token) for token in ids.split()]
    if len(ids) < options.n * options.tokens:
        raise TaskError(f"--text: {len(ids)} tokens are not {options.n} of {options.tokens}")
    step = len(ids) // options.n
    return [ids[i * step:i * step + options.tokens] for i in range(options.n)]


def main():
    options = arguments()
    for path in options.table:
        check_table(path)
    if options.n < 1 or not POSITIONS <= options.tokens <= 900:
        raise TaskError(f"-n is at least 1, --tokens {POSITIONS} to 900")
    passages, logits, texts, rows = passages_of(options), {}, {}, []
    with tempfile.TemporaryDirectory(prefix="peer.") as folder:
        for file in options.files:
            name = pathlib.Path(file).name
            print(f"{name}: {types_of(file)}", flush=True)
            if "logits" in options.parts:
                logits[name] = compare_logits(file, passages[0][:POSITIONS], folder)
            if "texts" in options.parts:
                texts[name] = compare_texts(file, passages, folder)
            if "losses" in options.parts:
                rows += losses(file, passages, folder)
            print(f"{name} is done", file=sys.stderr, flush=True)
    found = summaries(rows, ("program", "file"), pathlib.Path(options.files[0]).name)
    everything = [*logit_lines(logits), *text_lines(texts), *loss_lines(found)]
    write_tables(options.table, lambda: everything, found, ("program", "file"))
    for line in everything:
        print(line)


if __name__ == "__main__":
    run(main)
