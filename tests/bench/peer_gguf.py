#!/usr/bin/env python3
"""peer_gguf.py - a model folder (Llama) as a GGUF file, with the same weights in the same type

usage: peer_gguf.py FOLDER FILE

Needs the package gguf. Queries and keys are permuted as llama.cpp wants them (it rotates
neighbours, Hugging Face's files halves); the factors of Llama 3's rotation become a tensor. Norms
are f32, as llama.cpp's own converter makes them. The vocabulary is that of tokenizer.json, byte
level; what splits its text is llama.cpp's default, because no text but "Hello" is tokenized.
Without tokenizer.json there is none.
"""

import argparse
import json
import math
import pathlib
import struct

import gguf
import numpy as np

STORED = {"BF16": (np.uint16, gguf.GGMLQuantizationType.BF16),
          "F16": (np.float16, gguf.GGMLQuantizationType.F16),
          "F32": (np.float32, gguf.GGMLQuantizationType.F32)}
NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight",
         "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def tensors(folder):
    """(name, type, array) of all *.safetensors, mapped"""
    for path in sorted(folder.glob("*.safetensors")):
        data = np.memmap(path, np.uint8, "r")
        size = struct.unpack("<Q", data[:8].tobytes())[0]
        for name, t in json.loads(data[8:8 + size].tobytes()).items():
            if name != "__metadata__":
                first, end = (8 + size + at for at in t["data_offsets"])
                array = data[first:end].view(STORED[t["dtype"]][0])
                yield name, t["dtype"], array.reshape(t["shape"])


def name_of(name):
    if name in WHOLE:
        return WHOLE[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def permuted(x, heads):
    """Rows of the two halves of each head, in turns"""
    halves = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
    return halves.swapaxes(1, 2).reshape(x.shape)


def widened(x, dtype):
    return (x.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else x.astype(np.float32)


def llama3_factors(c):
    """What llama.cpp divides frequencies by: transformers' _compute_llama3_parameters()"""
    s, width = c["rope_scaling"], c["head_dim"]
    frequency = c["rope_theta"] ** -(np.arange(0, width, 2, dtype=np.float64) / width)
    turns = s["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = s["low_freq_factor"], s["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / s["factor"] + smooth)).astype(np.float32)


def add_config(out, c):
    out.add_context_length(c["max_position_embeddings"])
    out.add_embedding_length(c["hidden_size"])
    out.add_block_count(c["num_hidden_layers"])
    out.add_feed_forward_length(c["intermediate_size"])
    out.add_head_count(c["num_attention_heads"])
    out.add_head_count_kv(c["num_key_value_heads"])
    out.add_layer_norm_rms_eps(c["rms_norm_eps"])
    out.add_rope_freq_base(c["rope_theta"])
    out.add_rope_dimension_count(c["head_dim"])
    out.add_vocab_size(c["vocab_size"])


def add_vocabulary(out, folder, size):
    path = folder / "tokenizer.json"
    if not path.exists():
        out.add_tokenizer_model("none")
        return
    read = json.loads(path.read_text())
    tokens = [f"[unused {i}]" for i in range(size)]
    types = [gguf.TokenType.UNUSED] * size
    for token, i in read["model"]["vocab"].items():
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
    for added in read.get("added_tokens", []):
        tokens[added["id"]], types[added["id"]] = added["content"], gguf.TokenType.CONTROL
    merges = [m if isinstance(m, str) else " ".join(m) for m in read["model"]["merges"]]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list(tokens)
    out.add_token_types(types)
    out.add_token_merges(merges)


def main():
    p = argparse.ArgumentParser(prog="peer_gguf.py")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("file", type=pathlib.Path)
    o = p.parse_args()
    c = json.loads((o.folder / "config.json").read_text())
    c.setdefault("head_dim", c["hidden_size"] // c["num_attention_heads"])
    if c.get("model_type") != "llama":
        raise SystemExit(f"peer_gguf.py: {o.folder}: {c.get('model_type')} is not llama")
    out = gguf.GGUFWriter(o.file, "llama")
    add_config(out, c)
    add_vocabulary(out, o.folder, c["vocab_size"])
    if c.get("rope_scaling"):
        out.add_tensor("rope_freqs.weight", llama3_factors(c))
    for name, dtype, x in tensors(o.folder):
        if "q_proj" in name or "k_proj" in name:
            x = permuted(x, c["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])
        if x.ndim == 1:
            out.add_tensor(name_of(name), widened(x, dtype))
        else:
            out.add_tensor(name_of(name), np.ascontiguousarray(x).view(np.uint8),
                           raw_dtype=STORED[dtype][1])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
