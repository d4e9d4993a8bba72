"""Documents that nothing is asked about yet: their rows, the scores that the programs give to them,
and the loss of learned rows that are to give the same.

A group of such a data set is a document (`prefix`) and the name of a snapshot (`scored`), which
kv-score has written: it has the keys and values that learned rows stand behind, and the scores that
they are to give. So neither transformers nor a gradient runs through a document.

Letters as in lookahead_scores.py; T rows of a document, C of the longest.
"""

import hashlib
import io
import os
import sys

import numpy
import torch

from failures import BrokenFile
from gate_lessons import scored_snapshot
from lookahead_files import write_bytes
from lookahead_model import Cache
from lookahead_scores import EPSILON, Prompts, grouped_mean

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kvsnapshot  # noqa: E402

# --target of lookahead_data.py: whether the scores are KVzip+'s
TARGETS = {"kvzip": False, "kvzip-plus": True}


def make_scored(model, ids, target, threads, path):
    """Writes the snapshot of a group, and returns its SHA-256."""
    data = scored_snapshot(model, ids, threads, TARGETS[target])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def load_scored(group):
    """The snapshot of a group of a data set."""
    path = group["scored"]
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as problem:
        raise BrokenFile(f"{path}: {problem.strerror}") from problem
    if hashlib.sha256(data).hexdigest() != group["sha256"]:
        raise BrokenFile(f"{path}: not the file that the data set was made with")
    return kvsnapshot.read(io.BytesIO(data))


def best_of_all(scores, rate):
    """Which rows of [..., T] are in this share of all, whichever layer and KV head they are of."""
    best = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
    best[scores.flatten().topk(max(1, int(scores.numel() * rate + 1e-9))).indices] = True
    return best.view(scores.shape)


class Documents(Prompts):
    """The frozen part of several documents side by side, and the scores that their rows are to get.

    target [L, Q, G, C]; judged [Q, C]: which rows count. The others, behind a shorter document or
    always kept by KVzip, have a target of 0.
    """

    def __init__(self, model, groups):
        super().__init__(model, [], [group["prefix"] for group in groups])
        layers = list(zip(*(load_scored(group).layers for group in groups)))
        self.cache = Cache(None, [(self.padded([one.keys for one in layer]),
                                   self.padded([one.values for one in layer]))
                                  for layer in layers])
        target = torch.stack([self.padded([one.scores for one in layer]) for layer in layers])
        self.judged = self.visible & target.isfinite().all(0).all(1)
        self.target = target.where(self.judged[:, None], 0.0)

    def padded(self, arrays):
        """Arrays [G, T, ...] of each document as one, [Q, G, C, ...], zeros behind the shorter."""
        arrays = [torch.from_numpy(numpy.array(array)) for array in arrays]
        whole = torch.zeros(len(arrays), self.model.kv_heads, self.columns, *arrays[0].shape[2:])
        for row, array in zip(whole, arrays):
            row[:, :array.shape[1]] = array
        return whole.to(self.model.device)

    def each(self, scores):
        """Of each document the judged columns of scores [L, Q, G, C], [L, G, T]."""
        return [scores[:, number][..., judged] for number, judged in enumerate(self.judged)]

    def divergence(self, guess, power, rate):
        """Of each document, [Q], the mean over KV heads of KL(target ^ power || guess), each
        normalised over the rows that count; guess [L, Q, H, C].

        A KV head has the weight b (1 - b), with b the share of its rows that belong to the best of
        all KV heads at this rate: one that keeps nothing, or everything, needs no ranking.
        """
        losses = []
        for target, found in zip(self.each(self.target),
                                 self.each(grouped_mean(guess, self.model.kv_heads))):
            share = best_of_all(target, rate).float().mean(-1)
            truth = target.clamp_min(EPSILON) ** power
            truth = truth / truth.sum(-1, keepdim=True)
            found = found / found.sum(-1, keepdim=True)
            terms = truth * ((truth + EPSILON).log() - (found + EPSILON).log())
            weight = share * (1 - share)
            losses.append((terms.sum(-1) * weight).sum() / weight.sum())
        return torch.stack(losses)

    def recall(self, guess, rates):
        """Share of the best rows of all KV heads that the guess keeps, where each KV head keeps as
        many as it has of them: [Q][rates]."""
        found = []
        for target, ranking in zip(self.each(self.target),
                                   self.each(grouped_mean(guess, self.model.kv_heads))):
            order = ranking.argsort(dim=-1, descending=True, stable=True)
            found.append([])
            for rate in rates:
                best = best_of_all(target, rate)
                kept = torch.arange(best.shape[-1], device=best.device) < best.sum(-1, keepdim=True)
                found[-1].append((best.gather(-1, order) & kept).sum().item() / best.sum().item())
        return found
