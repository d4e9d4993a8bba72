#!/usr/bin/python3
"""stackexperts.py - the experts of a model folder in other tensors, with the same numbers

usage: stackexperts.py FORM FOLDER

FORM fused: one tensor with gate and up of all experts on top of each other, and one with down, as
transformers 5 has them in memory; stacked: one tensor for each of the three. The folder is changed
in place.
FORM without=TENSOR leaves a tensor out, wide=TENSOR makes one of bf16 f32.
"""

import json
import pathlib
import re
import struct
import sys

EACH = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight$")
GATE, UP, DOWN = ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")


def read(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            first, end = (8 + size + at for at in t["data_offsets"])
            yield name, t["dtype"], t["shape"], raw[first:end]


def write(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors))


def together(form, tensors):
    out, experts = [], {}
    for name, dtype, shape, data in tensors:
        match = EACH.match(name)
        if not match:
            out.append((name, dtype, shape, data))
            continue
        prefix, number, part = match.groups()
        experts.setdefault(prefix, {}).setdefault(part, {})[int(number)] = (dtype, shape, data)
    for prefix, parts in experts.items():
        gate, up, down = (next(p for p in names if p in parts) for names in (GATE, UP, DOWN))
        many = len(parts[gate])
        dtype, (rows, columns), _ = parts[gate][0]
        for part in (down,) if form == "fused" else (gate, up, down):
            out.append((f"{prefix}.{part}", dtype, [many, *parts[part][0][1]],
                        b"".join(parts[part][e][2] for e in range(many))))
        if form == "fused":
            out.append((f"{prefix}.gate_up_proj", dtype, [many, 2 * rows, columns],
                        b"".join(parts[p][e][2] for e in range(many) for p in (gate, up))))
    return out


def widened(name, dtype, shape, data):
    bits = struct.unpack(f"<{len(data) // 2}H", data)
    return name, "F32", shape, struct.pack(f"<{len(bits)}I", *(b << 16 for b in bits))


def main(form, folder):
    path = pathlib.Path(folder) / "model.safetensors"
    tensors, (what, _, name) = list(read(path)), form.partition("=")
    if what == "without":
        tensors = [t for t in tensors if t[0] != name]
    elif what == "wide":
        tensors = [widened(*t) if t[0] == name else t for t in tensors]
    else:
        tensors = together(form, tensors)
    write(path, tensors)


if __name__ == "__main__":
    main(*sys.argv[1:])
