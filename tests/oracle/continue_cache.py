#!/usr/bin/env python3
"""transformers beside kvpipe: goes on where a cache ends, greedily, in f32, and prints the ids.

  continue_cache.py FOLDER MODEL go IN.safetensors N [OUT.safetensors]    N tokens from the logits of IN; OUT has read all of them
  continue_cache.py FOLDER MODEL new IDS OUT.safetensors N                runs the ids of a file, writes the cache without a word of its
                                                                         model, then N tokens

FOLDER is that of kv_cache.py."""

import sys

import torch
from transformers import AutoModelForCausalLM, DynamicCache

sys.path.insert(0, sys.argv[1])
from kv_cache import load, save, save_file  # noqa: E402


def step(model, ids, cache, position):
    """Logits [1][V] behind ids [1][N], the first of which is at this position."""
    positions = torch.arange(position, position + ids.shape[1])[None]
    with torch.no_grad():
        return model(ids, past_key_values=cache, position_ids=positions, use_cache=True).logits[:, -1]


def greedy(model, cache, logits, position, n):
    """The next n ids, all of which the cache has read then, and the logits behind them."""
    said = []
    for i in range(n):
        said.append(int(logits.argmax()))
        logits = step(model, torch.tensor([said[-1:]]), cache, position + i)
    return said, logits


def go(model, source, n, target=None):
    cache, t, head = load(source, model.config)
    said, logits = greedy(model, cache, t["logits"], head["next_position"], int(n))
    if target:
        save(target, cache, t, head, torch.tensor([said]), logits)
    return said


def new(model, path, target, n):
    with open(path, encoding="ascii") as file:
        ids = torch.tensor([[int(word) for word in file.read().split()]])
    cache = DynamicCache()
    logits = step(model, ids, cache, 0)
    t = {"tokens": ids, "logits": logits.clone()}
    for l, layer in enumerate(cache.layers):
        t[f"layers.{l}.keys"], t[f"layers.{l}.values"] = layer.keys.contiguous(), layer.values.contiguous()
    save_file(t, target)
    return greedy(model, cache, logits, ids.shape[1], int(n))[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    llm = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32).eval()
    print(*{"go": go, "new": new}[sys.argv[3]](llm, *sys.argv[4:]), sep="\n")
