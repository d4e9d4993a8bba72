#!/usr/bin/env python3
"""Compares the scores of train/ with scores that are computed plainly.

usage: lookahead_naive.py MODEL ADAPTER DATA.jsonl

True scores: one forward of transformers over prompt and response, eager attention, its
output_attentions. Guessed scores: NumPy, one matrix at a time, over prompt and learned rows, with
LoRA added to the last rows only. Prompt keys and values: with the adapter and without. For Llama
without rope scaling. Prints lines "what error", the greatest absolute difference of each.
"""

import json
import os
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "train"
sys.path.insert(0, os.fspath(TRAIN))
from lookahead_files import adapter_settings, fill_adapter                  # noqa: E402
from lookahead_model import Adapter, FrozenModel                            # noqa: E402
from lookahead_scores import Prompts                                        # noqa: E402


def numbers(path):
    return {name: tensor.double().numpy() for name, tensor in load_file(path).items()}


class Naive:
    """A Llama in NumPy that adds LoRA to rows from `first` on."""

    def __init__(self, folder, adapter):
        self.config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.weights = numbers(pathlib.Path(folder) / "model.safetensors")
        self.adapter = numbers(pathlib.Path(adapter) / "adapter_model.safetensors")
        lora = json.loads((pathlib.Path(adapter) / "adapter_config.json").read_text())
        self.scale = lora["lora_alpha"] / lora["r"]
        self.rows = self.adapter["lookahead.embeddings"]
        self.prompt_keys = []

    def linear(self, x, name, first):
        y = x @ self.weights[f"{name}.weight"].T
        a = self.adapter.get(f"base_model.model.{name}.lora_A.weight")
        if a is not None:
            b = self.adapter[f"base_model.model.{name}.lora_B.weight"]
            y[first:] += self.scale * (x[first:] @ a.T) @ b.T
        return y

    def norm(self, x, name):
        root = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / root * self.weights[name]

    def turned(self, x, heads):
        """[N, heads * E] -> [heads, N, E], rotated by the position."""
        x = x.reshape(len(x), heads, -1).transpose(1, 0, 2)
        half = x.shape[-1] // 2
        angles = np.arange(x.shape[1])[:, None] * self.config["rope_theta"] ** (
            -np.arange(half) / half)[None]
        c, s = np.cos(angles), np.sin(angles)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def scores(self, ids):
        """[L, H, T] for a prompt."""
        count, found = len(ids), []
        heads = self.config["num_attention_heads"]
        groups = self.config["num_key_value_heads"]
        x = np.concatenate([self.weights["model.embed_tokens.weight"][ids], self.rows])
        hidden = np.triu(np.full((len(x), len(x)), -np.inf), 1)
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            normed = self.norm(x, f"{name}.input_layernorm.weight")
            q = self.turned(self.linear(normed, f"{name}.self_attn.q_proj", count), heads)
            k = self.turned(self.linear(normed, f"{name}.self_attn.k_proj", count), groups)
            v = self.linear(normed, f"{name}.self_attn.v_proj", count)
            v = v.reshape(len(x), groups, -1).transpose(1, 0, 2)
            self.prompt_keys.append(k[:, :count])
            output, means = [], []
            for head in range(heads):
                kv = head // (heads // groups)
                logits = q[head] @ k[kv].T / np.sqrt(q.shape[-1]) + hidden
                weights = np.exp(logits - logits.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                means.append(weights[count:, :count].mean(0))
                output.append(weights @ v[kv])
            found.append(means)
            joined = np.stack(output, 1).reshape(len(x), -1)
            x = x + self.linear(joined, f"{name}.self_attn.o_proj", count)
            normed = self.norm(x, f"{name}.post_attention_layernorm.weight")
            gate = self.linear(normed, f"{name}.mlp.gate_proj", count)
            up = self.linear(normed, f"{name}.mlp.up_proj", count)
            x = x + self.linear(gate / (1 + np.exp(-gate)) * up, f"{name}.mlp.down_proj", count)
        return np.array(found)


def true_scores(model, prompt, response):
    """[L, H, T]: the mean attention of the response's rows, from a forward over all."""
    ids = torch.tensor([prompt + response])
    with torch.no_grad():
        attentions = model(ids, output_attentions=True).attentions
    return torch.stack([a[0, :, len(prompt):, :len(prompt)].mean(1) for a in attentions])


def main():
    folder, adapter_folder, data = sys.argv[1:]
    frozen = FrozenModel.load(folder)
    adapter = Adapter(frozen, **adapter_settings(adapter_folder, folder))
    fill_adapter(adapter, adapter_folder)
    eager = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager")
    errors = {"true": 0.0, "guessed": 0.0, "keys": 0.0}
    for line in open(data, encoding="utf-8").read().splitlines()[1:4]:
        group = json.loads(line)
        # of different lengths, so that shorter prompts have columns that are masked
        tails = [question["tail"][number:] for number, question in enumerate(group["questions"])]
        responses = [question["response"] for question in group["questions"]]
        prompts = Prompts(frozen, group["prefix"], tails)
        truth = prompts.read(responses)
        before = [k.clone() for part in (prompts.cache.document, prompts.cache.own)
                  for k, _ in part]
        guess = prompts.guess(adapter).detach()
        after = [k for part in (prompts.cache.document, prompts.cache.own) for k, _ in part]
        assert all(map(torch.equal, before, after))
        for number, (tail, response) in enumerate(zip(tails, responses)):
            prompt = group["prefix"] + tail
            naive = Naive(folder, adapter_folder)
            expected = {"true": true_scores(eager, prompt, response).numpy(),
                        "guessed": naive.scores(prompt)}
            for what, scores in (("true", truth), ("guessed", guess)):
                ours = scores[:, number].numpy()
                assert not ours[..., len(prompt):].any()
                errors[what] = max(errors[what],
                                   np.abs(ours[..., :len(prompt)] - expected[what]).max())
            for layer, k in enumerate(naive.prompt_keys):
                ours = np.concatenate([prompts.cache.document[layer][0][0].numpy(),
                                       prompts.cache.own[layer][0][number].numpy()], 1)
                errors["keys"] = max(errors["keys"], np.abs(ours[:, :len(prompt)] - k).max())
    for what, error in errors.items():
        print(what, error)


main()
