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
import safetensors.torch
import torch
import transformers


# rows of q, k and v of each KV head together, in tensors with names of their own
INTERNLM2 = {"attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj",
             "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj",
             "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
             "model.tok_embeddings": "model.embed_tokens", "output.": "lm_head."}


def as_deepseek(c, tensors):
    """Kimi K2's own code is DeepSeek-V3's."""
    return dict(c, model_type="deepseek_v3"), tensors


def as_qwen2(c, tensors):
    """MiMo's own code adds layers that guess further tokens."""
    return dict(c, model_type="qwen2"), \
        {name: x for name, x in tensors.items() if ".mtp_layers." not in name}


def as_granite(c, tensors):
    """MiniCPM's own code multiplies as Granite does, by other keys."""
    c = dict(c)
    embedding, depth, base = (c.pop(key) for key in ("scale_emb", "scale_depth", "dim_model_base"))
    c.pop("mup_denominator", None)
    return dict(c, model_type="granite", embedding_multiplier=embedding,
                residual_multiplier=depth / c["num_hidden_layers"] ** 0.5,
                logits_scaling=c["hidden_size"] / base,
                attention_multiplier=c["head_dim"] ** -0.5), tensors


def as_llama(c, tensors):
    """InternLM 2's own code takes a matrix apart: of each KV head some queries, a key, a value."""
    out, E = {}, c["head_dim"]
    for name, x in tensors.items():
        for old, new in INTERNLM2.items():
            name = name.replace(old, new)
        if "attention.wqkv" not in name:
            out[name] = x
            continue
        group = x.reshape(c["num_key_value_heads"], -1, E, *x.shape[1:])
        for what, part in (("q", group[:, :-2]), ("k", group[:, -2]), ("v", group[:, -1])):
            out[name.replace("attention.wqkv", f"self_attn.{what}_proj")] = \
                part.reshape(-1, *x.shape[1:]).contiguous()
    bias = c["bias"]
    if bias:                            # Llama's o_proj has one, too
        assert all(f"model.layers.{l}.self_attn.o_proj.bias" in out
                   for l in range(c["num_hidden_layers"]))
    return dict(c, model_type="llama", attention_bias=bias), out


# Families that transformers has under another name only; their own code is in their folders
STAND_INS = {"kimi_k2": as_deepseek, "mimo": as_qwen2, "minicpm": as_granite,
             "internlm2": as_llama}


def stand_in(folder, c):
    """The folder of the same model for transformers"""
    if c["model_type"] not in STAND_INS:
        return folder
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    c, tensors = STAND_INS[c["model_type"]](c, tensors)
    c.pop("architectures")
    other = folder / "stand-in"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(c))
    safetensors.torch.save_file(tensors, other / "model.safetensors", {"format": "pt"})
    return other


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
    if config.model_type == "falcon" and config.new_decoder_architecture:
        group = config.num_attention_heads // config.num_kv_heads      # each as many times
        return keys[::group], values[::group]
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


def by_length(rotary):
    """transformers 5.24 has the short factors of Phi-3.5-MoE at all lengths; its own code and older
    versions go by the length, as for Phi-3."""
    forward, make = rotary.forward, rotary.rope_init_fn

    def turned(x, position_ids):
        n = int(position_ids.max()) + 1
        rotary.rope_init_fn = lambda config: make(config, seq_len=n)
        return forward(x, position_ids)
    rotary.forward = turned


def run(folder):
    ids = [int(word) for word in (folder / "ids").read_text().split()]
    c = json.loads((folder / "config.json").read_text())
    source = stand_in(folder, c)
    allow_odd_widths(json.loads((source / "config.json").read_text())["model_type"])
    kind = "ImageTextToText" if "text_config" in c else "CausalLM"
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
        source, dtype=torch.float32, attn_implementation="eager").eval()
    if c["model_type"] == "phimoe" and "rope_scaling" in c:
        by_length(model.model.rotary_emb)
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
