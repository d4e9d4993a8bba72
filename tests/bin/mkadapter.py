#!/usr/bin/python3
"""mkadapter.py - write a LookaheadKV adapter with random weights, or a damaged one (kv-adapter(5))

usage: mkadapter.py DIR --model MODEL [--tokens N] [--rank R] [--alpha X] [--modules LIST]
                        [--dtype T]
                    [--seed N] [--std X] [--all-of-last] [--drop TENSOR] [--reshape TENSOR]
                    [--value TENSOR X] [--set KEY JSON] [--set-lookahead KEY JSON]

The same options give the same bytes. --modules: names of linears with commas between them, "none".
The last layer gets a LoRA on queries and keys only, unless --all-of-last. --drop leaves a tensor
out, --reshape gives it a row too few, --value writes X (nan, inf) over its first value, --set sets
a key of adapter_config.json. Needs numpy, and fingerprint.py.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

from mkmodel import NAMES, convert, write_tensors

HERE = pathlib.Path(__file__).resolve().parent
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def options():
    p = argparse.ArgumentParser(prog="mkadapter.py")
    p.add_argument("dir", type=pathlib.Path)
    p.add_argument("--model", type=pathlib.Path, required=True)
    for name, value in dict(tokens=5, rank=3, seed=0).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--alpha", type=float, default=6.0)
    p.add_argument("--std", type=float, default=0.2)
    p.add_argument("--modules", default=",".join(LINEARS))
    p.add_argument("--dtype", choices=NAMES, default="f32")
    p.add_argument("--all-of-last", action="store_true")
    p.add_argument("--drop", default="")
    p.add_argument("--reshape", default="")
    p.add_argument("--value", nargs=2, default=("", "0"))
    p.add_argument("--set", nargs=2, action="append", default=[])
    p.add_argument("--set-lookahead", nargs=2, action="append", default=[])
    return p.parse_args()


def shapes(o, c):
    """Every tensor's name and shape."""
    D, F, H = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    E = c.get("head_dim") or D // H
    q, kv = H * E, c.get("num_key_value_heads", H) * E
    size = {"q_proj": (q, D), "k_proj": (kv, D), "v_proj": (kv, D), "o_proj": (D, q),
            "gate_proj": (F, D), "up_proj": (F, D), "down_proj": (D, F)}
    yield "lookahead.embeddings", (o.tokens, D)
    L = c["num_hidden_layers"]
    for layer in range(L):
        for name in LINEARS:
            if name not in o.modules or layer == L - 1 and name not in LINEARS[:2] \
                    and not o.all_of_last:
                continue
            part = "mlp" if name in LINEARS[4:] else "self_attn"
            full = f"base_model.model.model.layers.{layer}.{part}.{name}.lora_"
            yield full + "A.weight", (o.rank, size[name][1])
            yield full + "B.weight", (size[name][0], o.rank)


def tensors(o, c):
    rng = np.random.default_rng(o.seed)
    for name, shape in shapes(o, c):
        x = rng.standard_normal(shape, dtype=np.float32) * np.float32(o.std)
        if name == o.reshape:
            x = x[:-1]
        if name == o.value[0]:
            x[0, 0] = float(o.value[1])
        if name != o.drop:
            yield name, convert(np.ascontiguousarray(x), o.dtype)


def main():
    o = options()
    o.modules = [] if o.modules == "none" else o.modules.split(",")
    config = json.loads((o.model / "config.json").read_text())
    fingerprint = subprocess.run([sys.executable, HERE.parent / "oracle/fingerprint.py", o.model],
                                 check=True, capture_output=True, text=True).stdout.strip()
    own = {"version": 1, "tokens": o.tokens, "weights": fingerprint}
    adapter = {"peft_type": "LORA", "r": o.rank, "lora_alpha": o.alpha, "bias": "none",
               "target_modules": o.modules, "lora_dropout": 0.0, "use_rslora": False,
               "task_type": "CAUSAL_LM", "lookahead": own}
    own.update((key, json.loads(value)) for key, value in o.set_lookahead)
    adapter.update((key, json.loads(value)) for key, value in o.set)
    o.dir.mkdir(exist_ok=True)
    (o.dir / "adapter_config.json").write_text(json.dumps(adapter, indent=2) + "\n")
    write_tensors(o.dir / "adapter_model.safetensors",
                  ((name, NAMES[o.dtype], x) for name, x in tensors(o, config)))


if __name__ == "__main__":
    main()
