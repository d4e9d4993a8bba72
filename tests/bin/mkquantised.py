#!/usr/bin/python3
"""mkquantised.py - a model folder with quantised matrices, and one with their numbers in bf16

usage: mkquantised.py FOLDER SCHEME NEW PLAIN     SCHEME: a key of SCHEMES below
       mkquantised.py --check FILE ...            files of tests/oracle/quantised_matrices.py
       mkquantised.py --change FOLDER PROGRAM     see change()
       mkquantised.py --list

FOLDER has the configuration, the tokenizer and what is not quantised: all but the matrices of
layers (one down_proj and routers stay plain), and lm_head with GPTQ. These become random codes and
scales in NEW, and the numbers of the same codes in PLAIN. The rules are written here once more, as
whole arrays.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np

import mkgguf
from mkmodel import convert, write_tensors

F = np.float32
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
                -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
                0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
                0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0], F)
FP4 = np.array([0, .0625, 8, 12, 4, 6, 2, 3], F) / F(12)
FP4 = np.concatenate([FP4, F(0) - FP4])
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]                # AWQ: outputs of the nibbles of a word
WIDTHS = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F8_E4M3": "u1", "U8": "u1", "I8": "i1",
          "I32": "<u4", "I64": "<i8"}


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "quantization_status": "compressed", "config_groups": {"group_0": {
                "targets": ["Linear"], "weights": weights, "input_activations": None}}}


def fp8(block):
    return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block}


def gptq(bits, group, form="gptq", **more):
    return dict({"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True,
                 "checkpoint_format": form, "desc_act": False}, **more)


def nf4(kind, nested):
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
            "bnb_4bit_quant_type": kind, "bnb_4bit_use_double_quant": nested,
            "bnb_4bit_compute_dtype": "bfloat16"}


SCHEMES = {
    "fp8-blocks": fp8([128, 128]), "fp8-tensor": fp8(None),
    "float-channel": compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
    "int-channel": compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
    "pack": compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32),
    "pack-zeros": compressed("pack-quantized", num_bits=4, type="int", strategy="group",
                             group_size=16, symmetric=False),
    "gptq": gptq(4, 64), "gptq-order": gptq(4, 32, desc_act=True, lm_head=True),
    "gptq-v2": gptq(4, -1, "gptq_v2"), "gptq-8": gptq(8, 32),
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
            "version": "gemm", "modules_to_not_convert": None},
    "nf4": nf4("nf4", False), "nf4-nested": nf4("nf4", True), "fp4": nf4("fp4", False),
}


# ---- numbers of the tensors of a matrix ----

def as_f32(t):
    kind, x = t
    return (x.astype(np.uint32) << 16).view(F) if kind == "BF16" else x.astype(F)


def rounded(x, kind):
    """f32, rounded to a type, and then to bf16, as u16"""
    return convert(x.astype(np.float16).astype(F) if kind == "F16" else x.astype(F), "bf16")


def e4m3(codes):
    e, m = (codes >> 3 & 15).astype(int), (codes & 7).astype(F)
    x = np.where(e == 0, m / 512, (1 + m / 8) * np.exp2(e - 7.0)).astype(F)
    return np.where(codes & 128, -x, x)


def unpack(words, bits, axis):
    """Integers of each word, lowest first, along an axis"""
    shift = np.arange(0, 32, bits, dtype=np.uint32)
    parts = np.expand_dims(words, -1) >> shift & np.uint32((1 << bits) - 1)
    return parts.reshape(words.shape[0], -1) if axis == 1 else \
        parts.transpose(0, 2, 1).reshape(-1, words.shape[1])


def spread(grid, rows, cols, block):
    r, c = (np.arange(n) // b if b else np.zeros(n, int) for n, b in zip((rows, cols), block))
    return grid[r[:, None], c[None, :]]


def grid_numbers(t, config, rows, cols):
    if config["quant_method"] == "fp8":
        block = config["weight_block_size"] or (0, 0)
        s = as_f32(t["weight_scale_inv"]).reshape(-1, 1 if block == (0, 0) else
                                                  -(-cols // block[1]))
        return convert(e4m3(t["weight"][1]) * spread(s, rows, cols, block), "bf16")
    w, kind = config["config_groups"]["group_0"]["weights"], t["weight_scale"][0]
    block = {"tensor": (0, 0), "channel": (1, 0), "group": (1, w.get("group_size")),
             "block": w.get("block_structure")}[w["strategy"]]
    s = as_f32(t["weight_scale"])
    s = s.reshape(len(s), -1)
    zeros = np.zeros(s.shape, F)
    half = 1 << w["num_bits"] - 1
    if "weight_packed" in t:
        codes = unpack(t["weight_packed"][1], w["num_bits"], 1)[:, :cols].astype(F) - half
    else:
        codes = e4m3(t["weight"][1]) if w["type"] == "float" else t["weight"][1].astype(F)
    if "weight_zero_point" in t:
        kind_of_zero, zeros = t["weight_zero_point"]
        zeros = zeros.astype(F) if kind_of_zero == "I8" else \
            unpack(zeros, w["num_bits"], 0)[:rows].astype(F) - half
    if "weight_g_idx" in t:
        s, zeros = s[:, t["weight_g_idx"][1]], zeros[:, t["weight_g_idx"][1]]
        return rounded((codes - zeros) * s, kind)
    return rounded((codes - spread(zeros, rows, cols, block)) * spread(s, rows, cols, block), kind)


def gptq_numbers(t, config, rows, cols):
    bits = config["bits"]
    ones = {4: 0x11111111, 8: 0x01010101}[bits] if config["checkpoint_format"] == "gptq" else 0
    zeros = unpack(t["qzeros"][1] + np.uint32(ones), bits, 1)[:, :rows].astype(F)
    codes = unpack(t["qweight"][1], bits, 0)[:cols].astype(F)
    g = t["g_idx"][1]
    return rounded((as_f32(t["scales"])[g] * (codes - zeros[g])).T, t["scales"][0])


def awq_numbers(t, config, rows, cols):
    def outputs(words):
        x = unpack(words, 4, 1).reshape(len(words), -1, 8)
        out = np.empty_like(x)
        out[:, :, ORDER] = x
        return out.reshape(len(words), -1).astype(F)
    s = as_f32(t["scales"])
    each = cols // len(s)
    codes, zeros = outputs(t["qweight"][1]), outputs(t["qzeros"][1])
    return rounded(((codes - zeros.repeat(each, 0)) * s.repeat(each, 0)).T, t["scales"][0])


def nf4_numbers(t, config, rows, cols):
    name, = (k for k in t if k.startswith("weight.quant_state."))
    state = json.loads(t[name][1].tobytes())
    absmax = t["weight.absmax"][1]
    if "weight.nested_absmax" in t:
        by = t["weight.nested_absmax"][1].repeat(state["nested_blocksize"])[:len(absmax)]
        absmax = t["weight.nested_quant_map"][1][absmax] * by + F(state["nested_offset"])
    codes = t["weight"][1].reshape(-1)
    codes = np.stack([codes >> 4, codes & 15], -1).reshape(-1)[:rows * cols]
    table = NF4 if state["quant_type"] == "nf4" else FP4
    x = table[codes] * absmax.repeat(state["blocksize"])[:rows * cols]
    return rounded(x, "F16" if state["dtype"] == "float16" else "F32").reshape(rows, cols)


NUMBERS = {"fp8": grid_numbers, "compressed-tensors": grid_numbers, "gptq": gptq_numbers,
           "awq": awq_numbers, "bitsandbytes": nf4_numbers}


# ---- random tensors ----

def scales(r, shape, unit, kind):
    x = (unit * r.uniform(.5, 1.5, shape)).astype(F)
    return kind, convert(x, {"BF16": "bf16", "F16": "f16", "F32": "f32"}[kind])


def words(r, *shape):
    return "I32", r.integers(0, 1 << 32, shape, dtype=np.uint32)


def like_zero(r, bits, less, *shape):
    """Words of zero points around the middle of the codes"""
    half = (1 << bits - 1) - less
    near = r.integers(half - 2, half + 3, (*shape, 32 // bits)).astype(np.uint32)
    return "I32", (near << np.arange(0, 32, bits, dtype=np.uint32)).sum(-1).astype(np.uint32)


def random_fp8(r, rows, cols):
    x = r.integers(0, 256, (rows, cols), dtype=np.uint8)
    x[x & 0x40 != 0] &= 0xbf                # below 2
    return "F8_E4M3", x


def random_grid(r, config, rows, cols):
    if config["quant_method"] == "fp8":
        block = config["weight_block_size"]
        shape = [-(-n // b) for n, b in zip((rows, cols), block)] if block else []
        return {"weight": random_fp8(r, rows, cols),
                "weight_scale_inv": scales(r, shape, .1, "F32")}
    w = config["config_groups"]["group_0"]["weights"]
    groups = cols // w["group_size"] if w["strategy"] == "group" else 1
    if w["type"] == "float":
        return {"weight": random_fp8(r, rows, cols),
                "weight_scale": scales(r, [rows, 1], .1, "BF16")}
    t = {"weight_scale": scales(r, [rows, groups], .001 if w["num_bits"] == 8 else .02, "BF16")}
    if config["format"] == "int-quantized":
        return dict(t, weight=("I8", r.integers(-128, 128, (rows, cols), dtype=np.int8)))
    t["weight_packed"] = words(r, rows, cols // 8)
    t["weight_shape"] = "I64", np.array([rows, cols], "<i8")
    if w.get("symmetric") is False:
        t["weight_zero_point"] = like_zero(r, 4, 0, rows // 8, groups)[0], \
            like_zero(r, 4, 0, groups, rows // 8)[1].T.copy()
    return t


def random_gptq(r, config, rows, cols):
    bits, size = config["bits"], config["group_size"]
    size = cols if size == -1 else size
    g = np.arange(cols) // size
    groups = g[-1] + 1
    if config["desc_act"]:
        r.shuffle(g)
    less = config["checkpoint_format"] == "gptq"
    return {"qweight": words(r, cols * bits // 32, rows),
            "qzeros": like_zero(r, bits, less, groups, rows * bits // 32),
            "scales": scales(r, [groups, rows], .02 if bits == 4 else .001, "F16"),
            "g_idx": ("I32", g.astype(np.uint32))}


def random_awq(r, config, rows, cols):
    groups = cols // config["group_size"]
    return {"qweight": words(r, cols, rows // 8), "qzeros": like_zero(r, 4, 0, groups, rows // 8),
            "scales": scales(r, [groups, rows], .02, "F16")}


def random_nf4(r, config, rows, cols):
    kind, nested = config["bnb_4bit_quant_type"], config["bnb_4bit_use_double_quant"]
    blocks = -(-rows * cols // 64)
    state = {"quant_type": kind, "blocksize": 64, "dtype": "bfloat16", "shape": [rows, cols]}
    t = {"weight": ("U8", r.integers(0, 256, (rows * cols // 2, 1), dtype=np.uint8)),
         "weight.quant_map": ("F32", NF4 if kind == "nf4" else FP4),
         "weight.absmax": scales(r, [blocks], .1, "F32")}
    if nested:
        state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=.1)
        t["weight.absmax"] = "U8", r.integers(0, 256, blocks, dtype=np.uint8)
        t["weight.nested_absmax"] = scales(r, [-(-blocks // 256)], .05, "F32")
        t["weight.nested_quant_map"] = "F32", np.linspace(-1, 1, 256).astype(F)
    t["weight.quant_state.bitsandbytes__" + kind] = "U8", np.frombuffer(
        json.dumps(state).encode(), np.uint8)
    return t


RANDOM = {"fp8": random_grid, "compressed-tensors": random_grid, "gptq": random_gptq,
          "awq": random_awq, "bitsandbytes": random_nf4}


# ---- files ----

def read(path):
    """The metadata of a file, and its tensors: name to type, array"""
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    header, t = json.loads(raw[8:8 + size]), {}
    metadata = header.pop("__metadata__", {})
    for name, entry in header.items():
        first, end = (8 + size + at for at in entry["data_offsets"])
        x = np.frombuffer(raw[first:end], WIDTHS[entry["dtype"]]).reshape(entry["shape"])
        t[name] = entry["dtype"], x.copy()
    return metadata, t


def write(folder, tensors):
    """Wide types first, as the library of safetensors has them: then all are aligned"""
    tensors = sorted(tensors, key=lambda t: -t[2].dtype.itemsize)
    write_tensors(folder / "model.safetensors", [(n, k, np.ascontiguousarray(x))
                                                 for n, k, x in tensors])


def change(folder, program):
    """Runs Python over the tensors t (name to type, array), of which L is layer 0, and the
    configuration q."""
    folder = pathlib.Path(folder)
    _, t = read(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    exec(program, {"t": t, "q": config.get("quantization_config"), "np": np, "gptq": gptq,
                   "L": "model.layers.0.self_attn.", "RANDOM": random_gptq,
                   "NUMBERS": gptq_numbers, "unpack": unpack})
    write(folder, [(name, *x) for name, x in t.items()])
    (folder / "config.json").write_text(json.dumps(config))


def make(folder, scheme, new, plain):
    folder, new, plain = map(pathlib.Path, (folder, new, plain))
    config = SCHEMES[scheme]
    method = config["quant_method"]
    r = np.random.default_rng(list(SCHEMES).index(scheme))
    stored, numbers = [], []
    for name, kind, x in mkgguf.safetensors(folder):
        numbers.append((name, kind, x))
        layer = ".layers." in name and x.ndim == 2 and \
            not name.endswith((".0.mlp.down_proj.weight", ".mlp.gate.weight"))
        if not layer and not (name == "lm_head.weight" and config.get("lm_head")):
            stored.append((name, kind, x))
            continue
        rows, cols = x.shape
        t = RANDOM[method](r, config, rows, cols)
        numbers[-1] = name, "BF16", NUMBERS[method](t, config, rows, cols)
        stored += [(name[:-len("weight")] + k, *v) for k, v in t.items()]
    for to, tensors in ((new, stored), (plain, numbers)):
        to.mkdir()
        for path in folder.glob("*.json"):
            shutil.copy(path, to)
        write(to, tensors)
    path = new / "config.json"
    path.write_text(json.dumps(dict(json.loads(path.read_text()), quantization_config=config)))


def check(path):
    metadata, t = read(path)
    config = json.loads(metadata["quantization_config"])
    t = {name.removeprefix("m."): x for name, x in t.items()}
    _, want = t.pop("expected")
    got = NUMBERS[config["quant_method"]](t, config, *want.shape)
    if not np.array_equal(got, want):
        sys.exit(f"{path}: {np.count_nonzero(got != want)} numbers differ")


if sys.argv[1] == "--list":
    print(*SCHEMES, sep="\n")
elif sys.argv[1] == "--change":
    change(*sys.argv[2:])
elif sys.argv[1] == "--check":
    for file in sys.argv[2:]:
        check(file)
else:
    make(*sys.argv[1:])
