#!/usr/bin/env python3
"""learned_rows - what kv-observe --lookahead must give, from the formulas, in double precision.

	learned_rows.py MODEL ADAPTER OBSERVED.kv

Runs the snapshot's tokens and the adapter's learned tokens as one text, LoRA on the learned ones
only, and prints the relative errors (L2) of their queries and own keys, one a line: `queries
1.2e-07`. Exits with 1 when the queries do not stand behind the text. Shares no code with
kv-observe.
"""

import json
import pathlib
import sys

import numpy as np

from llama import Llama, load_tensors, relative
from observe import read
from scores import own_keys, stored_queries


class WithAdapter(Llama):
    """The last n rows are learned tokens; every linear adds its LoRA to these."""

    def __init__(self, model, adapter):
        super().__init__(model)
        config = json.loads((pathlib.Path(adapter) / "adapter_config.json").read_text())
        self.added = load_tensors(adapter)
        learned = self.added["lookahead.embeddings"]
        self.n = len(learned)
        embed = self.w["model.embed_tokens.weight"]
        self.w.setdefault("lm_head.weight", embed)
        self.first = len(embed)                 # the learned tokens' ids, as it were
        self.w["model.embed_tokens.weight"] = np.concatenate([embed, learned])
        rank = config["r"] ** 0.5 if config.get("use_rslora") else config["r"]
        self.scale = config["lora_alpha"] / rank if config["target_modules"] else 0

    def linear(self, x, name):
        y = super().linear(x, name)
        a = self.added.get(f"base_model.model.{name}.lora_A.weight")
        if a is not None:
            b = self.added[f"base_model.model.{name}.lora_B.weight"]
            y[-self.n:] += self.scale * (x[-self.n:] @ a.T @ b.T)
        return y

    def observed(self, tokens):
        """Keys [l][G][T+n][E] and queries [l][H][T+n][E]."""
        keys, _, queries, _ = self.forward(
            np.array(tokens + list(range(self.first, self.first + self.n))))
        return keys, queries


def main(model, adapter, path):
    snapshot, llama = read(path), WithAdapter(model, adapter)
    keys, queries = llama.observed(snapshot.tokens)
    T, pairs = snapshot.head["next_position"], {"queries": [], "own keys": []}
    for l in range(len(snapshot.layers)):
        got, at = stored_queries(snapshot, l)
        if at[-llama.n:] != list(range(T, T + llama.n)):
            sys.exit(f"layer {l}: queries at {at}")
        pairs["queries"].append((got, queries[l][:, list(at)]))
        for g in range(snapshot.model["kv_heads"]):
            own, own_at = own_keys(snapshot, l, g)
            pairs["own keys"].append((own, keys[l][g][own_at]))
    for name, of in pairs.items():
        print(f"{name} {relative(of):.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
