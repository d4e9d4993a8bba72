#!/usr/bin/env python3
"""Trains a retrieval head for kv-decode --retrieve specontext (SpeContext), and says what it is
worth.

usage: retrieval_head.py MODEL --out FOLDER [options]

Texts are documents of this machine with facts in them and questions about these
(lookahead_data.py). The model runs each once; the head learns, for every KV head, the mean over the
layers of the greatest weight among its query heads, without the first and the last tokens, which
are always read; with latent attention it learns the same for every query head. FOLDER gets
config.json and model.safetensors (kv-head(5)), curve.tsv and, of texts that nobody trained with,
recall.tsv: for each budget the share of the truly best rows of each layer and KV head, or query
head, that one choice for all layers holds, and their share of the attention, beside other choices.

checkpoint.pt, in FOLDER too, is replaced every --save-every steps, and lessons/ has what the model
made of each text until the head is done. --resume goes on from there, and gives the same bytes as a
run that was not interrupted; SIGINT and SIGTERM end the run after the text or step.

Exit status: 0, 1 when a file cannot be read or is broken, 2 when something is refused, 130 or 143
after a signal.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from functools import partial

import torch
from transformers import AutoTokenizer

from checkpoints import CHECKPOINT, Signals, load_checkpoint
from failures import BrokenFile, Refused, exit_status
from lookahead_files import fingerprint, save_folder, write_atomically, write_text
from lookahead_texts import load_parts
from retrieval_head_model import (FEATURES, Head, choices_of, draw_text, hidden, load_model,
                                  watch)

BUDGETS = (64, 128, 256, 512)
SINKS, RECENT = 4, 16
LESSONS = "lessons"


class Lesson:
    """What the head sees of a text, and what it is to find."""

    def __init__(self, text, streams, target):
        self.text, self.streams, self.target = text, streams, target

    @classmethod
    def of(cls, model, text, layers, power):
        """As the model reads it."""
        total = torch.zeros(choices_of(model), len(text.asks), len(text.ids))

        def see(_, weights):
            total.add_(weights)

        streams = watch(model, text.ids, text.asks, layers, see).to(torch.bfloat16)
        total[:, far_or_near(text.asks, len(text.ids))] = 0
        total = (total / len(model.layers)) ** power
        return cls(text, streams, (total / total.sum(-1, keepdim=True).clamp_min(1e-12)).half())


def far_or_near(asks, length):
    """[P, T]: the first tokens of the text, and the last ones before each that asks."""
    every = torch.arange(length)
    return (every < SINKS) | (every > asks[:, None] - RECENT)


def loss_of(head, lesson, embedded):
    asks = lesson.text.asks
    found = head.weights(embedded, lesson.streams.float(), asks)
    found = found.masked_fill(far_or_near(asks, len(embedded)) | hidden(asks, len(embedded)), -1e9)
    found = found.log_softmax(-1)
    target = lesson.target.float()
    entropy = (target * target.clamp_min(1e-12).log()).sum(-1).mean()
    return entropy - (target * found).sum(-1).mean()


# ---- what it is worth ----

def choose(scores, budget, always):
    """[P, T] of the rows that a choice reads, for scores [P, T]."""
    scores = scores.masked_fill(always, torch.inf)
    best = scores.topk(min(budget, scores.shape[-1]), -1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)


class Judge:
    """Choices of one text, compared with what each layer would have read. Rows that a token does
    not see are in no choice, since their scores are the least."""

    def __init__(self, choices, counts, rows):
        self.choices, self.counts, self.rows = choices, counts, rows

    def see(self, layer, weights):
        for (name, budget), chosen in self.choices.items():
            for g in range(weights.shape[0]):
                true = weights[g].topk(min(budget, weights.shape[-1]), -1).indices
                recall = chosen[g].gather(-1, true).float().mean(-1)
                mass = (weights[g] * chosen[g]).sum(-1) / weights[g].sum(-1)
                for part, which in self.rows.items():
                    count = self.counts.setdefault((name, budget, part, layer, g), [0, 0.0, 0.0])
                    count[0] += int(which.sum())
                    count[1] += float(recall[which].sum())
                    count[2] += float(mass[which].sum())


def all_choices(head, model, text, layers):
    """(name, budget) -> [G, P, T]"""
    asks, length = text.asks, len(text.ids)
    total = torch.zeros(choices_of(model), len(asks), length)
    streams = watch(model, text.ids, asks, layers, lambda _, weights: total.add_(weights))
    embedded = model.embed(torch.tensor(text.ids)).float()
    unseen, every = hidden(asks, length), torch.arange(length)
    own = every == asks[:, None]
    near = far_or_near(asks, length) & ~unseen
    scores = {"head": head.weights(embedded, streams.float(), asks), "teacher": total.log(),
              "recent": every.float().expand(total.shape),
              "random": torch.rand(total.shape, generator=torch.Generator().manual_seed(1))}
    choices = {}
    for name, score in scores.items():
        score = score.masked_fill(unseen, -torch.inf)
        for budget in BUDGETS:
            for extra, always in (("", own), ("+near", near)):
                if name == "random" and extra:
                    continue
                choices[name + extra, budget] = torch.stack([choose(s, budget, always)
                                                             for s in score])
    return choices


@torch.no_grad()
def judge(head, model, texts, layers):
    counts = {}
    for text in texts:
        choices = all_choices(head, model, text, layers)
        answers = torch.tensor([int(p) in text.answers for p in text.asks])
        seen = text.asks > max(BUDGETS)
        rows = {"all": seen, "answers": seen & answers}
        watch(model, text.ids, text.asks, layers, Judge(choices, counts, rows).see)
    lines = ["choice\tbudget\ttokens\tlayer\thead\trecall\tmass"]
    for (name, budget, part, layer, g), (n, recall, mass) in counts.items():
        if n:
            lines.append(f"{name}\t{budget}\t{part}\t{layer}\t{g}\t{recall / n:.4f}"
                         f"\t{mass / n:.4f}")
    return "\n".join(lines) + "\n", counts


def print_means(counts):
    for part in ("all", "answers"):
        for name in dict.fromkeys(key[0] for key in counts):
            cells = []
            for budget in BUDGETS:
                some = [c for key, c in counts.items() if key[:3] == (name, budget, part) and c[0]]
                if some:
                    cells.append(f"{budget}: {sum(c[1] / c[0] for c in some) / len(some):.3f} "
                                 f"{sum(c[2] / c[0] for c in some) / len(some):.3f}")
            print(f"{part} {name} (recall mass) " + ", ".join(cells), flush=True)


# ---- files ----

def export(head, model, folder, out, dtype):
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
              "hidden_size": model.config.hidden_size, "num_hidden_layers": 1,
              "intermediate_size": model.config.intermediate_size,
              "num_attention_heads": head.heads, "num_key_value_heads": head.kv_heads,
              "head_dim": head.width, "vocab_size": model.config.vocab_size,
              "rms_norm_eps": head.eps, "rope_theta": head.theta,
              "max_position_embeddings": model.config.max_position_embeddings,
              "tie_word_embeddings": False,
              "kvpipe_retrieval_head": {"target_weights": fingerprint(folder)}}
    if not head.alone:
        config["kvpipe_retrieval_head"]["feature_layers"] = head.layers
    save_folder(out, {name: w.to(dtype) for name, w in head.tensors().items()}, config)


# ---- training ----

def draw_texts(args, tokenizer, sources, first, count):
    lengths = [int(n) for n in args.lengths.split(",")]
    return [draw_text(number, args.seed, tokenizer, sources, lengths[number % len(lengths)],
                      args.questions, args.asks, args.recipe == "demo")
            for number in range(first, first + count)]


class Run:
    """A training run, and all that a checkpoint must have of it. `identity`: what a run must share
    with the one that it goes on from."""

    def __init__(self, args, model, layers, identity):
        self.args, self.model, self.lessons, self.identity = args, model, [], identity
        self.head = Head(model, layers, args.alone, args.seed)
        self.optimizer = torch.optim.AdamW(self.head.parameters(), args.lr, betas=(0.9, 0.95),
                                           weight_decay=0.01)
        self.order = torch.Generator().manual_seed(args.seed)
        self.step, self.lines = 0, ["step\tloss"]
        # lessons of this round that are left, and losses since the last line of the curve
        self.queue, self.recent = [], []
        self.start = time.monotonic()

    def path(self, name):
        return os.path.join(self.args.out, name)

    def save(self):
        state = {"identity": self.identity, "step": self.step, "lines": self.lines,
                 "queue": self.queue, "recent": self.recent, "order": self.order.get_state(),
                 "rng": torch.get_rng_state(), "head": self.head.state_dict(),
                 "optimizer": self.optimizer.state_dict()}
        write_atomically(self.path(CHECKPOINT), lambda path: torch.save(state, path))

    def begin(self, state):
        """From the start, where state is None: lessons that are there are of another run."""
        if state:
            self.resume(state)
        else:
            shutil.rmtree(self.path(LESSONS), ignore_errors=True)
        os.makedirs(self.path(LESSONS), exist_ok=True)
        if not state:
            self.save()

    def resume(self, state):
        path = self.path(CHECKPOINT)
        try:
            for name, value in self.identity.items():
                if state["identity"].get(name) != value:
                    raise Refused(f"{path} was made with {name} = {state['identity'].get(name)}, "
                                  f"not {value}")
            self.head.load_state_dict(state["head"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.order.set_state(state["order"])
            torch.set_rng_state(state["rng"])
            for name in ("step", "lines", "queue", "recent"):
                setattr(self, name, state[name])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
            raise BrokenFile(f"{path}: the state in it is incomplete") from None

    def take_step(self):
        if not self.queue:
            self.queue = torch.randperm(len(self.lessons), generator=self.order).tolist()
        lesson = self.lessons[self.queue.pop()]
        self.step += 1
        with torch.no_grad():
            embedded = self.model.embed(torch.tensor(lesson.text.ids)).float()
        rate = min(self.step / 20, 1.0) * max(1 - self.step / self.args.steps, 0.02)
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * rate
        self.optimizer.zero_grad()
        loss = loss_of(self.head, lesson, embedded)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 0.5)
        self.optimizer.step()
        self.recent.append(float(loss.detach()))

    def note(self):
        """A line of the curve."""
        self.lines.append(f"{self.step}\t{sum(self.recent) / len(self.recent):.4f}")
        print(f"step {self.lines[-1]}, {time.monotonic() - self.start:.0f} s", file=sys.stderr,
              flush=True)
        self.recent = []

    def go(self, stopped):
        """Until the last step, --stop-at, or stopped() says so. Returns whether that was the
        last."""
        end = min(self.args.steps, self.args.stop_at or self.args.steps)
        while self.step < end and not stopped():
            self.take_step()
            if self.step % self.args.every == 0 or self.step == self.args.steps:
                self.note()
            if self.step % self.args.save_every == 0:
                self.save()
        self.save()
        write_text(self.path("curve.tsv"), "\n".join(self.lines) + "\n")
        return self.step == self.args.steps


def read_lessons(run, texts, layers, stopped):
    """Of each text, from its file where that is there. Returns whether all are."""
    for number, text in enumerate(texts, 1):
        path = os.path.join(run.path(LESSONS), f"{number}.pt")
        if stopped():
            return False
        if os.path.exists(path):
            lesson = Lesson(text, *load_checkpoint(path))
        else:
            lesson = Lesson.of(run.model, text, layers, run.args.power)
            write_atomically(path, partial(torch.save, (lesson.streams, lesson.target)))
        run.lessons.append(lesson)
        if number % 10 == 0:
            print(f"{number} texts, {time.monotonic() - run.start:.0f} s", file=sys.stderr,
                  flush=True)
    return True


def identity_of(args, texts, layers):
    digest = hashlib.sha256()
    for text in texts:
        digest.update(json.dumps([text.ids, text.asks.tolist()]).encode())
    return {name: getattr(args, name) for name in
            ("steps", "lr", "power", "alone", "seed", "dtype", "every")} | {
                "layers": layers, "weights": fingerprint(args.model), "texts": digest.hexdigest()}


def feature_layers(args, count):
    layers = [int(n) for n in args.layers.split(",")] if args.layers else \
        [2, count // 2, count - 3] if count > 6 else [0, count // 2, count - 1]
    if len(layers) != FEATURES or sorted(set(layers)) != layers or layers[-1] >= count:
        raise Refused(f"--layers {args.layers}: want {FEATURES} layers of {count}, ascending")
    return layers


def finish(run, texts, layers):
    export(run.head, run.model, run.args.model, run.args.out, getattr(torch, run.args.store))
    if run.args.judge:
        table, counts = judge(run.head, run.model, texts, layers)
        write_text(run.path("recall.tsv"), table)
        print_means(counts)
    shutil.rmtree(run.path(LESSONS))


def train(args):
    checkpoint = os.path.join(args.out, CHECKPOINT)
    if os.path.exists(checkpoint) and not args.resume:
        raise Refused(f"{checkpoint} is there: --resume goes on from it")
    state = load_checkpoint(checkpoint) if args.resume else None
    torch.manual_seed(args.seed)
    model = load_model(args.model, getattr(torch, args.dtype))
    tokenizer = AutoTokenizer.from_pretrained(args.model, local_files_only=True)
    layers = feature_layers(args, len(model.layers))
    mine, others = load_parts(args.texts, args.seed) if args.recipe == "texts" else ([], [])
    texts = draw_texts(args, tokenizer, mine, 1, args.count)
    run = Run(args, model, layers, identity_of(args, texts, layers))
    run.begin(state)
    signals = Signals()
    if not read_lessons(run, texts, layers, signals) or not run.go(signals):
        print(f"retrieval_head.py: stopped behind step {run.step} of {args.steps}; "
              "--resume goes on", file=sys.stderr)
        return 128 + signals.number if signals.number else 0
    finish(run, draw_texts(args, tokenizer, others or mine, 900001, args.judge), layers)
    return 0


def main():
    parser = argparse.ArgumentParser(description="train a retrieval head, and say what it is worth")
    parser.add_argument("model", help="model folder")
    parser.add_argument("--out", required=True, help="folder of the head")
    parser.add_argument("--alone", action="store_true",
                        help="a head of embeddings, without features")
    parser.add_argument("--layers", help="three layers that features come from (2, L/2, L-3)")
    parser.add_argument("--count", type=int, default=120, help="texts (120)")
    parser.add_argument("--lengths", default="1000,2000,3000,4000", help="of the texts, in tokens")
    parser.add_argument("--questions", type=int, default=6, help="for each text (6)")
    parser.add_argument("--asks", type=int, default=192, help="tokens of each text that ask (192)")
    parser.add_argument("--steps", type=int, default=800, help="one text each (800)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--power", type=float, default=1.0,
                        help="of the weights, less than 1: flatter (1)")
    parser.add_argument("--judge", type=int, default=8, help="held-out texts (8)")
    parser.add_argument("--recipe", choices=("texts", "demo"), default="texts")
    parser.add_argument("--texts", help="folder of *.txt files instead of this machine's texts")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--store", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=20, help="steps for a line of the curve (20)")
    parser.add_argument("--save-every", type=int, default=100, help="steps for a checkpoint (100)")
    parser.add_argument("--stop-at", type=int, help="end after this step, with a checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    args = parser.parse_args()
    for name in ("count", "questions", "asks", "threads", "every", "save_every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    if args.steps < 0 or (args.stop_at is not None and args.stop_at < 1):
        parser.error("need --steps of 0 or more, --stop-at of 1 or more")
    torch.set_num_threads(args.threads)
    return exit_status("retrieval_head.py", train, args)


if __name__ == "__main__":
    sys.exit(main())
