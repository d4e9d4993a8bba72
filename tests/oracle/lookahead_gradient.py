#!/usr/bin/env python3
"""Compares gradients of the loss of train/ with finite differences, in float64.

usage: lookahead_gradient.py MODEL

The loss is computed for a group of three questions of different lengths with random answers. B is
drawn at random, so that every matrix has a gradient. Norms are computed in float64, where
transformers goes through float32. For each parameter the derivative along a random direction is
compared with a central difference. Prints lines "name relative-error".
"""

import os
import pathlib
import sys

import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "train"
sys.path.insert(0, os.fspath(TRAIN))
from lookahead_model import Adapter, FrozenModel                # noqa: E402
from lookahead_scores import Prompts, divergence                # noqa: E402

STEP = 1e-5


def norm(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def main():
    torch.manual_seed(3)
    LlamaRMSNorm.forward = norm
    model = FrozenModel.load(sys.argv[1], torch.float64)
    adapter = Adapter(model, tokens=5, rank=3, alpha=6.0).double()
    for name, parameter in adapter.named_parameters():
        if name.startswith("B."):
            parameter.data.normal_(std=0.3)
    parameters = dict(adapter.named_parameters())

    def draw(count):
        return torch.randint(0, model.config.vocab_size, (count,)).tolist()

    prompts = Prompts(model, draw(20), [draw(3), draw(6), draw(1)])
    truth = prompts.read([draw(4), draw(2), draw(5)])

    def loss():
        return divergence(truth, prompts.guess(adapter)).mean()

    loss().backward()
    for name, parameter in parameters.items():
        direction = torch.randn_like(parameter)
        expected = (parameter.grad * direction).sum().item()
        values = []
        with torch.no_grad():
            for sign in (1, -1):
                parameter += sign * STEP * direction
                values.append(loss().item())
                parameter -= sign * STEP * direction
        difference = (values[0] - values[1]) / (2 * STEP)
        print(name.replace(" ", "."), abs(difference - expected) / max(abs(expected), 1e-6))


main()
