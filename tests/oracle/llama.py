#!/usr/bin/env python3
"""The Llama forward pass in double precision, written from the formulas, against a snapshot.

    llama.py MODEL SNAPSHOT [SNAPSHOT ...]

Runs the snapshot's tokens through the model folder with plain numpy (a T x T attention matrix,
float64, weights as stored) and prints the relative error in the L2 norm of keys, values (all
layers; only rows that the snapshot holds), observation queries, logits and attention received, one
line each: `x.kv keys 1.2e-07`. Snapshots of the same tokens share a run. Nothing here is shared
with the C code. With evicted rows the comparison holds for rows that were computed before the
eviction.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "format"))
import kvread  # noqa: E402


def load_tensors(folder):
    """Name -> float64 array, from all safetensors files of a folder."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        raw = path.read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        for name, entry in json.loads(raw[8 : 8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + length + x for x in entry["data_offsets"])
            tensors[name] = to_float64(raw[begin:end], entry["dtype"]).reshape(entry["shape"])
    return tensors


def to_float64(data, dtype):
    if dtype == "BF16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float64)


def frequencies(config, width):
    """Rotary frequencies; llama3 scaling stretches the slow ones (wavelengths above what the model
    was trained on)."""
    freq = config["rope_theta"] ** (-np.arange(0, width, 2) / width)
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type", "default") == "default":
        return freq
    assert scaling["rope_type"] == "llama3"
    factor, old = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    out = []
    for f in freq:
        wavelength = 2 * math.pi / f
        if wavelength < old / high:
            out.append(f)
        elif wavelength > old / low:
            out.append(f / factor)
        else:
            smooth = (old / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return np.array(out)


class Llama:
    def __init__(self, folder):
        self.config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.w = load_tensors(folder)
        c = self.config
        self.H = c["num_attention_heads"]
        self.G = c.get("num_key_value_heads", self.H)
        self.E = c.get("head_dim") or c["hidden_size"] // self.H

    def norm(self, x, name):
        rms = np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return x / rms * self.w[name]

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def turn(self, x, angle):
        """Rotary embedding of x[heads][T][E], pairs (i, i + E/2)."""
        half = self.E // 2
        a, b = x[..., :half], x[..., half:]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, ids):
        """keys, values: [layer][G][T][E]; queries: [layer][H][T][E]; logits of the last token.

        self.mass: [layer][H][T], what each row received from all queries together; self.streams:
        [layer][T][D], the residual stream in front of each."""
        self.mass, self.streams = [], []
        T = len(ids)
        x = self.w["model.embed_tokens.weight"][ids]
        angle = np.outer(np.arange(T), frequencies(self.config, self.E))
        hidden = np.triu(np.full((T, T), -np.inf), 1)
        keys, values, queries = [], [], []
        for layer in range(self.config["num_hidden_layers"]):
            self.streams.append(x)
            p = f"model.layers.{layer}."
            y = self.norm(x, p + "input_layernorm.weight")

            def heads(name, n):
                rows = self.linear(y, p + "self_attn." + name)
                return rows.reshape(T, n, self.E).transpose(1, 0, 2)

            q = self.turn(heads("q_proj", self.H), angle)
            k = self.turn(heads("k_proj", self.G), angle)
            v = heads("v_proj", self.G)
            out = np.empty_like(q)
            self.mass.append(np.empty((self.H, T)))
            for h in range(self.H):
                g = h // (self.H // self.G)
                s = q[h] @ k[g].T / math.sqrt(self.E) + hidden
                s = np.exp(s - s.max(-1, keepdims=True))
                s /= s.sum(-1, keepdims=True)
                self.mass[-1][h] = s.sum(0)
                out[h] = s @ v[g]
            x = x + self.linear(out.transpose(1, 0, 2).reshape(T, -1), p + "self_attn.o_proj")
            y = self.norm(x, p + "post_attention_layernorm.weight")
            gate = self.linear(y, p + "mlp.gate_proj")
            up = self.linear(y, p + "mlp.up_proj")
            x = x + self.linear(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj")
            keys.append(k)
            values.append(v)
            queries.append(q)
        last = self.norm(x[-1], "model.norm.weight")
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return keys, values, queries, last @ head.T


def relative(pairs):
    """L2 norm of all differences over the L2 norm of all expected values."""
    difference = sum(float(((np.asarray(a, np.float64) - b) ** 2).sum()) for a, b in pairs)
    return math.sqrt(difference / sum(float((np.asarray(b) ** 2).sum()) for _, b in pairs))


def compare(path, snapshot, llama, keys, values, queries, logits):
    pairs = {"keys": [], "values": [], "queries": [], "mass": []}
    for l, layer in enumerate(snapshot.layers):
        for g, positions in enumerate(layer.positions):
            rows = list(positions)
            pairs["keys"].append((snapshot.array(l, "keys", g), keys[l][g][rows]))
            pairs["values"].append((snapshot.array(l, "values", g), values[l][g][rows]))
        lists = [m for heads in layer.mass or [] for m in heads]
        for h, received in enumerate(lists):
            rows = list(layer.positions[h * len(layer.positions) // len(lists)])
            pairs["mass"].append((received, llama.mass[l][h][rows]))
        if layer.queries:
            rows = list(layer.queries.positions)
            q = kvread.widen(layer.queries.data, snapshot.head["dtype"])
            pairs["queries"].append((q.reshape(queries[l][:, rows].shape), queries[l][:, rows]))
    if snapshot.logits is not None:
        pairs["logits"] = [(np.array(snapshot.logits), logits)]
    for name, of in pairs.items():
        if of:
            print(f"{path} {name} {relative(of):.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("snapshots", nargs="+", metavar="snapshot")
    options = parser.parse_args()
    llama, tokens = Llama(options.model), None
    for path in options.snapshots:
        with open(path, "rb") as file:
            snapshot = kvread.read(file)
        if snapshot.tokens != tokens:
            tokens = snapshot.tokens
            computed = llama.forward(np.array(tokens))
        compare(path, snapshot, llama, *computed)


if __name__ == "__main__":
    main()
