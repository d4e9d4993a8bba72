"""A snapshot as a DynamicCache of transformers, and back, through the files of kv-convert(1).

    kv-convert -o full.safetensors full.kv          cache, t, head = load("full.safetensors")
    kv-convert -o more.kv more.safetensors          save("more.safetensors", cache, t, head, more, logits)

Needs torch, transformers and safetensors. A row stands where its key was rotated for: the next token has position
head["next_position"], whatever the length of the cache, and transformers must be told (position_ids)."""

import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import DynamicCache


def load(path, config=None):
    """Returns the cache, all tensors of the file, and what it says of its model. config: the model's, which says what
    layers with a sliding window keep; not needed without."""
    with safe_open(path, "pt") as file:
        head, t = json.loads(file.metadata()["kv-snapshot"]), {name: file.get_tensor(name) for name in file.keys()}
    cache = DynamicCache(config=config)
    window, whole, n = head["model"].get("window"), head["model"].get("whole_layers", ()), head["next_position"]
    for l in range(head["model"]["layers"]):
        if (t[f"layers.{l}.positions"] < 0).any():
            raise ValueError(f"{path}: layer {l}: KV heads have different numbers of rows, a DynamicCache has not")
        limited = window and l not in whole
        if window and t[f"layers.{l}.positions"].shape[-1] != (min(n, window - 1) if limited else n):
            raise ValueError(f"{path}: layer {l}: rows were evicted, and transformers finds windows by counting them")
        cache.update(t[f"layers.{l}.keys"], t[f"layers.{l}.values"], l)
        if limited:
            cache.layers[l].cumulative_length = n
    return cache, t, head


def save(path, cache, t, head, more, logits):
    """more: the ids [1][N] that the cache has read since load(); logits [1][V]: behind the last of them."""
    first = head["next_position"]
    t = dict(t, tokens=torch.cat([t["tokens"], more], 1), logits=logits.float().contiguous())
    for l, layer in enumerate(cache.layers):
        old = t[f"layers.{l}.positions"]
        new = torch.arange(first, first + more.shape[1]).expand(len(old), -1)
        t[f"layers.{l}.positions"] = torch.cat([old, new], 1)[:, -layer.keys.shape[-2]:]
        t[f"layers.{l}.keys"], t[f"layers.{l}.values"] = layer.keys.contiguous(), layer.values.contiguous()
    head = json.dumps(dict(head, next_position=first + more.shape[1]))
    save_file(t, path, {"format": "pt", "kv-snapshot": head})
