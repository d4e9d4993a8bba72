#!/usr/bin/env python3
"""Learns which KV heads of a model need the whole text: DuoAttention and PruLong.

    heads.py --method duo -m MODEL -o FOLDER            trains, and writes the table of heads
    heads.py --method duo -m MODEL -o FOLDER --resume   goes on from FOLDER/checkpoint.pt
    heads.py --round TABLE --sparsity 0.5 >mask.tsv     which heads stream at this sparsity
    heads.py --evaluate TABLE --method duo -m MODEL     what the model gets right with it

FOLDER gets full_attention_heads.tsv (a line for each layer, in it a number for each KV head;
`kv-evict --heads` reads it) and config.json, as DuoAttention's attn_patterns have them; curve.tsv,
a line for each step; checkpoint.pt. PruLong also writes soft_mask.tsv: numbers that rank heads, for
other sparsities than the one it was trained for. Weights are frozen.

Defaults are those of the papers, for models of 7 B and more on GPUs. For a model of 135 M on two
cores:

    heads.py --method duo -m MODEL -o duo --threads 2 --min-length 512 --max-length 1024 \\
        --lengths 5 --passkeys 5 --words 6 --sink 16 --recent 64 --block 16 --steps 300 \\
        --lr 0.05
    heads.py --method prulong -m MODEL -o prulong --threads 2 --max-length 1024 --batch 1 \\
        --sink 16 --recent 64 --block 16 --target 0.5 --steps 300 --lr 0.3

Exit status: 0 all went well, 1 a file is broken or the run was stopped, 2 wrong options, or what
cannot be done. Needs torch and transformers 5.
"""

import argparse
import os
import sys

from failures import BrokenFile, Refused, exit_status
from head_tables import (ROUNDINGS, check_shape, format_table, read_table,
                         round_table, write_whole)

# what holds where nothing else is said; pairs: duo, prulong
DEFAULTS = {"model": None, "out": None, "resume": False, "init": None, "steps": (2000, 1000),
            "lr": (0.02, 1.0), "batch": (1, 8), "sink": 128, "recent": (256, 1024), "block": 128,
            "max_length": (32000, 131072), "texts": None, "seed": 42, "save": 50, "threads": None,
            "device": "cpu", "dtype": "f32", "method": None, "min_length": (1000, None),
            "lengths": 50, "passkeys": 10, "words": 32, "task": None, "reg": 0.05, "target": 0.7,
            "target_warmup": "linear", "sparsity_est": "closed", "lr_schedule": "linear",
            "weight_decay": 0.0, "round": None, "evaluate": None, "sparsity": None,
            "rounding": "nearest", "samples": 16}
ONLY = {"duo": ("reg", "lengths", "passkeys", "words", "task", "min_length"),
        "prulong": ("target", "sparsity_est", "target_warmup", "lr_schedule", "weight_decay")}
NOT_OF_A_RUN = ("out", "resume", "threads", "save", "round", "evaluate", "sparsity", "rounding",
                "samples", "init", "texts", "model", "device")
# tokens that are read: so many, or so many times the longest text
LEAST_TEXT, SPARE_TEXT = 500_000, 40


def number(kind, least, most=None):
    def parse(text):
        value = kind(text)
        if not value >= least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(
                f"{text} is not {least} or more"
                + (f", {most} or less" if most is not None else ""))
        return value
    parse.__name__ = kind.__name__
    return parse


