"""Trains the demo model on the CPU, from short lists to documents of 2048 tokens.

    train.py OUT --minutes 45        writes OUT.pt every minute and at the end
    train.py OUT --resume OUT.pt     goes on from there

This is the last state of the schedule; README.md tells how the delivered weights came about.
"""

import argparse
import collections
import dataclasses
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

from bpe import load_tokenizer
from documents import HERE
from model import Config, Model
from structured_init import structured_init
from training_data import Generator

BACKGROUND_SAMPLE = 0.2              # share of the other tokens that the background loss looks at
FIRST_WEIGHT = 3.0                   # of an answer's first token
MOST_BACKGROUND = 10.0               # bound on background tokens for each answer token
SAVE_EVERY = 60.0                    # seconds
REPORT_EVERY = 25                    # steps


@dataclasses.dataclass
class Stage:
    tokens: int
    batch: int
    list_share: float
    needles: tuple
    questions: int
    seconds: float = 0.0             # at least this long
    target: float = 2.0              # go on when answer tokens are this accurate; 2 = never


STAGES = (
    Stage(26, 160, 1.0, (1, 2), 2, 0, 0.95),
    Stage(50, 80, 1.0, (1, 2), 2, 0, 0.95),
    Stage(64, 64, 0.5, (2, 2), 2, 0, 0.93),
    Stage(96, 44, 0.3, (2, 3), 3, 0, 0.95),
    Stage(128, 32, 0.2, (3, 4), 4, 0, 0.96),
    Stage(192, 22, 0.1, (3, 6), 6, 30, 0.97),
    Stage(256, 16, 0.1, (3, 8), 6, 60, 0.975),
    Stage(512, 10, 0.05, (3, 14), 8, 180, 0.98),
    Stage(1024, 6, 0.03, (3, 24), 12, 420, 0.985),
)
LAST_STAGE = (                       # a mixture, drawn with these chances
    (0.1, Stage(256, 24, 0.05, (3, 8), 6)),
    (0.2, Stage(512, 12, 0.05, (3, 14), 8)),
    (0.35, Stage(1024, 6, 0.03, (3, 24), 12)),
    (0.35, Stage(2048, 3, 0.02, (3, 32), 16)),
)


def parse_args():
    parser = argparse.ArgumentParser(description="train the demo model")
    parser.add_argument("out")
    parser.add_argument("--resume", metavar="CHECKPOINT")
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--stage", type=int, help="start at this stage")
    parser.add_argument("--last-stage", type=int, default=len(STAGES))
    parser.add_argument("--background", type=float, default=0.03, help="weight of its loss")
    parser.add_argument("--warm-up", type=int, default=100, help="steps")
    parser.add_argument("--decay-from", type=float, default=0.5, help="share of the time")
    parser.add_argument("--random-init", action="store_true",
                        help="without the structured initialisation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def make_optimizer(model, lr):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": norms, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), eps=1e-8)


def learning_rate(args, share, steps):
    """Linear warm-up, constant, then a cosine down to 4 %. share: of the time that is over."""
    rate = args.lr * min(1.0, (steps + 1) / args.warm_up)
    if share < args.decay_from:
        return rate
    progress = (share - args.decay_from) / (1 - args.decay_from)
    return rate * (0.04 + 0.96 * 0.5 * (1 + np.cos(np.pi * progress)))


def losses(model, batch, background_weight):
    """The loss of one batch, and what is printed about it."""
    ids, weights, first = (torch.from_numpy(array) for array in batch)
    weights, first = weights[:, 1:].reshape(-1), first[:, 1:].reshape(-1)
    answers = (weights > 0).nonzero().squeeze(1)
    background = ((weights < 0) & (torch.rand(weights.shape) < BACKGROUND_SAMPLE)).nonzero()
    chosen = torch.cat([answers, background.squeeze(1)])

    hidden = model.hidden(ids)[:, :-1].reshape(len(weights), -1)
    logits = model.logits(hidden[chosen])
    targets = ids[:, 1:].reshape(-1)
    entropy = F.cross_entropy(logits, targets[chosen], reduction="none")
    count = len(answers)
    is_first = first[answers] > 0
    importance = 1 + (FIRST_WEIGHT - 1) * is_first.float()
    answer_loss = (entropy[:count] * importance).sum() / importance.sum()
    background_loss = entropy[count:].sum() / max(len(background), 1)
    ratio = min(float((weights < 0).sum()) / max(count, 1), MOST_BACKGROUND)

    right = (logits[:count].argmax(-1) == targets[answers]).float()
    figures = {"answer": answer_loss.item(), "background": background_loss.item(),
               "accuracy": right.mean().item(), "first": right[is_first].mean().item()}
    return answer_loss + background_weight * background_loss * ratio, figures


def save(path, model, optimizer, step, stage):
    """Replaces the checkpoint in one go."""
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "config": dataclasses.asdict(model.config), "step": step, "stage": stage},
               path + ".tmp")
    os.replace(path + ".tmp", path)


def stage_to_draw(number):
    if number < len(STAGES):
        return STAGES[number]
    chances = [chance for chance, _ in LAST_STAGE]
    return LAST_STAGE[np.random.choice(len(LAST_STAGE), p=chances)][1]


def train(args, model, optimizer, generator, step, stage):
    start = saved = stage_start = time.time()
    first_step, smooth_accuracy = step, 0.0
    sums, reported = collections.Counter(), start
    while (now := time.time()) - start < args.minutes * 60:
        share = (now - start) / (args.minutes * 60)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, share, step - first_step)
        s = stage_to_draw(stage)
        batch = generator.batch(s.tokens, s.batch, s.list_share, s.needles, s.questions)
        loss, figures = losses(model, batch, args.background)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

        step += 1
        accuracy = figures["accuracy"]
        smooth_accuracy = 0.95 * smooth_accuracy + 0.05 * accuracy if smooth_accuracy else accuracy
        sums.update(figures, tokens=s.tokens * s.batch)
        if step % REPORT_EVERY == 0:
            speed = sums.pop("tokens") / (time.time() - reported)
            means = " ".join(f"{key} {value / REPORT_EVERY:.4f}" for key, value in sums.items())
            print(f"step {step} stage {stage} {means} tokens/s {speed:.0f}", flush=True)
            sums, reported = collections.Counter(), time.time()
        done = smooth_accuracy > s.target and now - stage_start > s.seconds
        if stage < min(args.last_stage, len(STAGES)) and done:
            stage, stage_start, smooth_accuracy = stage + 1, now, 0.0
        if now - saved > SAVE_EVERY:
            save(args.out + ".pt", model, optimizer, step, stage)
            saved = now
    save(args.out + ".pt", model, optimizer, step, stage)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    torch.set_num_threads(args.threads)
    tokenizer = load_tokenizer(os.path.join(HERE, "tokenizer.json"))
    model = Model(Config(vocabulary=tokenizer.pad + 1))
    optimizer = make_optimizer(model, args.lr)
    step = stage = 0
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        step, stage = checkpoint["step"], checkpoint["stage"]
    elif not args.random_init:
        structured_init(model)
    if args.stage is not None:
        stage = args.stage
    train(args, model, optimizer, Generator(tokenizer, args.seed + 100), step, stage)


if __name__ == "__main__":
    main()
