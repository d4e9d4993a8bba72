#!/usr/bin/env python3
"""Records what numbers blocks of ggml's types are, for tests/unit/ops_blocks.c.

    ggml_blocks.py FOLDER

By gguf.quants of PyPI's gguf (recorded: 0.19.0), llama.cpp's own reading of its files. Writes
FOLDER/TYPE.blocks, random bytes with finite scales, and FOLDER/TYPE.f32, their numbers."""

import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

BLOCKS = 8
# where halves are: scales and minima
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "MXFP4": [],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.default_rng(39)
    for name, halves in HALVES.items():
        kind = GGMLQuantizationType[name]
        raw = r.integers(0, 256, (BLOCKS, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        for at in halves:
            scale = r.normal(size=(BLOCKS, 1)) * np.exp2(r.integers(-20, 3, (BLOCKS, 1)))
            raw[:, at:at + 2] = scale.astype(np.float16).view(np.uint8)
        if not halves:
            raw[:, 0] = r.integers(0, 250, BLOCKS)
        raw.tofile(folder / f"{name.lower()}.blocks")
        numbers = quants.dequantize(raw.reshape(1, -1), kind).astype(np.float32)
        assert np.isfinite(numbers).all()
        numbers.tofile(folder / f"{name.lower()}.f32")


main(sys.argv[1])
