#!/usr/bin/python3
"""mkmodel.py - write a Llama model folder with random weights

usage: mkmodel.py DIR [--preset llama-3.2-1b] [--layers N] [--hidden N] [--heads N] [--kv-heads N]
                  [--head-dim N] [--ffn N] [--vocab N] [--dtype bf16|f16|f32] [--seed N] [--std X]
                  [--tie] [--bias] [--llama3-rope] [--shards K] [--tokenizer PATH]

The same options give the same bytes. Matrices are normal with standard deviation --std, norm
weights lie near 1. Needs numpy and about 250 MiB of memory, whatever the size of the model: in a
model of more than 16 M elements, tensors are windows into one pool at random places.
"""

import argparse
import json
import pathlib
import shutil
import struct

import numpy as np

POOL = 1 << 24                  # elements
STEP = 1 << 22                  # elements written at once
NAMES = {"bf16": "BF16", "f16": "F16", "f32": "F32"}
TORCH = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
PRESETS = {
    "llama-3.1-8b": dict(layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336,
                         vocab=128256, dtype="bf16", llama3_rope=True),
    "llama-2-7b": dict(layers=32, hidden=4096, heads=32, kv_heads=32, head_dim=128, ffn=11008,
                       vocab=32000, dtype="bf16"),
    "llama-3.2-1b": dict(layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192,
                         vocab=128256, dtype="bf16", tie=True, llama3_rope=True),
}


def options():
    p = argparse.ArgumentParser(prog="mkmodel.py")
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--preset", choices=PRESETS)
    for name, value in dict(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128,
                            vocab=256, seed=0, shards=1).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("--dtype", choices=NAMES, default="bf16")
    p.add_argument("--std", type=float, default=0.02)
    for name in ("--tie", "--bias", "--llama3-rope"):
        p.add_argument(name, action="store_true")
    p.add_argument("--tokenizer", type=pathlib.Path, help="a tokenizer.json, or a folder with one")
    preset, _ = p.parse_known_args()
    p.set_defaults(**PRESETS.get(preset.preset, {}))
    return p.parse_args()


def config(o):
    scaling = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
               "original_max_position_embeddings": 8192, "rope_type": "llama3"}
    return {
        "architectures": ["LlamaForCausalLM"], "attention_bias": o.bias, "attention_dropout": 0.0,
        "bos_token_id": o.vocab - 2, "eos_token_id": o.vocab - 1, "head_dim": o.head_dim,
        "hidden_act": "silu", "hidden_size": o.hidden, "initializer_range": o.std,
        "intermediate_size": o.ffn, "max_position_embeddings": 131072, "mlp_bias": False,
        "model_type": "llama", "num_attention_heads": o.heads, "num_hidden_layers": o.layers,
        "num_key_value_heads": o.kv_heads, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
        "rope_scaling": scaling if o.llama3_rope else None, "rope_theta": 500000.0,
        "tie_word_embeddings": o.tie, "torch_dtype": TORCH[o.dtype], "use_cache": True,
        "vocab_size": o.vocab,
    }


def shapes(o):
    """Every tensor's name and shape, in the order of the files."""
    q, kv = o.heads * o.head_dim, o.kv_heads * o.head_dim
    projections = (("self_attn.q_proj", q, o.hidden), ("self_attn.k_proj", kv, o.hidden),
                   ("self_attn.v_proj", kv, o.hidden), ("self_attn.o_proj", o.hidden, q),
                   ("mlp.gate_proj", o.ffn, o.hidden), ("mlp.up_proj", o.ffn, o.hidden),
                   ("mlp.down_proj", o.hidden, o.ffn))
    yield "model.embed_tokens.weight", (o.vocab, o.hidden)
    for n in range(o.layers):
        layer = f"model.layers.{n}."
        yield layer + "input_layernorm.weight", (o.hidden,)
        for name, rows, cols in projections:
            yield layer + name + ".weight", (rows, cols)
            if o.bias and name.startswith("self_attn"):
                yield layer + name + ".bias", (rows,)
        yield layer + "post_attention_layernorm.weight", (o.hidden,)
    yield "model.norm.weight", (o.hidden,)
    if not o.tie:
        yield "lm_head.weight", (o.vocab, o.hidden)


def convert(x, dtype):
    """f32 array -> array of the stored type (bf16 as u16, rounded to nearest even)."""
    if dtype != "bf16":
        return x.astype("<f2" if dtype == "f16" else "<f4")
    u = x.view(np.uint32)
    return ((u + (0x7fff + ((u >> 16) & 1))) >> 16).astype("<u2")


class Source:
    """Random numbers: fresh ones for small models, windows into one pool for large ones."""

    def __init__(self, o, elements):
        self.rng = np.random.default_rng(o.seed)
        self.o, self.pool = o, None
        if elements > POOL:
            self.pool = convert(self.normal(POOL), o.dtype)

    def normal(self, n):
        return self.rng.standard_normal(n, dtype=np.float32) * np.float32(self.o.std)

    def pieces(self, name, shape):
        n = int(np.prod(shape))
        if name.endswith("norm.weight"):
            yield convert(1 + self.normal(n), self.o.dtype)
        elif self.pool is None:
            yield convert(self.normal(n), self.o.dtype)
        else:
            while n > 0:
                start = int(self.rng.integers(POOL - STEP))
                piece = self.pool[start:start + min(n, STEP)]
                n -= len(piece)
                yield piece


def split(o, elements):
    """The tensors of each shard: cut where the shard before has its share of the elements."""
    shards, done = [[] for _ in range(o.shards)], 0
    for name, shape in shapes(o):
        shards[min(o.shards - 1, done * o.shards // elements)].append((name, shape))
        done += int(np.prod(shape))
    return [s for s in shards if s]


def write_shard(path, tensors, o, source):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = int(np.prod(shape)) * (4 if o.dtype == "f32" else 2)
        header[name] = {"dtype": NAMES[o.dtype], "shape": shape,
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            for piece in source.pieces(name, shape):
                f.write(piece.data)
    return offset


def write_tensors(path, tensors):
    """A safetensors file of (name, type as the file calls it, numpy array), in this order."""
    header, data = {}, b""
    for name, kind, x in tensors:
        header[name] = {"dtype": kind, "shape": x.shape,
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    o = options()
    elements = sum(int(np.prod(shape)) for _, shape in shapes(o))
    source = Source(o, elements)
    o.dir.mkdir(parents=True, exist_ok=True)
    (o.dir / "config.json").write_text(json.dumps(config(o), indent=2) + "\n")
    shards = split(o, elements)
    if len(shards) == 1:
        write_shard(o.dir / "model.safetensors", shards[0], o, source)
    else:
        index, total = {}, 0
        for i, tensors in enumerate(shards, 1):
            file = f"model-{i:05}-of-{len(shards):05}.safetensors"
            total += write_shard(o.dir / file, tensors, o, source)
            index.update((name, file) for name, _ in tensors)
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2)
        (o.dir / "model.safetensors.index.json").write_text(text + "\n")
    if o.tokenizer:
        file = o.tokenizer / "tokenizer.json" if o.tokenizer.is_dir() else o.tokenizer
        shutil.copyfile(file, o.dir / "tokenizer.json")


if __name__ == "__main__":
    main()
