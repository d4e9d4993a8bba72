#!/usr/bin/python3
"""mkblocks.py - a model with random weights in blocks of ggml, as a GGUF file and a folder in f32

usage: mkblocks.py FOLDER TYPE FILE.gguf NEW

FOLDER has the configuration, the tokenizer and the norms. Each matrix becomes random blocks of TYPE
(q4_0, q4_1, q5_0, q5_1, q8_0, mxfp4, q4_k, q5_k, q6_k; mixed: of all types in turn) in FILE.gguf,
and the numbers of these in NEW/model.safetensors. The layouts are written here once more, as whole
arrays.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np

import mkgguf

# type's number in GGUF files, numbers and bytes of a block
TYPES = {"q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24),
         "q8_0": (8, 32, 34), "mxfp4": (39, 32, 17), "q4_k": (12, 256, 144),
         "q5_k": (13, 256, 176), "q6_k": (14, 256, 210)}
# where scale and minimum are, and what makes numbers of about 0.1 around 0
SCALES = {"q4_0": (0, .02), "q4_1": (0, .02), "q5_0": (0, .01), "q5_1": (0, .01),
          "q8_0": (0, .0013), "q4_k": (0, .0006), "q5_k": (0, .0003), "q6_k": (208, .00008)}
MINIMA = {"q4_1": (2, -7.5), "q5_1": (2, -15.5), "q4_k": (2, 7.5), "q5_k": (2, 15.5)}
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
F = np.float32


def random_blocks(r, kind, n):
    blocks = r.integers(0, 256, (n, TYPES[kind][2]), dtype=np.uint8)
    if kind == "mxfp4":
        blocks[:, 0] = r.integers(120, 124, n)
        return blocks
    at, unit = SCALES[kind]
    scale = unit * r.uniform(.5, 1.5, (n, 1))
    blocks[:, at:at + 2] = scale.astype(np.float16).view(np.uint8)
    if kind in MINIMA:
        at, times = MINIMA[kind]
        blocks[:, at:at + 2] = (times * scale).astype(np.float16).view(np.uint8)
    return blocks


def half(b, at):
    return b[:, at:at + 2].copy().view(np.float16).astype(F)


def nibbles(q):
    return np.concatenate([q & 15, q >> 4], axis=1)


def bits(b, at):
    return np.unpackbits(b[:, at:at + 4], axis=1, bitorder="little")


def six_bits(b):
    """The scales and minima of K blocks, [n][8] each, from twelve bytes"""
    s = b[:, 4:16]
    low, high, last = s[:, :4], s[:, 4:8], s[:, 8:]
    return (np.concatenate([low & 63, (last & 15) | (low >> 6) << 4], axis=1).astype(F),
            np.concatenate([high & 63, last >> 4 | (high >> 6) << 4], axis=1).astype(F))


def k_numbers(b, codes):
    scales, minima = six_bits(b)
    by, less = half(b, 0) * scales, half(b, 2) * minima
    return (by[:, :, None] * codes.astype(F) - less[:, :, None]).reshape(len(b), 256)


def k_codes(q):
    """[n][128] to [n][8][32]: of each 32 bytes the lower halves, then the upper"""
    q = q.reshape(-1, 4, 1, 32)
    return np.concatenate([q & 15, q >> 4], axis=2).reshape(-1, 8, 32)


def numbers(kind, b):
    if kind == "q8_0":
        return b[:, 2:].view(np.int8).astype(F) * half(b, 0)
    if kind == "mxfp4":
        return E2M1[nibbles(b[:, 1:])] * np.exp2(b[:, :1].astype(F) - 127)
    if kind == "q4_0":
        return (nibbles(b[:, 2:]).astype(F) - 8) * half(b, 0)
    if kind == "q4_1":
        return nibbles(b[:, 4:]).astype(F) * half(b, 0) + half(b, 2)
    if kind == "q5_0":
        return ((nibbles(b[:, 6:]) | bits(b, 2) << 4).astype(F) - 16) * half(b, 0)
    if kind == "q5_1":
        return (nibbles(b[:, 8:]) | bits(b, 4) << 4).astype(F) * half(b, 0) + half(b, 2)
    if kind == "q4_k":
        return k_numbers(b, k_codes(b[:, 16:]))
    if kind == "q5_k":
        fifth = b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1
        return k_numbers(b, k_codes(b[:, 48:]) | fifth << 4)
    low = b[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], axis=2).reshape(-1, 2, 4, 32)
    shift = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = b[:, 128:192].reshape(-1, 2, 1, 32) >> shift & 3
    codes = (low | high << 4).reshape(-1, 16, 16).astype(F) - 32
    scales = half(b, 208) * b[:, 192:208].view(np.int8).astype(F)
    return (scales[:, :, None] * codes).reshape(-1, 256)


def main(folder, kind, file, new):
    folder, new = pathlib.Path(folder), pathlib.Path(new)
    c = json.loads((folder / "config.json").read_text())
    arch = mkgguf.ARCHS[c["model_type"]]
    keys, _ = mkgguf.read_folder(folder)
    r = np.random.default_rng(39)
    stored, experts, header, data, at = [], {}, {}, [], 0
    for i, (name, dtype, x) in enumerate(mkgguf.safetensors(folder)):
        part = name.rsplit(".", 2)[-2]
        if x.ndim == 1 or part == "gate":
            wide = mkgguf.as_f32(x, dtype)
            stored.append(mkgguf.convert(name, dtype, x, arch, c))
        else:
            if ".experts." in name:     # one type for a matrix of all
                i = ("w1", "w2", "w3").index(part) + 5
            own = list(TYPES)[i % len(TYPES)] if kind == "mixed" else kind
            number, block, size = TYPES[own]
            rows, width = x.shape
            blocks = random_blocks(r, own, rows * width // block)
            wide = numbers(own, blocks).reshape(x.shape)
            raw = blocks.reshape(rows, -1)
            if ".experts." in name:
                layer = name.split(".")[2]
                experts.setdefault((f"blk.{layer}.ffn_{mkgguf.EXPERT[part]}_exps.weight", number),
                                   []).append((x.shape, raw.tobytes()))
            elif arch in mkgguf.IN_TURNS and part in ("q_proj", "k_proj"):
                raw = mkgguf.in_turns(raw, c["num_attention_heads" if part == "q_proj" else
                                             "num_key_value_heads"])
            if ".experts." not in name:
                stored.append((mkgguf.name_of(name, arch), x.shape, number,
                               np.ascontiguousarray(raw).tobytes()))
        raw = np.ascontiguousarray(wide, F).tobytes()
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    for (name, number), each in experts.items():
        stored.append((name, (len(each), *each[0][0]), number, b"".join(raw for _, raw in each)))
    mkgguf.write(file, keys, stored)
    new.mkdir()
    for path in folder.glob("*.json"):
        shutil.copy(path, new)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 64)
    (new / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data))


main(*sys.argv[1:])
