#!/usr/bin/env python3
"""Compares the scores that kv-observe has made with those that train/ makes of the same prompt.

usage: lookahead_trained.py MODEL ADAPTER IDS SUMS.npy

IDS: the prompt's token ids, with white space between them. SUMS.npy: [L][H][T], the attention that
all learned rows together pay. Prints "scores error", relative to the greatest score of the layer.
"""

import os
import pathlib
import sys

import numpy as np
import torch

TRAIN = pathlib.Path(__file__).resolve().parents[2] / "train"
sys.path.insert(0, os.fspath(TRAIN))
from lookahead_files import adapter_settings, fill_adapter                  # noqa: E402
from lookahead_model import Adapter, FrozenModel                            # noqa: E402
from lookahead_scores import Prompts                                        # noqa: E402


def main(folder, adapter_folder, ids, sums):
    model = FrozenModel.load(folder)
    adapter = Adapter(model, **adapter_settings(adapter_folder, folder))
    fill_adapter(adapter, adapter_folder)
    ids = [int(word) for word in pathlib.Path(ids).read_text().split()]
    prompts = Prompts(model, ids[:-20], [ids[-20:]])
    prompts.read(whole=True)
    with torch.no_grad():
        want = prompts.guess(adapter)[:, 0].double().numpy()
    got = np.load(sums) / adapter.tokens
    error = np.abs(got - want).max((1, 2)) / want.max((1, 2))
    print(f"scores {error.max():.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
