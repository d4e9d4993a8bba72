#!/usr/bin/env python3
"""transformers beside kvpipe: goes on where a cache ends, greedily, in f32, and prints the ids.

  continue_cache.py FOLDER MODEL go IN.safetensors N [OUT.safetensors]
      N tokens from the logits of IN; OUT has read all of them
  continue_cache.py FOLDER MODEL say IN.safetensors N
      the same, up to the model's end of text
  continue_cache.py FOLDER MODEL new IDS OUT.safetensors N
      runs the ids of a file, writes the cache without a word of its model, then N tokens
      (not of a model that rotates channels side by side)

FOLDER is that of kv_cache.py."""

import sys

import torch
from transformers import AutoModelForCausalLM, DynamicCache

sys.path.insert(0, sys.argv[1])
from kv_cache import generate, load, run, save, save_file  # noqa: E402


def go(model, source, n, target=None):
    cache, t, head = load(source, model.config)
    said, logits = generate(model, cache, t["logits"], head["next_position"], int(n))
    if target:
        save(target, cache, t, head, torch.tensor([said]), logits)
    return said


def say(model, source, n):
    cache, t, head = load(source, model.config)
    end = model.generation_config.eos_token_id
    ends = {end} if isinstance(end, int) else set(end)
    return generate(model, cache, t["logits"], head["next_position"], int(n), ends)[0]


def new(model, path, target, n):
    with open(path, encoding="ascii") as file:
        ids = torch.tensor([[int(word) for word in file.read().split()]])
    cache = DynamicCache()
    logits = run(model, cache, ids, 0)
    t = {"tokens": ids, "logits": logits.clone()}
    for l, layer in enumerate(cache.layers):
        t[f"layers.{l}.keys"] = layer.keys.contiguous()
        t[f"layers.{l}.values"] = layer.values.contiguous()
    save_file(t, target)
    return generate(model, cache, logits, ids.shape[1], int(n))[0]


if __name__ == "__main__":
    torch.set_num_threads(1)
    llm = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32).eval()
    print(*{"go": go, "say": say, "new": new}[sys.argv[3]](llm, *sys.argv[4:]), sep="\n")
