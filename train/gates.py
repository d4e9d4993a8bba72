#!/usr/bin/env python3
"""Trains the gate of KVzap for kv-prefill --gate, and says how near it comes to KVzip+; or converts
a published gate of Fast KVzip.

usage: gates.py MODEL --out FOLDER [options]
       gates.py --convert FILE.pt --out FOLDER

Texts are documents of this machine, or of a folder. Programs of PATH score the rows of each as
KVzip+ does; the gate of a layer learns the logarithm of the score of a row, or of 1e-6 where that
is more, from the hidden state of its token behind the layer's input norm. Rows that KVzip+ always
keeps are left out. --kind linear is ridge regression, alpha 1; --kind mlp has a hidden layer, and
learns with AdamW, 5e-3 and a cosine, in batches of 512. FOLDER gets config.json and
model.safetensors as they are published, and fit.tsv: R^2 and rank correlation for each layer and KV
head, on texts that nobody trained with. The same options give the same bytes.

--convert: FILE.pt is a torch file with a list over layers in "module". FOLDER gets
model.safetensors with names that kv-prefill --gate knows.

Exit status: 0, 1 when a file cannot be read or is broken or a program fails, 2 when something is
refused.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time

import numpy
import torch
from transformers import AutoTokenizer

from checkpoints import load_checkpoint
from failures import BrokenFile, Refused, exit_status
from gate_fits import fit_linear, fit_mlp, judge
from gate_lessons import Teacher, draw_ids, load_layer
from lookahead_files import fingerprint, save_folder, write_text
from lookahead_model import FrozenModel
from lookahead_texts import load_parts

KINDS = ("linear", "mlp")
FIRST_JUDGED = 900001       # number of the first text that nobody trains with


# ---- training ----

def note(text):
    print(text, file=sys.stderr, flush=True)


def lessons_of(args, teacher, tokenizer, sources, first, count, positions):
    """Paths of the lessons of so many texts."""
    paths, start = [], time.monotonic()
    for number in range(first, first + count):
        seed = f"gates {args.seed} {number}"
        ids = draw_ids(random.Random(seed), tokenizer, sources, args.min_length, args.max_length)
        paths.append(teacher.teach(ids, positions, seed))
        if len(paths) % 10 == 0 or len(paths) == count:
            note(f"{len(paths)} texts of {count}, {time.monotonic() - start:.0f} s")
    return paths


def fit_layer(args, layer, x, y):
    return fit_linear(x, y) if args.kind == "linear" else \
        fit_mlp(x, y, args.hidden, args.epochs, args.seed * 1000 + layer)


def fit_all(args, model, mine, others):
    """The tensors of all layers by their names, and the lines of fit.tsv."""
    width, tensors, lines = model.config.hidden_size, {}, ["layer\thead\tr2\tspearman"]
    start = time.monotonic()
    for layer in range(len(model.layers)):
        x, y = load_layer(mine, layer, width)
        net = fit_layer(args, layer, x, y)
        tensors |= {f"layers.{layer}.{name}": w for name, w in net.state_dict().items()}
        if others:
            found = judge(net, *load_layer(others, layer, width))
            lines += [f"{layer}\t{g}\t{r2:.4f}\t{rho:.4f}" for g, (r2, rho) in enumerate(found)]
            note(f"layer {layer}: R^2 {numpy.mean([r2 for r2, _ in found]):.3f}, rank correlation "
                 f"{numpy.mean([rho for _, rho in found]):.3f}, {time.monotonic() - start:.0f} s")
    return tensors, lines


def train(args):
    model = FrozenModel.load(args.model, getattr(torch, args.dtype))
    tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
    mine, others = load_parts(args.texts, args.seed)
    kept = contextlib.nullcontext(args.lessons) if args.lessons else \
        tempfile.TemporaryDirectory(prefix="gates.")
    with kept as folder:
        teacher = Teacher(model, args.model, folder, args.dtype, args.threads)
        judged = lessons_of(args, teacher, tokenizer, others, FIRST_JUDGED, args.judge, None)
        lessons = lessons_of(args, teacher, tokenizer, mine, 1, args.count, args.positions)
        tensors, lines = fit_all(args, model, lessons, judged)
    save_folder(args.out, tensors, {
        "architectures": ["KVzapModel"], "model_type": "kvzap", "dtype": "float32",
        "input_dim": model.config.hidden_size, "output_dim": model.kv_heads,
        "hidden_dim": args.hidden if args.kind == "mlp" else None, "n_modules": len(model.layers),
        "kvpipe_gate": {"target_weights": fingerprint(args.model)}})
    write_text(os.path.join(args.out, "fit.tsv"), "\n".join(lines) + "\n")


# ---- Fast KVzip ----

def old_name(function):
    """The function under the name that NumPy 1 wrote."""
    def named(*arguments):
        return function(*arguments)
    named.__module__, named.__name__, named.__qualname__ = ("numpy.core.multiarray",
                                                            *[function.__name__] * 2)
    return named


def read_published(path):
    """The list over layers: beside it such a file has arrays of NumPy."""
    array = numpy.zeros(0).__reduce__()[0]
    with torch.serialization.safe_globals([
            array, old_name(array), numpy.ndarray, numpy.dtype, numpy.dtypes.Float64DType,
            numpy.dtypes.Float32DType]):
        layers = load_checkpoint(path, "cpu")
    layers = layers.get("module") if isinstance(layers, dict) else None
    if not isinstance(layers, list) or not layers:
        raise BrokenFile(f"{path}: there is no list of layers in \"module\"")
    return layers


def shapes_of(layer):
    """What the tensors of a layer are to be, by those that have all sizes."""
    heads, _, sinks, width = layer["k_base"].shape
    group, model = layer["b"].shape[-1], layer["q_proj.weight"].shape[1]
    return {"q_proj.weight": (heads * group * width, model),
            "q_proj.bias": (heads * group * width,), "k_proj.weight": (heads * width, model),
            "q_norm.weight": (width,), "k_norm.weight": (width,),
            "k_base": (heads, 1, sinks, width), "b": (heads, 1, group)}


def converted(layer, place, first):
    """The tensors of a layer as they are written; `first`: shapes of the first layer's, or None."""
    try:
        wanted = first or shapes_of(layer)
        found = {name: tuple(tensor.shape) for name, tensor in layer.items()}
    except (AttributeError, KeyError, IndexError, ValueError) as problem:
        raise BrokenFile(f"{place}: no gate of Fast KVzip: {problem!r}") from problem
    for name in sorted({*wanted, *found}):
        if found.get(name) != wanted.get(name):
            raise BrokenFile(f"{place}: {name} has the shape {found.get(name)}, "
                             f"not {wanted.get(name)}")
    flat = {"k_base": (-1, wanted["k_base"][-1]), "b": (-1,)}
    return wanted, {name: tensor.detach().reshape(flat.get(name, tensor.shape))
                    for name, tensor in layer.items()}


