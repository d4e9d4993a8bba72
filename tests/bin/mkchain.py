#!/usr/bin/python3
"""mkchain.py - write a model folder whose model says given tokens one after the other

usage: mkchain.py DIR TOKENIZER ID ...

Behind token ID i it says ID i + 1, behind the last one the first, whatever stands before: attention
and feed-forward are zero. No ID may come twice; at most 32 of them, below 1536.
"""
import json
import os
import struct
import sys

import numpy as np

V, D, F, E = 1536, 32, 16, 16

directory, tokenizer, *ids = sys.argv[1:]
ids = [int(i) for i in ids]
if len(set(ids)) != len(ids) or len(ids) > D:
    sys.exit("mkchain.py: an id comes twice, or there are too many")
os.mkdir(directory)
os.symlink(os.path.abspath(tokenizer), os.path.join(directory, "tokenizer.json"))
with open(os.path.join(directory, "config.json"), "w", encoding="ascii") as file:
    json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": D,
               "intermediate_size": F, "num_hidden_layers": 1, "num_attention_heads": 2,
               "num_key_value_heads": 1, "head_dim": E, "vocab_size": V, "rms_norm_eps": 1e-5,
               "rope_theta": 10000.0, "max_position_embeddings": 512, "hidden_act": "silu",
               "tie_word_embeddings": False, "bos_token_id": 1533, "eos_token_id": 1534}, file)
embed, head = np.zeros((V, D), "<f4"), np.zeros((V, D), "<f4")
for i, token in enumerate(ids):
    embed[token, i] = 1
    head[ids[(i + 1) % len(ids)], i] = 1
layer = "model.layers.0."
tensors = {"model.embed_tokens.weight": embed, "lm_head.weight": head,
           "model.norm.weight": np.ones(D, "<f4"),
           layer + "input_layernorm.weight": np.ones(D, "<f4"),
           layer + "post_attention_layernorm.weight": np.ones(D, "<f4")}
for name, rows, columns in (("self_attn.q_proj", 2 * E, D), ("self_attn.k_proj", E, D),
                            ("self_attn.v_proj", E, D), ("self_attn.o_proj", D, 2 * E),
                            ("mlp.gate_proj", F, D), ("mlp.up_proj", F, D),
                            ("mlp.down_proj", D, F)):
    tensors[f"{layer}{name}.weight"] = np.zeros((rows, columns), "<f4")
index, at = {}, 0
for name, x in tensors.items():
    index[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
    at += x.nbytes
text = json.dumps(index).encode("ascii")
text += b" " * (-len(text) % 8)
with open(os.path.join(directory, "model.safetensors"), "wb") as file:
    data = b"".join(x.tobytes() for x in tensors.values())
    file.write(struct.pack("<Q", len(text)) + text + data)
