#!/usr/bin/env python3
"""The retrieval head of SpeContext in double precision, from the formulas,
against the keys in a snapshot.

    draft_head.py [--limit X] MODEL HEAD SNAPSHOT

Runs the snapshot's tokens through the model (llama.py), the head over what its residual stream is
in front of three layers, and prints the relative error in the L2 norm of the keys, and of the
features of the last token: exit 1 when one is above the limit. For prompts that ran with all their
rows. Nothing here is shared with the C code."""

import argparse
import json
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "format"))
import kvread  # noqa: E402
import llama  # noqa: E402


class Head:
    """One head; x: the residual stream of a token in front of each layer of the model."""

    def __init__(self, folder, model):
        self.config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.w = {name: w for name, w in tensors(folder)}
        c, self.model = self.config, model
        self.D, self.E = c["hidden_size"], c["head_dim"]
        self.H, self.G = c["num_attention_heads"], c["num_key_value_heads"]
        L = model.config["num_hidden_layers"]
        self.layers = c.get("kvpipe_retrieval_head", {}).get("feature_layers", [2, L // 2, L - 3])
        self.features = self.w["midlayer.self_attn.k_proj.weight"].shape[1] == 2 * self.D
        self.freq, self.factor = frequencies(c, self.E)

    def norm(self, x, name):
        rms = math.sqrt((x * x).mean() + self.config["rms_norm_eps"])
        return x / rms * self.w[f"midlayer.{name}.weight"]

    def feature(self, x):
        if not self.features:
            return None
        return self.w["fc.weight"] @ np.concatenate([x[l] for l in self.layers])

    def row(self, token, position, before):
        """q[H][E] and k[G][E]; before: the features of the token before, None at position 0."""
        table = self.w.get("embed_tokens.weight", self.model.w["model.embed_tokens.weight"])
        u = self.norm(table[token], "input_layernorm")
        if self.features:
            f = np.zeros(self.D) if before is None else self.norm(before, "hidden_norm")
            u = np.concatenate([u, f])
        rows = [self.w[f"midlayer.self_attn.{name}_proj.weight"] @ u for name in "qk"]
        return [self.turn(row.reshape(-1, self.E), position) for row in rows]

    def turn(self, x, position):
        half = self.E // 2
        angle = position * self.freq
        cos, sin = self.factor * np.cos(angle), self.factor * np.sin(angle)
        a, b = x[:, :half], x[:, half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], 1)

    def text(self, ids, streams):
        """keys [G][T][E] and the features of the last token; streams [layer][T][D]."""
        before, keys = None, []
        for p, token in enumerate(ids):
            keys.append(self.row(token, p, before)[1])
            before = self.feature([x[p] for x in streams])
        return np.array(keys).transpose(1, 0, 2), before


def frequencies(config, width):
    """Of the rotary pairs, and what cosine and sine are multiplied with;
    YaRN by its paper (Peng et al. 2023, 3.2 to 3.4)."""
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") != "yarn":
        return llama.frequencies(config, width), 1.0
    plain = config["rope_theta"] ** (-np.arange(0, width, 2) / width)
    trained, factor = scaling["original_max_position_embeddings"], scaling["factor"]

    def pair(turns):        # the pair that turns so often within the trained length
        base = math.log(config["rope_theta"])
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * base)

    low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), width - 1)
    slow = np.clip((np.arange(width // 2) - low) / max(high - low, 0.001), 0, 1)
    return plain * (1 - slow) + plain / factor * slow, 0.1 * math.log(factor) + 1


def tensors(folder):
    """Those of types that weights have."""
    raw = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name != "__metadata__" and entry["dtype"] in ("F32", "F16", "BF16"):
            begin, end = (8 + length + x for x in entry["data_offsets"])
            yield name, llama.to_float64(raw[begin:end], entry["dtype"]).reshape(entry["shape"])


def stored(snapshot):
    """The keys of a snapshot, [G][n][E]."""
    k = snapshot.head_keys
    return kvread.widen(k.keys, snapshot.head["dtype"]).astype(float).reshape(k.heads, k.n, k.width)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=1e-5)
    parser.add_argument("names", nargs=3)
    o = parser.parse_args()
    model = llama.Llama(o.names[0])
    head = Head(o.names[1], model)
    with open(o.names[2], "rb") as f:
        snapshot = kvread.read(f)
    model.forward(snapshot.tokens)
    keys, feature = head.text(snapshot.tokens, model.streams)
    errors = [("keys", llama.relative([(stored(snapshot), keys)]))]
    if head.features:
        errors.append(("features", llama.relative([(snapshot.head_keys.features, feature)])))
    for name, error in errors:
        print(f"{name} {error:.1e}")
    sys.exit(not all(error < o.limit for _, error in errors))


if __name__ == "__main__":
    main()
