"""A snapshot as a DynamicCache of transformers, and back, through the files of kv-convert(1).

    kv-convert -o full.safetensors full.kv    cache, t, head = load("full.safetensors")
    kv-convert -o more.kv more.safetensors    save("more.safetensors", cache, t, head, more, logits)

    ids, logits = generate(model, cache, t["logits"], head["next_position"], 32, end={2})

Needs torch, transformers and safetensors. A row stands where its key was rotated for: the next
token has position head["next_position"], whatever the length of the cache.
model.generate(past_key_values=cache) takes the length for the position: where rows were evicted it
warns of nothing, and says something else than kv-decode. run() and generate() tell the model where
it is."""

import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import DynamicCache


# Models that rotate channels 2i and 2i + 1 together. A snapshot has the even ones of the rotated
# channels first, then the odd ones (kv-snapshot(5), 4.1).
ADJACENT = ("glm", "glm4", "ernie4_5", "helium", "cohere", "cohere2")


def reorder(keys, model, l, back=False):
    """Keys [...][E] of layer l in the order of a snapshot's model, as the model has them; back:
    the other way round."""
    rope, E = model["rope"], keys.shape[-1]
    if model["architecture"] not in ADJACENT or (l + 1) % rope.get("skip", l + 2) == 0:
        return keys
    width = rope.get("width", E)
    order = torch.arange(width).view(2, -1).T.reshape(-1)
    order = torch.argsort(order) if back else order
    return torch.cat([keys[..., order], keys[..., width:]], -1)


def load(path, config=None):
    """Returns the cache, all tensors of the file, and what it says of its model. config: the
    model's, which says what layers with a sliding window keep; not needed without."""
    with safe_open(path, "pt") as file:
        head = json.loads(file.metadata()["kv-snapshot"])
        t = {name: file.get_tensor(name) for name in file.keys()}
    if "row_types" in head:
        raise ValueError(f"{path}: its rows are quantised: make it without kv-convert --as-stored")
    cache = DynamicCache(config=config)
    window, whole = head["model"].get("window"), head["model"].get("whole_layers", ())
    n = head["next_position"]
    for l in range(head["model"]["layers"]):
        if (t[f"layers.{l}.positions"] < 0).any():
            raise ValueError(f"{path}: layer {l}: KV heads have different numbers of rows, "
                             "a DynamicCache has not")
        limited = window and l not in whole
        rows = min(n, window - 1) if limited else n
        if window and t[f"layers.{l}.positions"].shape[-1] != rows:
            raise ValueError(f"{path}: layer {l}: rows were evicted, "
                             "and transformers finds windows by counting them")
        cache.update(reorder(t[f"layers.{l}.keys"], head["model"], l), t[f"layers.{l}.values"], l)
        if limited:
            cache.layers[l].cumulative_length = n
    return cache, t, head


def run(model, cache, ids, position):
    """Logits [1][V] behind ids [1][N], which the cache reads;
    the first of them is at this position."""
    positions = torch.arange(position, position + ids.shape[1], device=ids.device)[None]
    with torch.no_grad():
        out = model(ids, past_key_values=cache, position_ids=positions, use_cache=True)
    return out.logits[:, -1]


def generate(model, cache, logits, position, n, end=()):
    """Greedily up to n ids behind logits [1][V], the first of them at this position; as kv-decode
    does. One of `end` ends them, and is not among them. Returns the ids, all of which the cache has
    read, and the logits behind the last."""
    said = []
    while len(said) < n and int(logits.argmax()) not in end:
        said.append(int(logits.argmax()))
        last = torch.tensor([said[-1:]], device=logits.device)
        logits = run(model, cache, last, position + len(said) - 1)
    return said, logits


def save(path, cache, t, head, more, logits):
    """more: the ids [1][N] that the cache has read since load(); logits [1][V]:
    behind the last of them."""
    first = head["next_position"]
    t = dict(t, tokens=torch.cat([t["tokens"], more], 1), logits=logits.float().contiguous())
    for l, layer in enumerate(cache.layers):
        old = t[f"layers.{l}.positions"]
        new = torch.arange(first, first + more.shape[1]).expand(len(old), -1)
        t[f"layers.{l}.positions"] = torch.cat([old, new], 1)[:, -layer.keys.shape[-2]:]
        t[f"layers.{l}.keys"] = reorder(layer.keys, head["model"], l, back=True).contiguous()
        t[f"layers.{l}.values"] = layer.values.contiguous()
    head = json.dumps(dict(head, next_position=first + more.shape[1]))
    save_file(t, path, {"format": "pt", "kv-snapshot": head})
