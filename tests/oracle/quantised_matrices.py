#!/usr/bin/env python3
"""Records what numbers quantised matrices of model folders are, for tests/unit/model_quantised.c.

    quantised_matrices.py FOLDER [OLD]

By the programs that made the schemes (recorded: transformers 5.24.0, compressed-tensors 0.20.1,
gptqmodel 7.7.0, AutoAWQ 0.2.9, bitsandbytes 0.50.2 on a CPU, torch 2.6.0). OLD is a folder with
compressed-tensors 0.10.2, the last releases of which read weight_g_idx. AutoAWQ's
awq/utils/packing_utils.py is loaded from AWQ_SOURCE, since the rest of it wants a GPU.

Writes FOLDER/NAME.safetensors: the tensors of a matrix m.weight, and "expected" in bf16; the
configuration is in its metadata. Values are random, zero points and codes of all kinds.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import torch
from safetensors.torch import save_file

ROWS, COLS = 40, 80
FP8 = torch.float8_e4m3fn


def fp8(g, rows=ROWS, cols=COLS):
    codes = torch.randint(0, 256, (rows, cols), generator=g, dtype=torch.uint8)
    codes[codes & 127 == 127] -= 1
    return codes.view(FP8)


def scales(g, shape, dtype, at=-6):
    x = torch.randn(shape, generator=g) * torch.exp2(torch.randint(at - 3, at, shape, generator=g))
    return x.to(dtype)


def words(g, shape):
    return torch.randint(-2**31, 2**31, shape, generator=g, dtype=torch.int64).to(torch.int32)


def record(folder, name, config, tensors, expected):
    assert expected.isfinite().all() and expected.shape == (ROWS, COLS), name
    tensors = {"m." + k: v.contiguous() for k, v in tensors.items()}
    tensors["expected"] = expected.to(torch.bfloat16).contiguous()
    save_file(tensors, folder / f"{name}.safetensors",
              {"quantization_config": json.dumps(config)})


def record_fp8(folder, g):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, _dequantize_fp8_weight
    for name, block, dtype in (("fp8-blocks", [8, 16], torch.float32),
                               ("fp8-blocks-bf16", [20, 40], torch.bfloat16),
                               ("fp8-tensor", None, torch.float32)):
        w = fp8(g)
        s = scales(g, [ROWS // block[0], COLS // block[1]] if block else [], dtype)
        x = Fp8Dequantize(None)._dequantize_one(w, s.reshape(1, 1) if not block else s,
                                                torch.bfloat16)
        record(folder, name, {"quant_method": "fp8", "activation_scheme": "dynamic",
                              "weight_block_size": block},
               {"weight": w, "weight_scale_inv": s}, x)
    # blocks that the matrix cuts off: transformers' rule for them, in f32 as the one above
    w, s = fp8(g), scales(g, [3, 3], torch.float32)
    record(folder, "fp8-cut-blocks", {"quant_method": "fp8", "activation_scheme": "dynamic",
                                      "weight_block_size": [16, 32], "fmt": "e4m3"},
           {"weight": w, "weight_scale_inv": s},
           _dequantize_fp8_weight(w, s, [16, 32], torch.float32))


def compressed_config(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": weights}}}


def record_compressed(folder, g):
    from compressed_tensors.compressors import (NaiveQuantizationCompressor,
                                                PackedQuantizationCompressor)
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    F, B, H = torch.float32, torch.bfloat16, torch.float16
    cases = (("float-tensor", dict(num_bits=8, type="float", strategy="tensor"), [1], B),
             ("float-channel", dict(num_bits=8, type="float", strategy="channel"), [ROWS, 1], F),
             ("float-block", dict(num_bits=8, type="float", strategy="block",
                                  block_structure=[16, 32]), [3, 3], B),
             ("int-channel", dict(num_bits=8, type="int", strategy="channel"), [ROWS, 1], B),
             ("int-zeros", dict(num_bits=8, type="int", strategy="channel", symmetric=False),
              [ROWS, 1], H),
             ("pack-channel", dict(num_bits=8, type="int", strategy="channel"), [ROWS, 1], B),
             ("pack-groups", dict(num_bits=4, type="int", strategy="group", group_size=16),
              [ROWS, 5], B),
             ("pack-zeros", dict(num_bits=4, type="int", strategy="group", group_size=40,
                                 symmetric=False), [ROWS, 2], H))
    for name, weights, shape, dtype in cases:
        form = "pack" if name.startswith("pack") else weights["type"]
        packed = form == "pack"
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
        s = scales(g, shape, dtype)
        state = {"weight_scale": s}
        low = -(1 << weights["num_bits"] - 1)
        if weights["type"] == "float":
            state["weight"] = fp8(g)
        else:
            codes = torch.randint(low, -low, (ROWS, COLS), generator=g).to(torch.int8)
            state["weight"] = codes
        if weights.get("symmetric") is False:
            state["weight_zero_point"] = torch.randint(low, -low, shape, generator=g).to(torch.int8)
        if packed:
            from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
            state["weight_packed"] = pack_to_int32(state.pop("weight"), weights["num_bits"])
            state["weight_shape"] = torch.tensor([ROWS, COLS])
            if "weight_zero_point" in state:
                state["weight_zero_point"] = pack_to_int32(
                    state["weight_zero_point"], weights["num_bits"], packed_dim=0)
        one = PackedQuantizationCompressor if packed else NaiveQuantizationCompressor
        x = one.decompress(dict(state), scheme)["weight"]
        record(folder, name, compressed_config(form + ("-quantized"), **weights), state, x)


def record_order(folder, old):
    """Groups in the order of activations, by a release that has them; in a process of its own"""
    sys.path.insert(0, old)
    from compressed_tensors.compressors import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs
    g = torch.Generator().manual_seed(41)
    weights = dict(num_bits=4, type="int", strategy="group", group_size=16, actorder="group")
    args = QuantizationArgs(**weights)
    group = torch.arange(COLS) // 16
    state = {"weight_packed": words(g, [ROWS, COLS // 8]), "weight_shape": torch.tensor(
        [ROWS, COLS]), "weight_scale": scales(g, [ROWS, 5], torch.bfloat16),
        "weight_g_idx": group[torch.randperm(COLS, generator=g)].to(torch.int32)}
    x = PackedQuantizationCompressor().decompress_weight(dict(state), args)
    record(folder, "pack-order", compressed_config("pack-quantized", **weights), state, x)


def record_gptq(folder, g):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
    for name, bits, group, form, order, dtype in (
            ("gptq", 4, 32, "gptq", False, torch.float16),
            ("gptq-order", 4, 16, "gptq", True, torch.float16),
            ("gptq-v2", 4, 16, "gptq_v2", False, torch.bfloat16),
            ("gptq-8", 8, -1, "gptq", False, torch.float16)):
        # GPTQModel wants multiples of 32 to pack, but not to read: the words are made here
        each, groups = 32 // bits, 1 if group == -1 else -(-COLS // group)
        index = torch.arange(COLS) // (COLS if group == -1 else group)
        if order:
            index = index[torch.randperm(COLS, generator=g)]
        state = {"qweight": words(g, [COLS // each, ROWS]),
                 "qzeros": words(g, [groups, ROWS // each]),
                 "scales": scales(g, [groups, ROWS], dtype, -3), "g_idx": index.to(torch.int32)}
        layer = TorchLinear(bits=bits, group_size=group, sym=False, desc_act=order,
                            in_features=COLS, out_features=ROWS, bias=False,
                            pack_dtype=torch.int32, register_buffers=True, dtype=dtype)
        for k, v in state.items():
            assert getattr(layer, k).shape == v.shape, (name, k, getattr(layer, k).shape)
            setattr(layer, k, v.clone())
        if form == "gptq":
            convert_gptq_v1_to_v2_format_module(layer, bits, torch.int32)
        layer.eval()
        x = layer.dequantize_weight().T
        assert x.dtype == dtype
        record(folder, name, {"quant_method": "gptq", "bits": bits, "group_size": group,
                              "checkpoint_format": form, "desc_act": order, "sym": False},
               state, x)


def record_awq(folder, g):
    path = pathlib.Path(os.environ["AWQ_SOURCE"]) / "awq/utils/packing_utils.py"
    spec = importlib.util.spec_from_file_location("packing_utils", path)
    awq = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(awq)
    for name, group in (("awq", 16), ("awq-one-group", -1)):
        size = COLS if group == -1 else group
        state = {"qweight": words(g, [COLS, ROWS // 8]), "qzeros": words(g, [COLS // size,
                                                                            ROWS // 8]),
                 "scales": scales(g, [COLS // size, ROWS], torch.float16, -3)}
        x = awq.dequantize_gemm(state["qweight"], state["qzeros"], state["scales"], 4, size).T
        assert x.dtype == torch.float16
        record(folder, name, {"quant_method": "awq", "bits": 4, "group_size": group,
                              "version": "gemm", "zero_point": True}, state, x)


def record_nf4(folder, g):
    """Blocks go on across rows, as the quantiser, the GPU kernels and the reference in torch have
    them. The CPU kernel of 0.50.2 gives each row the scales of blocks that begin with it, which is
    right where a row is whole blocks: it is asked for rows of one block."""
    from bitsandbytes import functional
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
    for name, kind, dtype, nested, block in (
            ("nf4", "nf4", torch.bfloat16, False, 64), ("fp4", "fp4", torch.float16, False, 32),
            ("nf4-nested", "nf4", torch.bfloat16, True, 64),
            ("nf4-f32", "nf4", torch.float32, True, 128)):
        w = (torch.randn([ROWS, COLS], generator=g) / 30).to(dtype)
        codes, state = functional.quantize_4bit(w, blocksize=block, quant_type=kind,
                                                compress_statistics=nested)
        parts = {"weight." + k: v for k, v in state.as_dict(packed=True).items()}
        parts["weight"] = codes
        absmax = state.absmax
        if nested:
            absmax = functional.dequantize_blockwise(absmax, state.state2) + state.offset
        x = _dequantize_4bit_compute(codes.reshape(-1), absmax, state.code, block, [ROWS, COLS],
                                     dtype)
        assert x.dtype == dtype
        state.shape = torch.Size([ROWS * COLS // block, block])
        assert torch.equal(x, functional.dequantize_4bit(codes, state).reshape(ROWS, COLS))
        record(folder, name, {"quant_method": "bitsandbytes", "load_in_4bit": True,
                              "bnb_4bit_quant_type": kind,
                              "bnb_4bit_use_double_quant": nested}, parts, x)


def main(folder, old=None):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for n, each in enumerate((record_fp8, record_compressed, record_gptq, record_awq, record_nf4)):
        each(folder, torch.Generator().manual_seed(39 + n))
    if old:
        subprocess.run([sys.executable, __file__, "--order", folder, old], check=True)


if sys.argv[1] == "--order":
    record_order(pathlib.Path(sys.argv[2]), sys.argv[3])
else:
    main(*sys.argv[1:])
