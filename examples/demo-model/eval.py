"""Accuracy of the demo model under cache policies, in PyTorch. The figures in README.md are its.

    eval.py --n 200 --tokens 1024                 a table: policies by budgets
    eval.py --full --n 20 --tokens 128,1024       full cache only, by depth of the needle

Policies act after a full-attention prefill of the whole prompt, question included. Decoding is
greedy; generated rows are always kept. The first token of the answer comes from the prefill's
logits, as in the published set-ups; an answer counts when all of it is right. With --strict the
last prompt token is run after the eviction, so that nothing of the answer comes from full
attention.
"""

import argparse
import os
import random
import time

import torch

from bpe import load_tokenizer
from corpus import KINDS
from documents import HERE, make_prompt
from model_files import load_model
from policies import evict, fier_readers, policy_named
from runner import Runner

POLICIES = "streaming,snapkv-16-7,snapkv-8-7,snapkv-16-5,h2o,l2norm,fier,random"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEAST_BUDGET = 20                    # so that a window of 16 and 4 more fit


def parse_args():
    def numbers(kind):
        return lambda text: [kind(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description="accuracy of the demo model under cache policies")
    parser.add_argument("--model", default=HERE, help="model folder (the one of this script)")
    parser.add_argument("--n", type=int, default=100, help="documents for each row of figures")
    parser.add_argument("--tokens", type=numbers(int), default=[512, 1024], metavar="T,T")
    parser.add_argument("--needles", type=int, default=6)
    parser.add_argument("--kind", choices=sorted(KINDS), default="code")
    parser.add_argument("--digits", type=int, default=3)
    parser.add_argument("--budgets", type=numbers(float), default=[0.05, 0.1, 0.2],
                        metavar="RATE,RATE", help="shares of the prompt (0.05,0.1,0.2)")
    parser.add_argument("--policies", default=POLICIES, metavar="NAME,NAME")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--seed", type=int, default=12345)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def run(runner, ids, policies, budgets, strict):
    """(policy, budget) -> the model's answer; ("full", 1.0) is always there."""
    prompt = ids[:-1] if strict else ids
    logits, states = runner.prefill(prompt)
    length = len(prompt)

    def answer(cache, readers=None):
        first = runner.step(ids[-1], length, cache, readers) if strict else logits
        return runner.answer(first, cache, len(ids), readers)

    def whole():
        return evict(policy_named("full"), states, length, length)

    answers = {("full", 1.0): answer(whole())}
    for budget in budgets:
        rows = max(LEAST_BUDGET, round(budget * length))
        for name in policies:
            if name == "fier":
                answers[name, budget] = answer(whole(), fier_readers(states, rows))
            else:
                answers[name, budget] = answer(evict(policy_named(name), states, length, rows))
    return answers


def print_depths(runner, args, tokens):
    cells = []
    for depth in DEPTHS:
        rng = random.Random(args.seed + tokens)
        right = first_right = 0
        for _ in range(args.n):
            ids, expected, _, _ = make_prompt(runner.tokenizer, rng, tokens, args.needles,
                                              args.kind, depth, args.digits)
            given = run(runner, ids, [], [], False)["full", 1.0]
            right += given == expected
            first_right += given[:1] == expected[:1]
        cells.append(f"{100 * right / args.n:.0f}({100 * first_right / args.n:.0f})")
    print(f"T={tokens} EM% (first-token%) at depth 0,25,50,75,100%:", " ".join(cells), flush=True)


def print_policies(runner, args, tokens):
    rng = random.Random(args.seed + tokens)
    names = args.policies.split(",")
    right = {}
    start = time.time()
    for _ in range(args.n):
        ids, expected, _, _ = make_prompt(runner.tokenizer, rng, tokens, args.needles, args.kind,
                                          None, args.digits)
        for key, given in run(runner, ids, names, args.budgets, args.strict).items():
            right[key] = right.get(key, 0) + (given == expected)

    def percent(key):
        return f"{100 * right[key] / args.n:.0f}"

    print(f"\nT={tokens} n={args.n} needles={args.needles} kind={args.kind} digits={args.digits}"
          f" strict={args.strict}  full: {percent(('full', 1.0))}%   ({time.time() - start:.0f}s)")
    print("| policy | " + " | ".join(f"{100 * budget:g}%" for budget in args.budgets) + " |")
    print("|---|" + "---|" * len(args.budgets))
    for name in names:
        print(f"| {name} | " + " | ".join(percent((name, b)) for b in args.budgets) + " |",
              flush=True)


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    tokenizer = load_tokenizer(os.path.join(args.model, "tokenizer.json"))
    runner = Runner(load_model(args.model), tokenizer)
    for tokens in args.tokens:
        if args.full:
            print_depths(runner, args, tokens)
        else:
            print_policies(runner, args, tokens)


if __name__ == "__main__":
    main()
