#!/usr/bin/env python3
"""Compares the scores of train/ with those of transformers' own forward, for each family.

usage: lookahead_families.py

Tiny random models of Llama, Mistral, Qwen2 and Qwen3, biases and norms of queries and keys drawn
at random. The learned rows go behind the prompt as inputs_embeds, without LoRA; attention is
eager, and its weights are averaged. Prints lines "family/what error", the greatest relative
difference to the greatest score.
"""

import os
import pathlib
import sys

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "train"
sys.path.insert(0, os.fspath(TRAIN))
from lookahead_model import Adapter, FrozenModel                # noqa: E402
from lookahead_scores import Prompts                            # noqa: E402

FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM, {"attention_bias": True}),
            "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
            "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
            "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 24})}
SHAPE = {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 70, "num_hidden_layers": 3,
         "num_attention_heads": 6, "num_key_value_heads": 2, "rope_theta": 10000.0,
         "attn_implementation": "eager", "tie_word_embeddings": False}


def random_model(family):
    config, model, other = FAMILIES[family]
    made = model(config(**(SHAPE | other))).eval()
    for name, parameter in made.named_parameters():
        if "norm" in name:
            parameter.data.uniform_(0.5, 1.5)
        else:
            parameter.data.normal_(std=0.25)
    return made


@torch.no_grad()
def plain(model, rows, first):
    """Mean attention of the rows from `first` on to those before, [L, H, first]."""
    out = model(inputs_embeds=rows[None], output_attentions=True)
    return torch.stack([layer[0, :, first:, :first].mean(1) for layer in out.attentions])


def compare(family):
    model = random_model(family)
    frozen = FrozenModel(model)
    adapter = Adapter(frozen, tokens=5, rank=0)
    prefix, tails = list(range(11)), [[20, 21, 22], [30, 31, 32, 33, 34]]
    responses = [[40, 41], [50, 51, 52, 53]]
    prompts = Prompts(frozen, prefix, tails)
    truth = prompts.read(responses)
    with torch.no_grad():
        guess = prompts.guess(adapter)
    worst = {"true": 0.0, "guessed": 0.0}
    for number, (tail, response) in enumerate(zip(tails, responses)):
        count = len(prefix) + len(tail)
        prompt = frozen.embed(torch.tensor(prefix + tail))
        answer = frozen.embed(torch.tensor(response))
        for what, rows, ours in (("true", answer, truth), ("guessed", adapter.P.data, guess)):
            expected = plain(model, torch.cat([prompt, rows]), count)
            error = (ours[:, number, :, :count] - expected).abs().max() / expected.max()
            worst[what] = max(worst[what], error.item())
    for what, error in worst.items():
        print(f"{family}/{what} {error:.3g}")


if __name__ == "__main__":
    torch.manual_seed(5)
    for each in FAMILIES:
        compare(each)
