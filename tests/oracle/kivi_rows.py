#!/usr/bin/env python3
"""Records what the functions of KIVI's authors make of some rows, for tests/unit/kvfile_kivi.c and
tests/format/check_kivi.py.

    kivi_rows.py NEW_PACK FOLDER

NEW_PACK is quant/new_pack.py of github.com/jy-yuan/KIVI (recorded: commit 876b4d2, torch 2.15.0 on
the CPU); it needs torch and triton. Writes FOLDER/kivi.f16, rows f16 [96][64], and of both 2 and 4
bits FOLDER/kivi2.keys and FOLDER/kivi2.values: the codes as they are packed, i32 [96 * bits /
32][64] of keys and [96][64 * bits / 32] of values, then scales and then least numbers, f16
[96 / 32][64] and [96][64 / 32]. Where a scale is 0 they divide by it, and the codes say nothing."""

import importlib.util
import pathlib
import sys

import numpy as np
import torch

ROWS, WIDTH, GROUP = 96, 64, 32


def rows():
    """Numbers of many magnitudes, by row and by channel; ties; subnormal numbers; outliers; groups
    of equal numbers, and those whose scale is 0 or subnormal. No group has 0 and -0 for its least
    numbers: which of these they take is left open."""
    r = np.random.default_rng(36)
    x = r.standard_t(3, (ROWS, WIDTH)) * np.exp2(r.integers(-6, 7, WIDTH))
    x[32:48] = r.integers(-8, 9, (16, WIDTH)) / 2
    x[48:56] *= np.exp2(-14)
    x[64:96, :8] = r.integers(-40, 40, (32, 8)) * 2.0 ** -24
    x[64:96, 8] = -0.75
    x[64:96, 9] = 30000 * np.sin(np.arange(32))
    x[64:96, 10] = 3e-7
    x[64:96, 11] = np.arange(32) % 2 * 2.0 ** -24 + 1e-6
    x[64:96, 12] = np.arange(32) / 10.3125                  # halves between codes
    x[64:96, 13] = 0
    x[60, 32:] = 0
    x[61, :32] = -1.25
    x[62] = np.arange(WIDTH) % 16
    x[63] = np.linspace(-32750, 32750, WIDTH)
    return x.astype(np.float16)


def main(new_pack, folder):
    spec = importlib.util.spec_from_file_location("new_pack", new_pack)
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    folder, x = pathlib.Path(folder), rows()
    x.tofile(folder / "kivi.f16")
    for bits in (2, 4):
        for name, function in (("keys", theirs.quant_and_pack_kcache),
                               ("values", theirs.quant_and_pack_vcache)):
            parts = function(torch.from_numpy(x)[None, None], GROUP, bits)
            assert [p.dtype for p in parts] == [torch.int32, torch.float16, torch.float16]
            with open(folder / f"kivi{bits}.{name}", "wb") as file:
                for part in parts:
                    file.write(part.numpy().tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