def parser():
    head, _, tail = __doc__.partition("\n")
    p = argparse.ArgumentParser(prog="heads.py", description=head, epilog=tail, allow_abbrev=False,
                                argument_default=argparse.SUPPRESS,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    count, share = number(int, 1), number(float, 0, 1)
    p.add_argument("--method", choices=("duo", "prulong"))
    p.add_argument("-m", "--model", help="a folder as Hugging Face has it: " +
                   "Llama, Mistral, Qwen2, Qwen3")
    p.add_argument("-o", "--out", help="folder (with --round: file) to write to")
    p.add_argument("--resume", action="store_true", default=argparse.SUPPRESS,
                   help="go on from the folder's checkpoint")
    p.add_argument("--init", metavar="TABLE",
                   help="begin with these numbers, not with all heads full")
    p.add_argument("--steps", type=count, help="2000; prulong: 1000")
    p.add_argument("--lr", type=number(float, 0), help="0.02; prulong: 1")
    p.add_argument("--batch", type=count, help="texts in a step (1; prulong: 8)")
    p.add_argument("--sink", type=number(int, 0),
                   help="first positions that a streaming head sees (128)")
    p.add_argument("--recent", type=count, help="last positions (256; prulong: 1024)")
    p.add_argument("--block", type=count,
                   help="both in whole blocks of so many positions (128); 1: exactly")
    p.add_argument("--max-length", type=count, help="tokens of a text (32000; prulong: 131072)")
    p.add_argument("--texts", nargs="+", metavar="PATH",
                   help="files, folders (the manual pages of this machine)")
    p.add_argument("--seed", type=int)
    p.add_argument("--save", type=count, help="steps between checkpoints (50)")
    p.add_argument("--threads", type=count, help="all processors")
    p.add_argument("--device", help="of torch (cpu)")
    p.add_argument("--dtype", choices=("bf16", "f32", "f64"), help="of weights (f32)")
    duo = p.add_argument_group("duo")
    duo.add_argument("--min-length", type=count, help="tokens of the shortest text (1000)")
    duo.add_argument("--lengths", type=count, help="how many lengths between (50)")
    duo.add_argument("--passkeys", type=count, help="of a text (10)")
    duo.add_argument("--words", type=count, help="of a passkey (32)")
    duo.add_argument("--task", metavar="JSON", help="other words for prompt, needles and questions")
    duo.add_argument("--reg", type=number(float, 0), help="weight of mean |alpha| (0.05)")
    pru = p.add_argument_group("prulong")
    pru.add_argument("--target", type=share, help="share of heads that stream (0.7)")
    pru.add_argument("--target-warmup", choices=("linear", "logarithmic"))
    pru.add_argument("--sparsity-est", choices=("closed", "paper", "sample"),
                     help="closed form, as the paper prints it, or of the sampled masks (closed)")
    pru.add_argument("--lr-schedule", choices=("linear", "cosine"))
    pru.add_argument("--weight-decay", type=number(float, 0),
                     help="of masks and multipliers (0; the public script: 0.1)")
    tables = p.add_argument_group("tables")
    tables.add_argument("--round", metavar="TABLE", help="write it as 0 and 1")
    tables.add_argument("--evaluate", metavar="TABLE",
                        help="the model with this table, after --round's rule with --sparsity")
    tables.add_argument("--sparsity", type=share, help="share of heads that stream")
    tables.add_argument("--rounding", choices=ROUNDINGS,
                        help="which heads: as kv-evict, DuoAttention or PruLong have it (nearest)")
    tables.add_argument("--samples", type=count, help="texts of --evaluate (16)")
    return p


def only(others, what):
    if others:
        raise Refused(f"--{sorted(others)[0].replace('_', '-')} does not go with {what}")


def check(o):
    """Refuses options that do not go together, and fills in the defaults of the method."""
    names = set(vars(o))
    method = getattr(o, "method", None)
    if "round" in names:
        if "sparsity" not in names:
            raise Refused("--round needs --sparsity")
        only(names - {"round", "sparsity", "rounding", "seed", "out"}, "--round")
    elif not names >= {"method", "model"} or ("out" in names) == ("evaluate" in names):
        raise Refused("needed are --method, --model and --out; or --evaluate, --method and "
                      "--model; or --round and --sparsity")
    elif "evaluate" in names:
        only(names & {"resume", "init", "save"}, "--evaluate")
    else:
        only(names & {"sparsity", "samples", "rounding"}, "training")
    if method:
        only(names & set(ONLY["prulong" if method == "duo" else "duo"]), f"--method {method}")
    for name, value in DEFAULTS.items():
        if name not in names:
            setattr(o, name, value[method == "prulong"] if isinstance(value, tuple) else value)
    if method == "duo" and o.min_length > o.max_length:
        raise Refused(f"--min-length {o.min_length} is more than --max-length {o.max_length}")
    if o.target_warmup == "logarithmic" and o.target == 1:
        raise Refused("a target of 1 has no logarithmic warm-up")
    if o.resume and o.init:
        raise Refused("--init and --resume exclude each other")


def lengths(least, most, count):
    """As torch.linspace() of integers."""
    return [int(least + (most - least) * i / max(1, count - 1)) for i in range(count)]


def identity_of(o, model, texts):
    """What a resumed run must share, as config.json has it."""
    from head_training import model_fingerprint
    other = ONLY["prulong" if o.method == "duo" else "duo"]
    values = {name: value for name, value in vars(o).items()
              if name not in NOT_OF_A_RUN and name not in other}
    values["sink_size"], values["recent_size"] = values.pop("sink"), values.pop("recent")
    if o.method == "duo":
        from head_data import read_task
        values["task"] = vars(read_task(o.task))
    return values | {"model_digest": model_fingerprint(model), "texts_digest": texts.digest,
                     "init": read_table(o.init) if o.init else None}


def load(o):
    """Model, mixer, source of samples, texts."""
    import torch
    import transformers
    from head_attention import HeadMixer, load_model
    from head_data import Passkeys, Texts, Windows, read_task
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.use_deterministic_algorithms(True, warn_only=o.device != "cpu")
    task = read_task(o.task)
    mixer = HeadMixer(o.sink, o.recent, o.block)
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}[o.dtype]
    model = load_model(o.model, mixer, dtype, o.device, o.max_length)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(o.model, local_files_only=True)
    except (OSError, ValueError, KeyError) as problem:
        raise BrokenFile(f"{o.model}: no tokenizer: {str(problem).splitlines()[0]}") from None
    texts = Texts(o.texts, tokenizer, max(LEAST_TEXT, SPARE_TEXT * o.max_length), o.seed)
    if o.method == "duo":
        source = Passkeys(texts, tokenizer, task, lengths(o.min_length, o.max_length, o.lengths),
                          o.passkeys, o.words)
    else:
        source = Windows(texts, tokenizer, o.max_length)
    return model, mixer, source, texts


