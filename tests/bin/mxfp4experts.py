#!/usr/bin/python3
"""mxfp4experts.py - the experts of a model of gpt-oss in MXFP4, and the same numbers as elements

usage: mxfp4experts.py FOLDER BLOCKS ELEMENTS

FOLDER is of mkfamily.py. BLOCKS becomes a folder whose experts have random codes and scales, as
published files have them (NAME_blocks [M][rows][in / 32][16], NAME_scales); ELEMENTS one with the
numbers that these stand for, as transformers reads them: f32 [M][in][rows].
usage: mxfp4experts.py scale=CODE FOLDER            gives the last scale of FOLDER this code
       mxfp4experts.py without=TENSOR FOLDER        leaves a tensor out
       mxfp4experts.py shape=TENSOR FOLDER          leaves out the last row of each expert
"""

import json
import pathlib
import random
import shutil
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stackexperts import read, write  # noqa: E402

# OCP Microscaling Formats, table 5: FP4 E2M1, the sign in the highest bit
NUMBERS = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def drawn(rng, M, rows, width):
    """(codes u8 [M][rows][width / 32][16], scales u8, elements f32 [M][rows][width])"""
    n = M * rows * width // 32
    codes = np.frombuffer(rng.randbytes(16 * n), np.uint8).reshape(M, rows, -1, 16)
    scales = np.array([127 - rng.randrange(3, 7) for _ in range(n)], np.uint8)
    scales = scales.reshape(M, rows, -1)
    pairs = np.stack([codes & 15, codes >> 4], axis=-1).reshape(M, rows, -1, 32)
    x = NUMBERS[pairs] * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return codes, scales, x.reshape(M, rows, width)


def main(folder, blocks, elements):
    rng, forms = random.Random("mxfp4"), {blocks: [], elements: []}
    for name, dtype, shape, data in read(pathlib.Path(folder) / "model.safetensors"):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            for form in forms.values():
                form.append((name, dtype, shape, data))
            continue
        M, width, rows = shape
        codes, scales, x = drawn(rng, M, rows, width)
        forms[blocks] += [(name + "_blocks", "U8", codes.shape, codes.tobytes()),
                          (name + "_scales", "U8", scales.shape, scales.tobytes())]
        x = np.ascontiguousarray(x.transpose(0, 2, 1)).astype("<f4")
        forms[elements].append((name, "F32", x.shape, x.tobytes()))
    for to, tensors in forms.items():
        shutil.copytree(folder, to)
        write(pathlib.Path(to) / "model.safetensors", tensors)
    config = json.loads((pathlib.Path(blocks) / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (pathlib.Path(blocks) / "config.json").write_text(json.dumps(config))


def edit(what, folder):
    path, out = pathlib.Path(folder) / "model.safetensors", []
    kind, _, of = what.partition("=")
    for name, dtype, shape, data in read(path):
        if kind == "without" and name == of:
            continue
        if kind == "scale" and name.endswith("down_proj_scales"):
            data = data[:-1] + bytes([int(of)])
        if kind == "shape" and name == of:
            x = np.frombuffer(data, np.uint8).reshape(shape)[:, :-1]
            shape, data = x.shape, x.tobytes()
        out.append((name, dtype, shape, data))
    write(path, out)


if __name__ == "__main__":
    (edit if len(sys.argv) == 3 else main)(*sys.argv[1:])
