"""Computes the prompts of golden.json once more, in NumPy and f64, and compares the logits.

Independent of model.py and of kvpipe: only config.json and model.safetensors are read. Semantics
of Hugging Face's Llama (repeat_kv, rotate_half). Exits 1 when the order of the ten greatest logits
differs or one is off by more than TOLERANCE.
"""

import json
import os
import struct
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
TOLERANCE = 1e-3


def read_json(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)


class Weights:
    """Tensors of model.safetensors by name, widened from bf16 to f64."""

    def __init__(self, path):
        with open(path, "rb") as file:
            raw = file.read()
        start = 8 + struct.unpack("<Q", raw[:8])[0]
        self.header = json.loads(raw[8:start])
        self.data = raw[start:]

    def __call__(self, name):
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        halves = np.frombuffer(self.data[begin:end], dtype=np.uint16).astype(np.uint32)
        return (halves << 16).view(np.float32).astype(np.float64).reshape(entry["shape"])


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate_half(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def attention(config, weights, prefix, x, cos, sin):
    """x [T][D], normalised -> [T][D]."""
    T, E = len(x), config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def project(which, count):
        product = x @ weights(f"{prefix}self_attn.{which}_proj.weight").T
        return product.reshape(T, count, E).transpose(1, 0, 2)

    q, k, v = project("q", heads), project("k", kv_heads), project("v", kv_heads)
    q = q * cos + rotate_half(q) * sin
    k = k * cos + rotate_half(k) * sin
    k, v = (np.repeat(array, heads // kv_heads, 0) for array in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(E) + np.triu(np.full((T, T), -np.inf), 1)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    o = (p @ v).transpose(1, 0, 2).reshape(T, -1)
    return o @ weights(prefix + "self_attn.o_proj.weight").T


def last_logits(config, weights, ids):
    """The logits after the last id."""
    embedding = weights("model.embed_tokens.weight")
    E, eps = config["head_dim"], config["rms_norm_eps"]
    angle = np.outer(np.arange(len(ids)), config["rope_theta"] ** (-np.arange(0, E, 2) / E))
    angle = np.concatenate([angle, angle], 1)
    cos, sin = np.cos(angle), np.sin(angle)
    x = embedding[ids]
    for number in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{number}."
        h = rms_norm(x, weights(prefix + "input_layernorm.weight"), eps)
        x = x + attention(config, weights, prefix, h, cos, sin)
        h = rms_norm(x, weights(prefix + "post_attention_layernorm.weight"), eps)
        gate = silu(h @ weights(prefix + "mlp.gate_proj.weight").T)
        up = h @ weights(prefix + "mlp.up_proj.weight").T
        x = x + (gate * up) @ weights(prefix + "mlp.down_proj.weight").T
    return rms_norm(x[-1], weights("model.norm.weight"), eps) @ embedding.T


def main():
    config = read_json("config.json")
    weights = Weights(os.path.join(HERE, "model.safetensors"))
    status = 0
    for prompt in read_json("golden.json")["prompts"]:
        logits = last_logits(config, weights, np.array(prompt["ids"]))
        difference = np.abs(logits[prompt["top_ids"]] - prompt["top_logits"]).max()
        same_order = np.argsort(-logits)[:10].tolist() == prompt["top_ids"]
        print(f"{prompt['note']}: greatest difference {difference:.1e},",
              "same order" if same_order else "another order")
        if difference > TOLERANCE or not same_order:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