def train(o):
    from head_training import CHECKPOINT, METHODS, Training, evaluate, report, start
    checkpoint = os.path.join(o.out, CHECKPOINT)
    if not o.resume and os.path.exists(checkpoint):
        raise Refused(f"{checkpoint} is there: --resume goes on from it")
    model, mixer, source, texts = load(o)
    shape = (len(model.model.layers), model.config.num_key_value_heads)
    trainer = METHODS[o.method](model, mixer, source, vars(o), shape)
    if o.init:
        start(trainer, o.init, shape)
    training = Training(trainer, o.out, identity_of(o, model, texts), vars(o))
    try:
        os.makedirs(o.out, exist_ok=True)
    except OSError as problem:
        raise BrokenFile(f"{o.out}: {problem.strerror}") from None
    if o.resume:
        training.resume()
    elif o.method == "duo":
        right, = evaluate(model, mixer, source, vars(o) | {"samples": 2}, [None])
        report(f"the model says {right:.0%} of the passkeys' tokens right"
               + (": it cannot do this task; fewer or shorter passkeys?" if right < 0.5 else ""))
    if not training.run():
        report(f"stopped behind step {training.done} of {o.steps}; --resume goes on")
        return 1
    return 0


def evaluate_table(o):
    import torch
    from head_training import evaluate
    rows = read_table(o.evaluate)
    if o.sparsity is not None:
        rows = round_table(rows, o.sparsity, o.rounding, o.seed)
    model, mixer, source, _ = load(o)
    check_shape(o.evaluate, rows, len(model.model.layers), model.config.num_key_value_heads)
    weight = torch.tensor(rows, dtype=torch.float32)
    streaming = torch.zeros_like(weight)
    results = evaluate(model, mixer, source, vars(o), [None, weight, streaming])
    print("heads\t" + ("answers_right" if o.method == "duo" else "nll"))
    for name, result in zip(("full", "table", "streaming"), results):
        print(f"{name}\t{result:.4f}")


def run(o):
    check(o)
    if o.round is not None:
        text = format_table(round_table(read_table(o.round), o.sparsity, o.rounding, o.seed))
        if o.out is None:
            sys.stdout.write(text)
        else:
            write_whole(o.out, text)
    elif o.evaluate is not None:
        evaluate_table(o)
    else:
        return train(o)
    return 0


def main(argv):
    try:
        return exit_status("heads.py", run, parser().parse_args(argv))
    except KeyboardInterrupt:
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