def convert(args):
    wanted, tensors = None, {}
    for number, layer in enumerate(read_published(args.convert)):
        wanted, made = converted(layer, f"{args.convert}: layer {number}", wanted)
        tensors |= {f"layers.{number}.{name}": tensor for name, tensor in made.items()}
    save_folder(args.out, tensors, {"model_type": "fastkvzip"})


# ---- options ----

def options():
    parser = argparse.ArgumentParser(description="train the gate of KVzap, or convert one of Fast "
                                     "KVzip", argument_default=argparse.SUPPRESS)
    parser.add_argument("model", nargs="?", help="model folder")
    parser.add_argument("--out", required=True, help="folder of the gate")
    parser.add_argument("--convert", metavar="FILE.pt", help="published gate of Fast KVzip")
    parser.add_argument("--kind", choices=KINDS, help="(mlp)")
    parser.add_argument("--hidden", type=int, help="width of the hidden layer (512)")
    parser.add_argument("--epochs", type=int, help="of mlp (15)")
    parser.add_argument("--texts", help="folder of *.txt files instead of this machine's texts")
    parser.add_argument("--count", type=int, help="texts to train with (150)")
    parser.add_argument("--min-length", type=int, help="tokens of the shortest text (750)")
    parser.add_argument("--max-length", type=int, help="of the longest (1250)")
    parser.add_argument("--positions", type=int, help="tokens of each text, by chance (500)")
    parser.add_argument("--judge", type=int, help="held-out texts (8)")
    parser.add_argument("--lessons", metavar="FOLDER", help="keep there what is learned from, for "
                        "another run with the same texts: 35 MB a text of SmolLM2-135M")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"),
                        help="of the model when hidden states are taken (float32)")
    parser.add_argument("--seed", type=int, help="(1)")
    parser.add_argument("--threads", type=int, help="(1)")
    return parser


DEFAULTS = {"kind": "mlp", "hidden": 512, "epochs": 15, "texts": None, "count": 150,
            "min_length": 750, "max_length": 1250, "positions": 500, "judge": 8, "lessons": None,
            "dtype": "float32", "seed": 1, "threads": 1}


def main():
    parser = options()
    given = vars(parser.parse_args())
    if "convert" in given:
        extra = [name for name in given if name not in ("convert", "out")]
        if extra:
            parser.error("--convert takes no model and no option of training: "
                         + ", ".join(name.replace("_", "-") for name in extra))
        return exit_status("gates.py", convert, argparse.Namespace(**given))
    if "model" not in given:
        parser.error("name a model, or a file to --convert")
    args = argparse.Namespace(**DEFAULTS | given)
    for name in ("hidden", "epochs", "count", "min_length", "positions", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if args.judge < 0 or args.max_length < args.min_length:
        parser.error("need --judge of 0 or more, --max-length not below --min-length")
    torch.set_num_threads(args.threads)
    return exit_status("gates.py", train, args)


if __name__ == "__main__":
    sys.exit(main())
