#!/usr/bin/env python3
"""Trains a LookaheadKV adapter for a model, or exports one.

usage: lookahead.py MODEL --data DATA.jsonl [...] --out RUN --steps N [options]
       lookahead.py --export RUN/checkpoint.pt --out ADAPTER [--export-dtype bf16]

The model stays as it is. Learned embeddings and LoRA on their rows are trained so that their
attention to a prompt is that of the model's answer (LookaheadKV, 2026, section 3.2): the loss
is the mean over layers and query heads of KL(true || guessed), scores normalised over the prompt.
Of documents that were made with --target kvzip the true scores are KVzip's, to the power of
--power, one for each KV head; KV heads that have some of the best rows of all, --rate of them, and
not only such, count. DATA.jsonl comes from lookahead_data.py. RUN gets curve.tsv, curve.png and
checkpoint.pt.

A step takes whole groups of the data, at least --batch samples; a document is one. --resume goes
on from the checkpoint, and gives the same bytes as a run that was not interrupted; SIGINT and
SIGTERM end the run after the step, with a checkpoint. Exit status: 0, 1 when a file cannot be read
or is broken, 2 when something is refused, 130 or 143 after a signal.
"""

import argparse
import math
import os
import random
import sys
import time

import torch

from checkpoints import CHECKPOINT, Signals, load_checkpoint
from failures import BrokenFile, Refused, exit_status
from lookahead_curve import RATES, draw_curve, write_curve
from lookahead_files import (adapter_settings, data_digest, fill_adapter, fingerprint, load_data,
                             save_adapter, write_atomically)
from lookahead_model import MODULES, Adapter, FrozenModel
from lookahead_rows import Documents
from lookahead_scores import Prompts, decode, divergence, evicted, pooled, recall

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def learning_rate(step, args):
    """Of the step with this number, the first is 0: warm-up, then a cosine to a small share."""
    warm = max(1, round(args.warmup * args.steps))
    share = args.min_lr + (1 - args.min_lr) * 0.5 * (1 + math.cos(math.pi * step / args.steps))
    return args.lr * min(1.0, (step + 1) / warm) * share


class Order:
    """Groups for training, each epoch in an order of its own; the position is a number."""

    def __init__(self, groups, seed):
        self.groups, self.seed, self.epoch, self.order = groups, seed, None, None

    def __getitem__(self, position):
        epoch, place = divmod(position, len(self.groups))
        if epoch != self.epoch:
            self.epoch, self.order = epoch, list(range(len(self.groups)))
            random.Random(f"order {self.seed} {epoch}").shuffle(self.order)
        return self.groups[self.order[place]]


def read_groups(model, groups, values=False):
    """(prompts, true scores) of a group of the data, or of several documents; values: of the last
    layer, too."""
    if "scored" in groups[0]:
        documents = Documents(model, groups)
        return documents, documents.target
    (group,) = groups
    questions = group["questions"]
    prompts = Prompts(model, group["prefix"], [question["tail"] for question in questions])
    return prompts, prompts.read([question["response"] for question in questions], values)


def evaluate_accuracy(prompts, guess, questions, tokenizer):
    """For each rate [right answers], of the questions that the whole cache answers rightly."""
    model, asked = prompts.model, [n for n, q in enumerate(questions) if q.get("right")]
    found = []
    for rate in RATES if asked else ():
        cache, visible = evicted(prompts, pooled(guess, model.kv_heads), rate)
        answers = decode(model, cache, visible, [q["response"][0] for q in questions],
                         prompts.lengths, [len(q["response"]) + 4 for q in questions],
                         model.stop_ids())
        found.append([questions[n]["answer"].lower() in tokenizer.decode(answers[n]).lower()
                      for n in asked])
    return found


