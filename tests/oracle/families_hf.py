#!/usr/bin/env python3
"""families_hf.py FOLDER ...: what transformers computes of each model folder, for families.py

Reads FOLDER/ids, writes FOLDER/hf.npz: logits [T][V] at every position, keys and values
[L][G][T][E] as they lie in its cache (keys of GLM in the order of snapshots), the attention
[L][H][T] that each row receives, and the 64 tokens that it would go on with, each the likeliest.
In f32, attention "eager". Needs PyTorch and transformers.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers


def config_of(model):
    return getattr(model.config, "rope_parameters", None) or {}


# rotary embedding rotates the channels 2i and 2i + 1 together
ADJACENT = ("glm", "glm4", "ernie4_5", "helium", "cohere", "cohere2",
            "ernie4_5_moe")


def half_split(config, l, keys):
    """keys [G][T][E] of layer l as snapshots have them: pairs (i, i + W/2), whichever the model
    rotates."""
    if config.model_type not in ADJACENT:
        return keys
    if config.model_type == "cohere2" and config.layer_types[l] == "full_attention":
        return keys                     # not rotated
    part = (config.rope_parameters or {}).get("partial_rotary_factor", 1.0)
    width = int(keys.shape[-1] * part)
    return np.concatenate([keys[..., 0:width:2], keys[..., 1:width:2], keys[..., width:]], axis=-1)


def rows_of(config, l, layer):
    """keys [G][T][E] and values of layer l; of latent attention, whose cache has the latent vector
    and the rotated key, as snapshots have them: both side by side, and the latent vector"""
    keys, values = layer.keys[0].numpy(), layer.values[0].numpy()
    if getattr(config, "kv_lora_rank", None) is None:
        return half_split(config, l, keys), values
    if config.model_type == "deepseek_v2":          # deepseek_v3 has put them into halves
        values = np.concatenate([values[..., 0::2], values[..., 1::2]], axis=-1)
    return np.concatenate([keys, values], axis=-1), keys


def allow_odd_widths(model_type):
    """Since 5.24 or before, hidden_size must be a multiple of num_attention_heads, even where
    head_dim makes that no matter."""
    kind = transformers.CONFIG_MAPPING[model_type]
    checks = getattr(kind, "__class_validators__", [])
    kind.__class_validators__ = [f for f in checks if f.__name__ != "validate_architecture"]


def run(folder):
    ids = [int(word) for word in (folder / "ids").read_text().split()]
    c = json.loads((folder / "config.json").read_text())
    allow_odd_widths(c["model_type"])
    kind = "ImageTextToText" if "text_config" in c else "CausalLM"
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        # a cache that does not know of windows, and keeps all rows
        out = model(torch.tensor([ids]), past_key_values=transformers.DynamicCache(),
                    output_attentions=True)
        logits = out.logits[0]
        if config_of(model).get("rope_type") == "longrope":     # by the length of the text
            logits = torch.stack([model(torch.tensor([ids[:n + 1]])).logits[0, -1]
                                  for n in range(len(ids))])
        text = list(ids)
        for _ in range(64):
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    rows = [rows_of(model.config, l, layer) for l, layer in
            enumerate(out.past_key_values.layers)]
    np.savez(folder / "hf.npz", logits=logits.numpy(),
             keys=np.stack([keys for keys, _ in rows]),
             mass=np.stack([a[0].sum(1).numpy() for a in out.attentions]),
             values=np.stack([values for _, values in rows]),
             greedy=np.array(text[len(ids):]))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for name in sys.argv[1:]:
        run(pathlib.Path(name))
