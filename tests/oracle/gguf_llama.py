#!/usr/bin/env python3
"""gguf_llama.py - llama.cpp as a judge of GGUF files: logits of tiny random models

usage: gguf_llama.py [CASE ...]

Each case of tests/bin/mkfamily.py becomes a GGUF file (mkgguf.py), with the width that llama.cpp
wants, and runs 48 tokens here and there, with rows in f32. Prints the relative error in the L2
norm, its median over positions and the greatest. llama.cpp looks GELU up in a table of f16, which
is an error of 1e-4 to 1e-3. Needs llama-cpp-python (0.3.36) and NumPy; kv-prefill comes from the
PATH.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bin"))

import mkfamily          # noqa: E402
import mkgguf            # noqa: E402

TOKENS = list(range(3, 51))
# llama.cpp has no biases of these networks, and windows of StarCoder2 only in its folder
CHANGES = {"seed_oss": {"mlp_bias": False}, "starcoder2": {"sliding_window": None},
           "gemma2": {"query_pre_attn_scalar": 12}}
CASES = ("llama", "llama-biases", "llama-linear", "llama-llama3", "llama-yarn", "qwen2", "qwen3",
         "gemma", "gemma2", "gemma3", "phi", "phi3", "granite", "olmo", "olmo2", "olmo3", "smollm3",
         "ministral3", "cohere", "cohere2", "exaone", "exaone4-llama3", "glm", "glm4",
         "glm4-biases", "ernie4_5", "seed_oss", "arcee", "nemotron", "starcoder2", "stablelm",
         "mixtral", "qwen2_moe", "qwen3_moe", "granitemoe")


def make(name, folder):
    """The path of the GGUF file of a case"""
    family, more = mkfamily.CASES[name]
    wide = {"hidden_size": mkfamily.HEADS * mkfamily.WIDTH}
    mkfamily.CASES[name] = (family, {**more, **wide, **CHANGES.get(name, {})})
    tokenizer = ROOT / "examples/demo-model/tokenizer.json"
    mkfamily.write(name, folder / name, tokenizer)
    path = folder / f"{name}.gguf"
    mkgguf.write(path, *mkgguf.read_folder(folder / name))
    return path


def ours(path, folder):
    out = folder / "logits.npy"
    subprocess.run(["kv-prefill", "-q", "-m", path, "--ids", "--dtype", "f32", "--logits", out,
                    "-o", "/dev/null"], input="\n".join(map(str, TOKENS)).encode(), check=True)
    return np.load(out).astype(float)


def theirs(path):
    import llama_cpp
    llama = llama_cpp.Llama(str(path), n_ctx=512, n_batch=64, n_ubatch=64, logits_all=True,
                            type_k=0, type_v=0, verbose=False)
    llama.eval(TOKENS)
    return llama.scores[:len(TOKENS)].astype(float)


def main():
    with tempfile.TemporaryDirectory(prefix="gguf.") as name:
        folder = pathlib.Path(name)
        for case in sys.argv[1:] or CASES:
            path = make(case, folder)
            a, b = ours(path, folder), theirs(path)
            errors = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
            arch = json.loads((folder / case / "config.json").read_text())["model_type"]
            print(f"{case} ({arch}): {np.median(errors):.1e} {errors.max():.1e}", flush=True)


if __name__ == "__main__":
    main()
