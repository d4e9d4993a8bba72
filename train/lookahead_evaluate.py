#!/usr/bin/env python3
"""What an adapter is worth on held-out documents, layer by layer and head by head.

usage: lookahead_evaluate.py MODEL --adapter FOLDER --data DATA.jsonl [...] --out FOLDER [options]

Takes the held-out groups of data sets of lookahead_data.py. The recall of a ranking is the share
of the rows that the answer attends to most (the truly best k of a KV head) which are among its
best k. Writes with tabs:

    recall.tsv   ranking, rate, layer, KV head, recall: the mean over the questions
    answers.tsv  ranking, rate, group, kind, NLL (mean of the answer's tokens behind the first, in
                 nats), recall (mean over the heads), right (1 or 0; - where any answer will do, or
                 where the whole cache is wrong)

Rankings: `whole` (all rows), `oracle` (the answer's own attention), `lookahead` (the adapter),
`snapkv` (the last rows of the question, which are kept). All but `whole` pool over 7 columns.
The first token of an answer comes from the whole cache for all of them. Exit status: 0, 1 when a
file cannot be read or is broken, 2 when something is refused.
"""

import argparse
import os
import sys

import torch
from torch.nn import functional
from transformers import AutoTokenizer

from failures import Refused, exit_status
from lookahead_files import adapter_settings, fill_adapter, load_data, write_text
from lookahead_model import Adapter, FrozenModel
from lookahead_scores import (Prompts, as_bias, decode, evicted, found_rows, grouped_mean, pad,
                              pooled)

RANKINGS = ("oracle", "lookahead", "snapkv")
# A score that no other is above.
KEPT = torch.inf


def load_adapter(model, folder, model_folder):
    settings = adapter_settings(folder, model_folder)
    adapter = Adapter(model, settings["tokens"], settings["rank"], settings["alpha"],
                      settings["modules"])
    fill_adapter(adapter, folder)
    return adapter.requires_grad_(False)


def answer_loss(model, cache, visible, responses, positions):
    """NLL of each response's tokens behind the first, mean: [Q]; nan for one of a single token.

    cache, visible, positions: as in decode()."""
    ids = pad(responses, model.device)
    rows = torch.arange(ids.shape[1] - 1, device=model.device)
    own = (rows <= rows[:, None]).expand(len(ids), -1, -1)
    mask = torch.cat([visible[:, None].expand(-1, len(rows), -1), own], 2)
    hidden, _ = model.run(model.embed(ids[:, :-1]), positions[:, None] + rows, cache,
                          as_bias(mask, model.wide), store=False)
    loss = functional.cross_entropy(model.logits(hidden).transpose(1, 2), ids[:, 1:],
                                    reduction="none")
    counted = rows < torch.tensor([[len(r) - 1] for r in responses], device=model.device)
    return (loss * counted).sum(1) / counted.sum(1)


