#!/usr/bin/python3
"""mkhead.py - write a retrieval head with random weights, in the layout of an EAGLE-3 draft
checkpoint

usage: mkhead.py DIR --model MODEL [--heads H] [--kv-heads G] [--head-dim E] [--hidden D] [--alone]
                 [--layers A,B,C] [--embedding] [--more] [--theta X] [--dtype T]
                 [--seed N] [--std X]
                 [--drop TENSOR] [--reshape TENSOR] [--set KEY JSON] [--set-own KEY JSON]

The same options give the same bytes. --alone: a head of embeddings, without features. --layers:
what kvpipe's own part of the configuration says; without it there is none, as in foreign
checkpoints. --embedding: an embedding of its own; --more: tensors that a draft model has and a
retrieval head does not read. --hidden: another width than the model's. --drop leaves a tensor out,
--reshape gives it a row too few, --set sets a key of config.json, --set-own one of ours there.
Needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

from mkmodel import NAMES, convert, write_tensors

HERE = pathlib.Path(__file__).resolve().parent


def options():
    p = argparse.ArgumentParser(prog="mkhead.py")
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--model", type=pathlib.Path, required=True)
    for name in ("heads", "kv-heads", "head-dim", "hidden"):
        p.add_argument("--" + name, type=int)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--std", type=float, default=0.2)
    p.add_argument("--theta", type=float, default=10000.0)
    p.add_argument("--layers")
    for name in ("alone", "embedding", "more"):
        p.add_argument("--" + name, action="store_true")
    p.add_argument("--dtype", choices=NAMES, default="f32")
    p.add_argument("--drop", default="")
    p.add_argument("--reshape", default="")
    p.add_argument("--set", nargs=2, action="append", default=[])
    p.add_argument("--set-own", nargs=2, action="append", default=[])
    return p.parse_args()


def configuration(o, target):
    heads = o.heads or target["num_attention_heads"]
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
              "hidden_size": o.hidden or target["hidden_size"], "num_hidden_layers": 1,
              "intermediate_size": target["intermediate_size"], "num_attention_heads": heads,
              "num_key_value_heads": o.kv_heads or target.get("num_key_value_heads", heads),
              "vocab_size": target["vocab_size"], "draft_vocab_size": 8, "rope_theta": o.theta,
              "head_dim": o.head_dim or target.get("head_dim") or target["hidden_size"] // heads,
              "rms_norm_eps": 1e-5, "max_position_embeddings": 2048, "tie_word_embeddings": False}
    own = {}
    if o.layers:
        own["feature_layers"] = [int(n) for n in o.layers.split(",")]
        own["target_weights"] = subprocess.run(
            [sys.executable, HERE.parent / "oracle/fingerprint.py", o.model], check=True,
            capture_output=True, text=True).stdout.strip()
    own.update((key, json.loads(value)) for key, value in o.set_own)
    if own:
        config["kvpipe_retrieval_head"] = own
    config.update((key, json.loads(value)) for key, value in o.set)
    return config


def shapes(o, c, target):
    D, E = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * E, c["num_key_value_heads"] * E
    width = D if o.alone else 2 * D
    yield "midlayer.input_layernorm.weight", (D,)
    yield "midlayer.self_attn.q_proj.weight", (q, width)
    yield "midlayer.self_attn.k_proj.weight", (kv, width)
    if not o.alone:
        yield "midlayer.hidden_norm.weight", (D,)
        yield "fc.weight", (D, 3 * target["hidden_size"])
    if o.embedding:
        yield "embed_tokens.weight", (c["vocab_size"], D)
    if o.more:
        yield "midlayer.self_attn.v_proj.weight", (kv, width)
        yield "midlayer.mlp.gate_proj.weight", (7, D)
        yield "lm_head.weight", (c["draft_vocab_size"], D)


def tensors(o, c, target):
    rng = np.random.default_rng(o.seed)
    for name, shape in shapes(o, c, target):
        x = rng.standard_normal(shape, dtype=np.float32) * np.float32(o.std)
        if len(shape) == 1:
            x += 1
        if name == o.reshape:
            x = x[:-1]
        if name != o.drop:
            yield name, convert(np.ascontiguousarray(x), o.dtype)


def main():
    o = options()
    target = json.loads((o.model / "config.json").read_text())
    config = configuration(o, target)
    written = [(name, NAMES[o.dtype], x) for name, x in tensors(o, config, target)]
    if o.more:
        written.append(("d2t", "I64", np.zeros(8, np.int64)))
    o.dir.mkdir(exist_ok=True)
    (o.dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_tensors(o.dir / "model.safetensors", written)


if __name__ == "__main__":
    main()
