#!/usr/bin/env python3
"""gguf_llama.py - llama.cpp as a judge of GGUF files: logits of tiny random models

usage: gguf_llama.py [CASE ...]

Each case of tests/bin/mkfamily.py becomes a GGUF file (mkgguf.py), with the width that llama.cpp
wants, and runs 48 tokens here and there, with rows in f32. CASE:old is written with --old,
CASE:elements has the numbers of MXFP4 as elements. Prints the relative error in the L2 norm, its
median over positions and the greatest, and how many greedy tokens that follow are the same, up to
the first that is not. llama.cpp looks GELU up in a table of f16, which is an error of 1e-4 to 1e-3,
and rounds activations to 8 bits before it multiplies them with blocks. Needs llama-cpp-python
(0.3.36) and NumPy; kv-prefill comes from the PATH.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bin"))

import family_cases      # noqa: E402
import mkfamily          # noqa: E402
import mkgguf            # noqa: E402
import mxfp4experts      # noqa: E402

TOKENS, GREEDY = list(range(3, 51)), 64
LAYERS, WIDTH, KV_HEADS = mkfamily.LAYERS, mkfamily.WIDTH, mkfamily.KV_HEADS
# llama.cpp has no biases of these networks, and windows of StarCoder2 only in its folder; of
# gpt-oss one limit, and bounds of yarn rounded, which these are without (all is between them); one
# epsilon for all norms of DeepSeek, layers that say whether queries have a narrow vector, and in
# each group the sum of its two best scores; ERNIE's experts up to the last layer, and as many KV
# heads as query heads of dots.llm1
OSS = {"swiglu_limit": 7.0, "layer_types": ["sliding_attention", "full_attention"] * 2,
       "rope_theta": 5.0, "rope_scaling": dict(
           family_cases.YARN, original_max_position_embeddings=200, truncate=False)}
EPS = {"rms_norm_eps": 1e-6}
LITE = dict(EPS, num_hidden_layers=26, first_k_dense_replace=26)
CHANGES = {"seed_oss": {"mlp_bias": False}, "starcoder2": {"sliding_window": None},
           "gemma2": {"query_pre_attn_scalar": 12}, "gpt_oss": OSS,
           "gpt_oss-blocks": dict(OSS, hidden_size=6 * 32),
           "deepseek_v2": EPS, "deepseek_v3": EPS, "deepseek_v3-experts": EPS,
           "deepseek_v2-greedy": EPS, "deepseek_v2-64": EPS, "deepseek_v2-lite": LITE,
           "deepseek_v2-experts": dict(EPS, n_group=1, topk_group=1),
           "dots1": {"num_key_value_heads": mkfamily.HEADS},
           "cohere-normed": {"num_hidden_layers": 64},  # has norms then
           "ernie4_5_moe": {"moe_layer_end_index": mkfamily.LAYERS}}
OLD = ("deepseek_v2", "deepseek_v3", "deepseek_v2-lite", "deepseek_v2-experts")
CASES = ("llama", "llama-biases", "llama-linear", "llama-llama3", "llama-yarn", "qwen2", "qwen3",
         "gemma", "gemma2", "gemma3", "phi", "phi3", "granite", "olmo", "olmo2", "olmo3", "smollm3",
         "ministral3", "cohere", "cohere2", "exaone", "exaone4-llama3", "glm", "glm4",
         "glm4-biases", "ernie4_5", "seed_oss", "arcee", "nemotron", "starcoder2", "stablelm",
         "mixtral", "qwen2_moe", "qwen3_moe", "granitemoe", "granitemoeshared", "gpt_oss",
         "gpt_oss-blocks", "gpt_oss-blocks:elements", "deepseek_v2", "deepseek_v2-64",
         "deepseek_v2-lite",
         "deepseek_v2-greedy", "deepseek_v2-experts", "deepseek_v3", "deepseek_v3-experts",
         "glm4_moe", "glm4_moe-normed", "dots1", "ernie4_5_moe", "cohere-normed",
         *(f"{name}:old" for name in OLD))


def make(name, folder, form):
    """The path of the GGUF file of a case"""
    family, more = mkfamily.CASES[name]
    wide = {"hidden_size": mkfamily.HEADS * mkfamily.WIDTH}
    own = {**more, **wide, **CHANGES.get(name, {})}
    mkfamily.CASES[name] = (family, own)
    mkfamily.LAYERS = own.get("num_hidden_layers", LAYERS)
    mkfamily.KV_HEADS = own.get("num_key_value_heads", KV_HEADS)
    mkfamily.WIDTH = 32 if name == "gpt_oss-blocks" else WIDTH
    tokenizer = ROOT / "examples/demo-model/tokenizer.json"
    made = folder / name
    mkfamily.write(name, made, tokenizer)
    if name == "gpt_oss-blocks":
        for part in ("blocks", "elements"):
            shutil.rmtree(folder / part, ignore_errors=True)
        mxfp4experts.main(folder / name, folder / "blocks", folder / "elements")
        made = folder / (form or "blocks")
    path = folder / f"{name}-{form}.gguf"
    mkgguf.write(path, *mkgguf.read_folder(made, old=form == "old"))
    return path


def ours(path, folder):
    """(logits of TOKENS, the tokens that follow)"""
    out, snapshot = folder / "logits.npy", folder / "snapshot.kv"
    subprocess.run(["kv-prefill", "-q", "-m", path, "--ids", "--dtype", "f32", "--logits", out,
                    "-o", snapshot], input="\n".join(map(str, TOKENS)).encode(), check=True)
    said = subprocess.run(["kv-decode", "-q", "-m", path, "--ids", "--ignore-eos", "-n",
                           str(GREEDY), snapshot], stdout=subprocess.PIPE, check=True).stdout
    return np.load(out).astype(float), [int(word) for word in said.split()]


def theirs(path):
    """The same of llama.cpp"""
    import llama_cpp
    llama = llama_cpp.Llama(str(path), n_ctx=512, n_batch=64, n_ubatch=64, logits_all=True,
                            type_k=0, type_v=0, verbose=False)
    llama.eval(TOKENS)
    tokens = []
    while len(tokens) < GREEDY:
        tokens.append(int(llama.scores[llama.n_tokens - 1].argmax()))
        llama.eval(tokens[-1:])
    return llama.scores[:len(TOKENS)].astype(float), tokens


def main():
    with tempfile.TemporaryDirectory(prefix="gguf.") as temporary:
        folder = pathlib.Path(temporary)
        for case in sys.argv[1:] or CASES:
            name, _, form = case.partition(":")
            path = make(name, folder, form)
            (a, text), (b, other) = ours(path, folder), theirs(path)
            same = next((i for i in range(GREEDY) if text[i] != other[i]), GREEDY)
            errors = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
            arch = json.loads((folder / name / "config.json").read_text())["model_type"]
            print(f"{case} ({arch}): {np.median(errors):.1e} {errors.max():.1e}, "
                  f"{same} of {GREEDY} tokens", flush=True)


if __name__ == "__main__":
    main()