class Evaluation:
    """Of one model and adapter; rows of both tables."""

    def __init__(self, model, adapter, tokenizer, args):
        self.model, self.adapter, self.tokenizer, self.args = model, adapter, tokenizer, args
        self.recalls, self.answers = {}, []

    def rankings(self, prompts, responses):
        """{name: [L, Q, G, C]}, and the truth as recall takes it, which is not pooled."""
        kv_heads, window = self.model.kv_heads, self.args.window
        truth, observed = prompts.read(responses, True, window)
        found = {"oracle": pooled(truth, kv_heads),
                 "lookahead": pooled(prompts.guess(self.adapter), kv_heads),
                 "snapkv": pooled(observed, kv_heads)}
        columns = torch.arange(prompts.columns, device=self.model.device)
        recent = columns >= prompts.lengths[:, None] - window
        found["snapkv"] = found["snapkv"].masked_fill(recent[:, None], KEPT)
        return found, grouped_mean(truth, kv_heads)

    def judge(self, prompts, questions, cache, visible):
        """([Q] NLL, [Q] whether the answer is right, None where there is none to be had)."""
        responses = [question["response"] for question in questions]
        losses = answer_loss(self.model, cache, visible, responses, prompts.lengths)
        said = decode(self.model, cache, visible, [one[0] for one in responses], prompts.lengths,
                      [len(one) + 4 for one in responses], self.model.stop_ids())
        return losses.tolist(), [
            question["answer"].lower() in self.tokenizer.decode(ids).lower()
            if question.get("right") else None for question, ids in zip(questions, said)]

    def add(self, ranking, rate, group, judged, recalls):
        """A line for each question of a group."""
        for question, loss, right, recall in zip(group["questions"], *judged, recalls):
            self.answers.append([ranking, f"{rate:g}", str(group["group"]), question["kind"],
                                 "-" if loss != loss else f"{loss:.4f}", f"{recall:.4f}",
                                 "-" if right is None else str(int(right))])

    @torch.no_grad()
    def take(self, group):
        questions = group["questions"]
        prompts = Prompts(self.model, group["prefix"], [q["tail"] for q in questions])
        rankings, truth = self.rankings(prompts, [q["response"] for q in questions])
        whole = self.judge(prompts, questions, prompts.cache,
                           prompts.visible[:, len(prompts.prefix):])
        self.add("whole", 1, group, whole, [1] * len(questions))
        for name, rate in ((n, r) for n in RANKINGS for r in self.args.rates):
            ranking = rankings[name]
            found = [found_rows(truth[:, number], ranking[:, number], length, rate)
                     .float().mean(-1) for number, length in enumerate(prompts.lengths.tolist())]
            self.recalls.setdefault((name, rate), []).extend(found)
            self.add(name, rate, group, self.judge(prompts, questions,
                                                   *evicted(prompts, ranking, rate)),
                     [one.mean().item() for one in found])

    def write(self, folder):
        heads = [[name, f"{rate:g}", str(layer), str(head), f"{value:.4f}"]
                 for (name, rate), found in self.recalls.items()
                 for layer, row in enumerate(torch.stack(found).mean(0).tolist())
                 for head, value in enumerate(row)]
        os.makedirs(folder, exist_ok=True)
        for file, columns, rows in (("recall.tsv", "ranking rate layer head recall", heads),
                                    ("answers.tsv", "ranking rate group kind nll recall right",
                                     self.answers)):
            lines = ["\t".join(line) for line in [columns.split(), *rows]]
            write_text(os.path.join(folder, file), "\n".join(lines) + "\n")

    def report(self):
        """Means, a line for each ranking and rate."""
        for name, rate in dict.fromkeys((row[0], row[1]) for row in self.answers):
            rows = [row for row in self.answers if row[:2] == [name, rate]]
            means = []
            for column in (4, 5, 6):
                values = [float(row[column]) for row in rows if row[column] != "-"]
                means.append(sum(values) / len(values) if values else float("nan"))
            print(f"{name:10} {rate:>5}  NLL {means[0]:.3f}  recall {means[1]:.3f}  "
                  f"right {means[2]:.3f} of {sum(row[6] != '-' for row in rows)}")


def evaluate(args):
    torch.set_num_threads(args.threads)
    model = FrozenModel.load(args.model, getattr(torch, args.dtype))
    adapter = load_adapter(model, args.adapter, args.model)
    groups = load_data(args.data, args.model, model.config.vocab_size)
    groups = [group for group in groups if group["split"] == "heldout"][:args.groups]
    if not groups:
        raise Refused("the data has no held-out groups")
    if any("scored" in group for group in groups):
        raise Refused("the data has documents that nothing is asked about: no answer to compare")
    run = Evaluation(model, adapter,
                     AutoTokenizer.from_pretrained(args.model, local_files_only=True), args)
    for group in groups:
        run.take(group)
    run.write(args.out)
    run.report()


def share(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def main():
    parser = argparse.ArgumentParser(description="what an adapter is worth on held-out documents")
    add = parser.add_argument
    add("model", help="model folder")
    add("--adapter", required=True, help="adapter folder")
    add("--data", required=True, nargs="+", help="data sets of lookahead_data.py")
    add("--out", required=True, help="folder for recall.tsv and answers.tsv")
    add("--groups", type=int, help="how many held-out groups (all)")
    add("--rates", type=share, nargs="+", default=[0.05, 0.1, 0.2], help="(0.05 0.1 0.2)")
    add("--window", type=int, default=16, help="of snapkv, within the question (16)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--threads", type=int, default=1)
    return exit_status("lookahead_evaluate.py", evaluate, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
