#!/usr/bin/env python3
"""Records what ggml's reference functions make of some rows, for tests/unit/kvfile_rowtype.c.

    ggml_rows.py LIBRARY FOLDER

LIBRARY has quantize_row_q8_0_ref() and the others, as libggml-base.so of llama.cpp does (recorded:
llama-cpp-python 0.3.36's); it must be compiled without fused multiply-add, which rounds some codes
otherwise. Writes FOLDER/rows.f32, and for each type FOLDER/TYPE.rows, the bytes that ggml stores,
and FOLDER/TYPE.f32, what it reads from these. By ml_dtypes: fp8.codes and fp8.f32, all codes of
e4m3 but NaN and their values, and fp8.numbers and fp8.nearest, numbers and their nearest codes."""

import ctypes
import pathlib
import sys

import ml_dtypes
import numpy as np

WIDTH = 96
TYPES = {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22}


def rows():
    """Numbers of many magnitudes; ties; rows of zeros, of equal numbers, and with outliers."""
    r = np.random.default_rng(36)
    x = [r.standard_t(3, (40, WIDTH)), r.normal(size=(8, WIDTH)) * 1e-4,
         r.integers(-8, 9, (8, WIDTH)) / 2, r.integers(-127, 128, (8, WIDTH)) * 1.0,
         np.zeros((1, WIDTH)), -np.zeros((1, WIDTH)), np.full((1, WIDTH), -0.75),
         np.full((1, WIDTH), 3e-7), np.eye(2, WIDTH) * 60000, -np.eye(2, WIDTH) * 1e-3,
         r.normal(size=(4, WIDTH)) * np.exp2(r.integers(-20, 12, (4, WIDTH)))]
    return np.concatenate(x).astype(np.float32)


def main(library, folder):
    ggml, folder = ctypes.CDLL(library), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    x = rows()
    x.tofile(folder / "rows.f32")
    for name, size in TYPES.items():
        stored = np.zeros(x.size // 32 * size, np.uint8)
        back = np.zeros(x.size, np.float32)
        count = ctypes.c_int64(x.size)
        getattr(ggml, f"quantize_row_{name}_ref")(x.ctypes.data_as(ctypes.c_void_p),
                                                  stored.ctypes.data_as(ctypes.c_void_p), count)
        getattr(ggml, f"dequantize_row_{name}")(stored.ctypes.data_as(ctypes.c_void_p),
                                                back.ctypes.data_as(ctypes.c_void_p), count)
        stored.tofile(folder / f"{name}.rows")
        back.tofile(folder / f"{name}.f32")
    codes = np.array([c for c in range(256) if c & 0x7f != 0x7f], np.uint8)
    codes.tofile(folder / "fp8.codes")
    codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32).tofile(folder / "fp8.f32")
    near = x[np.abs(x) <= 448]
    near.tofile(folder / "fp8.numbers")
    near.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).tofile(folder / "fp8.nearest")


if __name__ == "__main__":
    main(*sys.argv[1:])