class Run:
    """A training run and all that a checkpoint must have of it."""

    def __init__(self, args, model, groups, identity):
        self.args, self.model = args, model
        self.train = Order([g for g in groups if g["split"] == "train"], args.seed)
        self.heldout = [g for g in groups if g["split"] == "heldout"][:args.heldout]
        if not self.train.groups:
            raise Refused("the data has no groups to train with")
        torch.manual_seed(args.seed)
        self.adapter = Adapter(model, args.tokens, args.rank, args.alpha, args.modules, args.init)
        if args.start:
            self.start_from(args.start, args.model)
        self.optimizer = torch.optim.Adam(self.adapter.parameters(), lr=args.lr, betas=(0.9, 0.95))
        self.settings = {name: getattr(args, name) for name in (
            "steps", "batch", "lr", "min_lr", "warmup", "clip", "seed", "dtype", "every",
            "heldout", "accuracy", "start", "power", "rate")} | self.adapter.settings() | identity
        self.step = self.samples = self.position = 0
        # losses since the last line of the curve
        self.sum, self.count, self.curve = 0.0, 0, []
        self.tokenizer = None

    def start_from(self, folder, model):
        """Values of an adapter folder instead of random ones."""
        there, wanted = adapter_settings(folder, model), self.adapter.settings()
        for name, value in there.items():
            if list(value) != wanted[name] if name == "modules" else value != wanted[name]:
                raise Refused(f"{folder} has {name} {value}, not {wanted[name]}")
        fill_adapter(self.adapter, folder)

    # ---- checkpoints ----

    def state(self):
        return {"settings": self.settings, "base": self.args.model, "step": self.step,
                "samples": self.samples, "position": self.position, "sum": self.sum,
                "count": self.count, "curve": self.curve, "rng": torch.get_rng_state(),
                "adapter": self.adapter.state_dict(), "optimizer": self.optimizer.state_dict()}

    def save(self):
        write_atomically(os.path.join(self.args.out, CHECKPOINT),
                         lambda path: torch.save(self.state(), path))
        write_curve(self.args.out, self.curve)

    def resume(self, state):
        for name, value in self.settings.items():
            if state["settings"].get(name) != value:
                raise Refused(f"the checkpoint has {name} {state['settings'].get(name)}, "
                              f"not {value}")
        self.adapter.load_state_dict(state["adapter"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.curve = [list(row) for row in state["curve"]]
        for name in ("step", "samples", "position", "sum", "count"):
            setattr(self, name, state[name])

    # ---- steps ----

    def next_groups(self, most):
        """The next group, or as many documents."""
        groups = [self.train[self.position]]
        self.position += 1
        while len(groups) < most and all("scored" in one
                                         for one in (groups[0], self.train[self.position])):
            groups.append(self.train[self.position])
            self.position += 1
        return groups

    def losses(self, prompts, truth, guess):
        """Of each prompt."""
        if isinstance(prompts, Documents):
            return prompts.divergence(guess, self.args.power, self.args.rate)
        return divergence(truth, guess)

    def take_step(self):
        """Groups until there are enough samples, and one step of the optimizer."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.args)
        taken, total = 0, 0.0
        while taken < self.args.batch:
            groups = self.next_groups(self.args.batch - taken)
            prompts, truth = read_groups(self.model, groups)
            losses = self.losses(prompts, truth, prompts.guess(self.adapter))
            losses.sum().backward()
            taken, total = taken + len(losses), total + losses.sum().item()
        if not math.isfinite(total):
            raise BrokenFile(f"the loss of step {self.step + 1} is not finite")
        for parameter in self.adapter.parameters():
            if parameter.grad is not None:
                parameter.grad /= taken
        torch.nn.utils.clip_grad_norm_(self.adapter.parameters(), self.args.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        self.samples += taken
        self.sum, self.count = self.sum + total, self.count + taken

    @torch.no_grad()
    def evaluate(self):
        """[held-out loss, recall at each rate, accuracy at each rate]."""
        losses, recalls, right = [], [], []
        for number, group in enumerate(self.heldout):
            asked = number < self.args.accuracy and "scored" not in group
            prompts, truth = read_groups(self.model, [group], asked)
            guess = prompts.guess(self.adapter)
            losses += self.losses(prompts, truth, guess).tolist()
            recalls += prompts.recall(guess, RATES) if isinstance(prompts, Documents) else \
                recall(truth, guess, prompts, RATES)
            if asked:
                right.append(evaluate_accuracy(prompts, guess, group["questions"],
                                               self.tokenizer))
        if not losses:
            return [None] * (1 + 2 * len(RATES))
        means = [sum(column) / len(recalls) for column in zip(*recalls)]
        merged = [sum(lists, []) for lists in zip(*(found for found in right if found))]
        shares = [sum(one) / len(one) for one in merged] or [None] * len(RATES)
        return [sum(losses) / len(losses)] + means + shares

    def note(self, started, first):
        """A line of the curve."""
        loss = self.sum / self.count if self.count else None
        self.curve.append([self.step, self.samples, loss] + self.evaluate())
        self.sum, self.count = 0.0, 0
        write_curve(self.args.out, self.curve)
        row, done = self.curve[-1], self.samples - first
        shown = ["-" if value is None else f"{value:.3f}" for value in row[2:]]
        print(f"step {self.step}/{self.args.steps} samples {self.samples} loss {shown[0]} "
              f"held-out {shown[1]} recall {' '.join(shown[2:5])} accuracy {' '.join(shown[5:])}"
              + (f" {(time.monotonic() - started) / done:.2f} s/sample" if done else ""),
              flush=True)

    def go(self, stopped):
        """Until the last step, --stop-at, or stopped() says so."""
        end = min(self.args.steps, self.args.stop_at or self.args.steps)
        started, first = time.monotonic(), self.samples
        if not self.curve:
            self.note(started, first)
        while self.step < end and not stopped():
            self.take_step()
            if self.step % self.args.every == 0 or self.step == self.args.steps:
                self.note(started, first)
            if self.step % self.args.save_every == 0:
                self.save()
        self.save()
        draw_curve(self.args.out, self.curve)


def train(args):
    checkpoint = os.path.join(args.out, CHECKPOINT)
    if os.path.exists(checkpoint) and not args.resume:
        raise Refused(f"{checkpoint} is there: --resume goes on from it")
    state = load_checkpoint(checkpoint) if args.resume else None
    torch.set_num_threads(args.threads)
    model = FrozenModel.load(args.model, DTYPES[args.dtype], args.device)
    groups = load_data(args.data, args.model, model.config.vocab_size)
    run = Run(args, model, groups, {"weights": fingerprint(args.model),
                                    "data": data_digest(args.data)})
    if args.accuracy:
        from transformers import AutoTokenizer
        run.tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
    if state:
        run.resume(state)
    os.makedirs(args.out, exist_ok=True)
    signals = Signals()
    run.go(signals)
    return 128 + signals.number if signals.number else 0


def export(args):
    state = load_checkpoint(args.export)
    settings = state["settings"]
    save_adapter(state["adapter"], settings, args.out, state["base"], settings["weights"],
                 DTYPES[args.export_dtype])
    print(f"{args.out}: {settings['tokens']} tokens, rank {settings['rank']}, "
          f"step {state['step']} of {settings['steps']}, {state['samples']} samples")
    return 0


def modules(text):
    """--modules: all, none, or names with commas."""
    names = {"all": MODULES, "none": ()}.get(text) or tuple(filter(None, text.split(",")))
    if text == "none":
        names = ()
    for name in names:
        if name not in MODULES:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(MODULES)}")
    return names


def parse():
    parser = argparse.ArgumentParser(description="train a LookaheadKV adapter, or export one")
    add = parser.add_argument
    add("model", nargs="?", help="model folder")
    add("--data", nargs="+", help="data sets of lookahead_data.py")
    add("--out", required=True, help="folder of the run, or of the adapter with --export")
    add("--steps", type=int, help="steps of the optimizer; the schedule ends with them")
    add("--batch", type=int, default=8, help="samples of a step, at least (8)")
    add("--lr", type=float, default=2e-3, help="greatest learning rate (0.002)")
    add("--min-lr", type=float, default=0.05, help="share of it at the end (0.05)")
    add("--warmup", type=float, default=0.02, help="share of the steps (0.02)")
    add("--clip", type=float, default=1.0, help="greatest norm of a gradient (1)")
    add("-n", "--n", dest="tokens", type=int, default=32, help="learned tokens (32)")
    add("--rank", type=int, default=8, help="of LoRA; 0: none (8)")
    add("--alpha", type=int, default=32, help="of LoRA (32)")
    add("--modules", type=modules, default=MODULES, help="with LoRA: all, none, or names (all)")
    add("--init", choices=("tokens", "noise"), default="tokens",
        help="learned rows begin as embeddings of tokens, or their mean with noise (tokens)")
    add("--power", type=float, default=1.0, help="of the scores of documents (1)")
    add("--rate", type=float, default=0.1, help="share of the rows of documents that stays (0.1)")
    add("--start", metavar="ADAPTER", help="begin with the values of an adapter folder")
    add("--seed", type=int, default=1)
    add("--dtype", choices=("f32", "bf16"), default="f32", help="of the frozen model (f32)")
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    add("--every", type=int, default=20, help="steps for a line of the curve (20)")
    add("--heldout", type=int, default=8, help="held-out groups that are tried for it (8)")
    add("--accuracy", type=int, default=0, help="of these, answered with thinned caches (0)")
    add("--save-every", type=int, default=20, help="steps for a checkpoint (20)")
    add("--stop-at", type=int, help="end after this step, with a checkpoint")
    add("--resume", action="store_true", help="go on from the checkpoint in --out")
    add("--export", metavar="CHECKPOINT", help="write an adapter folder from it")
    add("--export-dtype", choices=DTYPES, default="bf16")
    args = parser.parse_args()
    if args.export:
        return args
    if not args.model or not args.data or not args.steps:
        parser.error("training needs MODEL, --data and --steps")
    for name in ("steps", "batch", "tokens", "threads", "every", "save_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if args.power <= 0 or not 0 < args.rate < 1:
        parser.error("need --power > 0 and --rate between 0 and 1")
    if args.rank < 0 or args.lr <= 0 or args.clip <= 0 or not 0 <= args.min_lr <= 1:
        parser.error("need --rank >= 0, --lr > 0, --clip > 0, --min-lr in 0 .. 1")
    if not args.modules or not args.rank:
        args.modules, args.rank = (), 0
    return args


def main():
    args = parse()
    return exit_status("lookahead.py", export if args.export else train, args)


if __name__ == "__main__":
    sys.exit(main())
