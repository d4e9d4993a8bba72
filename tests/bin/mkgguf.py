#!/usr/bin/python3
"""mkgguf.py - write a model folder as a GGUF file of llama.cpp, as its converter does

usage: mkgguf.py FOLDER FILE.gguf [--split N] [--alignment N] [--version N] [--no-tokenizer]
                 [--old]

Weights keep their type, norms and biases become f32. In models of the Llama kind the rows of
queries and keys are put in turns (llama.cpp rotates neighbours); Gemma's norms get the 1 that the
model adds; factors of rotary embedding become tensors. A tokenizer.json of bytes (tokenizer.ggml
"gpt2") or with scores (--scores FILE, a JSON list; "llama") becomes keys. --split N writes N parts,
FILE-00001-of-0000N.gguf. What has no key in GGUF files is left out. Experts of gpt-oss stand
upright, gate and up apart. --old writes DeepSeek's files as they were before April 2025: keys and
values of latent attention in one matrix, widths of a head, no groups of experts.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q",
         I64: "q", F64: "d"}
TYPES = {"F32": 0, "F16": 1, "BF16": 30, "MXFP4": 39}
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)

LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
         "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "self_attn.dense": "attn_output"}
# Experts: the router, and a matrix of all experts in one tensor
LAYER.update({"mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
              "block_sparse_moe.router.layer": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
              "block_sparse_moe.output_linear": "ffn_down_exps",
              "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
              "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
              "mlp.shared_expert.up_proj": "ffn_up_shexp",
              "mlp.shared_expert.down_proj": "ffn_down_shexp",
              "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
              "mlp.shared_experts.up_proj": "ffn_up_shexp",
              "mlp.shared_experts.down_proj": "ffn_down_shexp",
              "shared_mlp.output_linear": "ffn_down_shexp"})
# Latent attention
LAYER.update({"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
              "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
              "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"})
# Tensors that have no .weight or .bias behind them in a folder
BARE = {"self_attn.sinks": "attn_sinks.weight",
        "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
        "mlp.moe_statics.e_score_correction_bias": "exp_probs_b.bias"}
EXPERT = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down",
          "w2": "down"}
# families with other names, or these names for other parts
EXAONE = {"ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.attention.q_proj": "attn_q",
          "attn.attention.k_proj": "attn_k", "attn.attention.v_proj": "attn_v",
          "attn.attention.out_proj": "attn_output", "mlp.c_fc_0": "ffn_gate",
          "mlp.c_fc_1": "ffn_up"}
AROUND = {"post_attention_layernorm": "post_attention_norm",
          "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
PARTS = {"gemma2": AROUND, "gemma3": AROUND, "olmo2": AROUND, "exaone4": AROUND, "exaone": EXAONE,
         **{arch: {"post_attention_layernorm": "post_attention_norm"}
            for arch in ("seed_oss", "gpt-oss", "glm4moe")},
         "glm4": {"post_self_attn_layernorm": "post_attention_norm",
                  "post_mlp_layernorm": "post_ffw_norm"}}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "model.final_layernorm": "output_norm", "transformer.wte": "token_embd",
         "transformer.ln_f": "output_norm"}
ARCHS = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
         "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "phi3",
         "granite": "granite", "olmo2": "olmo2", "smollm3": "smollm3", "ministral3": "mistral3",
         "phi": "phi2", "olmo": "olmo", "olmo3": "olmo2", "cohere": "command-r",
         "cohere2": "cohere2", "exaone": "exaone", "exaone4": "exaone4", "glm": "chatglm",
         "glm4": "glm4", "ernie4_5": "ernie4_5", "seed_oss": "seed_oss", "arcee": "arcee",
         "nemotron": "nemotron", "starcoder2": "starcoder2", "stablelm": "stablelm",
         "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
         "olmoe": "olmoe", "granitemoe": "granitemoe", "granitemoeshared": "granitemoe",
         "gpt_oss": "gpt-oss", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
         "glm4_moe": "glm4moe", "dots1": "dots1", "ernie4_5_moe": "ernie4_5-moe"}
IN_TURNS = ("llama", "granite", "smollm3", "mistral3", "olmo", "arcee", "granitemoe")


# ---- the container ----


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    """The bytes of a value; a list is an array of its kind, ARRAY as kind one of arrays."""
    if isinstance(v, list):
        if kind == ARRAY:
            return struct.pack("<IQ", ARRAY, len(v)) + b"".join(value(U32, part) for part in v)
        head = struct.pack("<IQ", kind, len(v))
        if kind == STRING:
            return head + b"".join(text(part) for part in v)
        return head + struct.pack(f"<{len(v)}{CODES[kind]}", *v)
    return text(v) if kind == STRING else struct.pack("<" + CODES[kind], v)


def key(name, kind, v):
    return text(name) + struct.pack("<I", ARRAY if isinstance(v, list) else kind) + value(kind, v)


def entry(name, shape, number, offset):
    """One of the directory; shape: as of an array, the outermost first"""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), number,
                                    offset)


def write(path, keys, tensors, alignment=32, version=3):
    """keys: {name: (kind, value)}; tensors: [(name, shape, type's number, bytes)]"""
    at, directory, data = 0, [], []
    for name, shape, number, raw in tensors:
        directory.append(entry(name, shape, number, at))
        raw += b"\0" * (-len(raw) % alignment)
        data.append(raw)
        at += len(raw)
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(keys))
    head += b"".join(key(name, *v) for name, v in keys.items()) + b"".join(directory)
    head += b"\0" * (-len(head) % alignment) if tensors else b""
    pathlib.Path(path).write_bytes(head + b"".join(data))


# ---- a model folder ----


def safetensors(folder):
    """(name, type, array of integers) of each tensor"""
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, t in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                first, end = (8 + size + at for at in t["data_offsets"])
                kind = {1: "u1", 2: "<u2", 4: "<u4"}[WIDTHS[t["dtype"]]]
                yield name, t["dtype"], np.frombuffer(raw[first:end], kind).reshape(t["shape"])


def as_f32(x, dtype):
    if dtype == "BF16":
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.view(np.float16).astype(np.float32) if dtype == "F16" else x.view(np.float32)


def name_of(name, arch):
    stem, kind = name.rsplit(".", 1)
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    _, _, layer, part = name.split(".", 3)
    if part in BARE:
        return f"blk.{layer}.{BARE[part]}"
    part = part.rsplit(".", 1)[0]
    return f"blk.{layer}.{PARTS.get(arch, {}).get(part) or LAYER[part]}.{kind}"


def in_turns(x, heads):
    """Rows of the first and second half of each head, in turns"""
    halves = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
    return halves.swapaxes(1, 2).reshape(x.shape)


def convert(name, dtype, x, arch, c):
    """(GGUF's name, shape, type's number, bytes)"""
    if name.startswith("blk."):
        shape = x.shape[:-1] + (x.shape[-1] // 17 * 32,) if dtype == "MXFP4" else x.shape
        return name, shape, TYPES[dtype], np.ascontiguousarray(x).tobytes()
    if x.shape[0] == 1:
        x = x[0]                        # the score of an expert for all rows
    part = name.rsplit(".", 2)[-2]
    if arch in IN_TURNS and part in ("q_proj", "k_proj"):
        x = in_turns(x, c["num_attention_heads" if part == "q_proj" else "num_key_value_heads"])
    if x.ndim == 1:
        x, dtype = as_f32(x, dtype), "F32"
        if arch.startswith(("gemma", "nemotron")) and name.endswith("norm.weight"):
            x = x + np.float32(1)
    return name_of(name, arch), x.shape, TYPES[dtype], np.ascontiguousarray(x).tobytes()


def mxfp4(codes, scales):
    """Blocks of ggml: the scale, then element i in the low half of byte i, i + 16 in the high"""
    each = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], 32)
    blocks = np.concatenate([scales[..., None], each[..., :16] | each[..., 16:] << 4], axis=-1)
    return blocks.reshape(*scales.shape[:-1], -1)


def upright(tensors):
    """(name, type, array) of gpt-oss' experts, behind all else that comes through"""
    blocks = {}
    for name, dtype, x in tensors:
        parts = name.split(".")
        part, layer = parts[-1] if "experts" in parts else "", "".join(parts[2:3])
        if part.endswith(("_blocks", "_scales")):
            blocks[name] = x
            pair = name[:-7] + "_blocks", name[:-7] + "_scales"
            if not all(n in blocks for n in pair):
                continue
            name, dtype, x = name[:-7], "MXFP4", mxfp4(*(blocks[n] for n in pair))
        elif part.endswith("_bias"):
            x, dtype = as_f32(x, dtype), "F32"
        elif part:
            x = x.swapaxes(1, 2)
        else:
            yield name, dtype, x
            continue
        kind = "bias" if part.endswith("_bias") else "weight"
        if part.startswith("down"):
            yield f"blk.{layer}.ffn_down_exps.{kind}", dtype, x
        else:
            yield f"blk.{layer}.ffn_gate_exps.{kind}", dtype, x[:, ::2]
            yield f"blk.{layer}.ffn_up_exps.{kind}", dtype, x[:, 1::2]


def keys_and_values(tensors, c):
    """kv_b_proj as two: of keys with rows and columns exchanged in each head, and of values"""
    for name, dtype, x in tensors:
        if not name.endswith("kv_b_proj.weight"):
            yield name, dtype, x
            continue
        layer, nope = name.split(".")[2], c["qk_nope_head_dim"]
        heads = x.reshape(c["num_attention_heads"], -1, x.shape[1])
        yield f"blk.{layer}.attn_k_b.weight", dtype, heads[:, :nope].swapaxes(1, 2)
        yield f"blk.{layer}.attn_v_b.weight", dtype, heads[:, nope:]


def stack_experts(tensors):
    """Matrices of experts as one array for each, under GGUF's names; Granite's gate and up apart"""
    stacks = {}
    for name, dtype, x in tensors:
        parts = name.split(".")
        layer = f"blk.{parts[2]}." if parts[1] == "layers" else ""
        if parts[0] == "blk":
            yield name, dtype, x
        elif "experts" in parts:
            stack = stacks.setdefault(f"{layer}ffn_{EXPERT[parts[-2]]}_exps.weight", (dtype, {}))
            stack[1][int(parts[-3])] = x
        elif parts[-3:-1] == ["shared_mlp", "input_linear"]:
            for part, half in zip(("gate", "up"), np.split(x, 2)):
                yield f"{layer}ffn_{part}_shexp.weight", dtype, half
        elif parts[-2] == "input_linear":
            for part, half in zip(("gate", "up"), np.split(x, 2, axis=1)):
                stacks[f"{layer}ffn_{part}_exps.weight"] = dtype, dict(enumerate(half))
        else:
            yield name, dtype, x
    for name, (dtype, each) in stacks.items():
        yield name, dtype, np.stack([each[e] for e in range(len(each))])


def llama3_factors(c, width):
    """What frequencies are divided by (transformers' _compute_llama3_parameters())"""
    s = c["rope_scaling"]
    old, low, high = (s[k] for k in ("original_max_position_embeddings", "low_freq_factor",
                                     "high_freq_factor"))
    factors = []
    for i in range(0, width, 2):
        wave = 2 * math.pi * c["rope_theta"] ** (i / width)
        smooth = (old / wave - low) / (high - low)
        factors.append(1 if wave < old / high else s["factor"] if wave > old / low else
                       1 / ((1 - smooth) / s["factor"] + smooth))
    return factors


def vector(name, numbers):
    return name, (len(numbers),), TYPES["F32"], np.array(numbers, "<f4").tobytes()


def rope(c, arch, width):
    """(keys, tensors) of rotary embedding"""
    s, tensors = c.get("rope_scaling") or c.get("rope_parameters") or {}, []
    keys = {f"{arch}.rope.freq_base": (F32, c.get("rope_theta") or s["rope_theta"])}
    kind = s.get("rope_type", s.get("type"))
    dims = int(width * c.get("partial_rotary_factor", s.get("partial_rotary_factor", 1)))
    keys[f"{arch}.rope.dimension_count"] = (U32, dims)
    if kind in ("linear", "yarn"):
        keys[f"{arch}.rope.scaling.type"] = (STRING, kind)
        keys[f"{arch}.rope.scaling.factor"] = (F32, s["factor"])
    if kind == "yarn":
        keys[f"{arch}.rope.scaling.original_context_length"] = (
            U32, s["original_max_position_embeddings"])
        if s.get("attention_factor"):
            keys[f"{arch}.rope.scaling.yarn_attn_factor"] = (F32, s["attention_factor"])
        if s.get("mscale_all_dim"):
            keys[f"{arch}.rope.scaling.yarn_log_multiplier"] = (
                F32, s["mscale_all_dim"] * (0.1 if arch == "deepseek2" else 1))
        for beta in ("beta_fast", "beta_slow"):
            if s.get(beta):
                keys[f"{arch}.rope.scaling.yarn_{beta}"] = (F32, s[beta])
        if s.get("llama_4_scaling_beta"):
            keys[f"{arch}.attention.temperature_scale"] = (F32, s["llama_4_scaling_beta"])
    if kind == "llama3":
        tensors.append(vector("rope_freqs.weight", llama3_factors(c, width)))
    original = c.get("original_max_position_embeddings")
    if original:
        keys[f"{arch}.rope.scaling.original_context_length"] = (U32, original)
    if kind == "longrope":
        scale = c["max_position_embeddings"] / original
        keys[f"{arch}.rope.scaling.attn_factor"] = (F32, math.sqrt(
            1 + math.log(scale) / math.log(original)))
        tensors += [vector(f"rope_factors_{n}.weight", s[f"{n}_factor"]) for n in ("long", "short")]
    return keys, tensors


def window(c, arch):
    """Keys of sliding windows, as the converter has them for each architecture"""
    keys, size = {}, c.get("sliding_window")
    if arch in ("gemma2", "gemma3", "phi3", "gpt-oss"):
        keys[f"{arch}.attention.sliding_window"] = (U32, size or 0)
    if arch == "gemma3" and c.get("sliding_window_pattern"):
        keys[f"{arch}.attention.sliding_window_pattern"] = (U32, c["sliding_window_pattern"])
    if arch in ("olmo2", "cohere2", "exaone4") and size:
        keys[f"{arch}.attention.sliding_window"] = (U32, size)
        every = c.get("sliding_window_pattern", 4)
        types = c.get("layer_types") or [
            "full_attention" if (i + 1) % every == 0 else "sliding_attention"
            for i in range(c["num_hidden_layers"])]
        if arch != "cohere2" or "layer_types" in c:
            keys[f"{arch}.attention.sliding_window_pattern"] = (
                BOOL, [t == "sliding_attention" for t in types])
    return keys


def epsilon(c, arch):
    """OLMo's configuration has none."""
    key = f"{arch}.attention.layer_norm_rms_epsilon"
    by_key = {"rms_norm_eps": key, "norm_eps": key}
    keys = {by_key.get(k, f"{arch}.attention.layer_norm_epsilon"): (F32, c[k])
            for k in ("rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                      "norm_epsilon") if k in c}
    if arch == "exaone":
        keys[key] = (F32, c["layer_norm_epsilon"])
    if arch in ("olmo", "nemotron"):
        keys[f"{arch}.attention.layer_norm_epsilon"] = (F32, c.get("norm_eps", 1e-5))
    return keys


def latent(c, old):
    """Keys of latent attention: in old files the widths of a head"""
    rank, turned, value = c["kv_lora_rank"], c["qk_rope_head_dim"], c["v_head_dim"]
    head = c["qk_nope_head_dim"] + turned
    keys = {"kv_lora_rank": rank, "key_length": head if old else rank + turned,
            "value_length": value if old else rank}
    if c["q_lora_rank"]:
        keys["q_lora_rank"] = c["q_lora_rank"]
    if not old:
        keys.update(key_length_mla=head, value_length_mla=value, head_count_kv=1)
    return {f"deepseek2.attention.{name}": (U32, n) for name, n in keys.items()}


def router(c, arch, old):
    """Keys of experts in the DeepSeek line, and of ERNIE"""
    if arch == "ernie4_5-moe":
        return {f"{arch}.interleave_moe_layer_step": (U32, c["moe_layer_interval"]),
                f"{arch}.leading_dense_block_count": (U32, c["moe_layer_start_index"]),
                f"{arch}.expert_shared_count": (U32, c["moe_num_shared_experts"]),
                f"{arch}.expert_shared_feed_forward_length": (
                    U32, c["moe_num_shared_experts"] * c["moe_intermediate_size"])}
    if "first_k_dense_replace" not in c:
        return {}
    keys = {"leading_dense_block_count": (U32, c["first_k_dense_replace"]),
            "expert_shared_count": (U32, c["n_shared_experts"]),
            "expert_weights_scale": (F32, c.get("routed_scaling_factor", 1.0))}
    if c.get("norm_topk_prob", c["model_type"] == "deepseek_v3"):
        keys["expert_weights_norm"] = (BOOL, True)
    if not old and c.get("n_group"):
        keys["expert_group_count"] = (U32, c["n_group"])
        keys["expert_group_used_count"] = (U32, c["topk_group"])
    if c["model_type"] != "deepseek_v2":
        keys["expert_gating_func"] = (U32, 2)
    elif not old:
        keys["expert_gating_func"] = (U32, 1)
    if c.get("num_nextn_predict_layers"):
        keys["nextn_predict_layers"] = (U32, c["num_nextn_predict_layers"])
        keys["block_count"] = (U32, c["num_hidden_layers"] + c["num_nextn_predict_layers"])
    return {f"{arch}.{name}": v for name, v in keys.items()}


def config(c, arch, old=False):
    """(keys, tensors) of config.json"""
    heads = c["num_attention_heads"]
    width = c.get("head_dim") or c["hidden_size"] // heads
    keys = {"general.architecture": (STRING, arch), "general.type": (STRING, "model"),
            "general.name": (STRING, "test"), "general.tags": (STRING, ["a", "b"])}
    for name, config_key in (("block_count", "num_hidden_layers"),
                             ("context_length", "max_position_embeddings"),
                             ("embedding_length", "hidden_size"),
                             ("feed_forward_length", "intermediate_size"),
                             ("attention.head_count", "num_attention_heads"),
                             ("attention.head_count_kv", "num_key_value_heads"),
                             ("vocab_size", "vocab_size")):
        keys[f"{arch}.{name}"] = (U32, c[config_key] if config_key in c else c["num_layers"])
    for name, names in (("expert_count", ("num_local_experts", "num_experts", "n_routed_experts",
                                          "moe_num_experts")),
                        ("expert_used_count", ("num_experts_per_tok", "moe_k")),
                        ("expert_feed_forward_length", ("moe_intermediate_size",)),
                        ("expert_shared_feed_forward_length",
                         ("shared_expert_intermediate_size", "shared_intermediate_size"))):
        for config_key in names:
            if config_key in c:
                keys[f"{arch}.{name}"] = (U32, c[config_key])
    keys.update(epsilon(c, arch))
    keys[f"{arch}.attention.key_length"] = keys[f"{arch}.attention.value_length"] = (U32, width)
    if arch == "deepseek2":
        keys.update(latent(c, old))
        width = c["qk_rope_head_dim"]
    if arch == "gpt-oss":
        keys[f"{arch}.expert_feed_forward_length"] = (U32, c["intermediate_size"])
    keys.update(router(c, arch, old))
    for name, config_key in (("attn_logit_softcapping", "attn_logit_softcapping"),
                             ("final_logit_softcapping", "final_logit_softcapping"),
                             ("attention.scale", "attention_multiplier"),
                             ("embedding_scale", "embedding_multiplier"),
                             ("residual_scale", "residual_multiplier"),
                             ("logit_scale", "logits_scaling"),
                             ("logit_scale", "logit_scale")):
        if c.get(config_key):
            keys[f"{arch}.{name}"] = (F32, c[config_key])
    keys.update(window(c, arch))
    if arch == "stablelm":
        keys["stablelm.use_parallel_residual"] = (BOOL, False)
    if arch == "gemma3" and c.get("rope_local_base_freq"):
        keys[f"{arch}.rope.freq_base_swa"] = (F32, c["rope_local_base_freq"])
    more, tensors = rope(c, arch, width)
    return {**keys, **more}, tensors


# ---- the tokenizer ----


def pre_of(t):
    """The word for the expressions that split a text, of the few that tests need"""
    steps = (t.get("pre_tokenizer") or {}).get("pretokenizers") or [t.get("pre_tokenizer")]
    if steps[0]["type"] == "Digits":
        return "smollm"
    if steps[0]["type"] == "ByteLevel":
        return "gpt-2"
    if "{1,3}" in steps[0]["pattern"]["Regex"]:
        return "llama-bpe" if t["model"].get("ignore_merges") else "dbrx"
    return "qwen2"


def tokenizer(folder, c, scores):
    t = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocab, added = t["model"]["vocab"], t.get("added_tokens", [])
    size = c["vocab_size"]
    tokens, types = [f"[PAD{i}]" for i in range(size)], [UNUSED] * size
    for token, i in vocab.items():
        tokens[i], types[i] = token, BYTE if scores and token[:3] == "<0x" else NORMAL
    for a in added:
        tokens[a["id"]], types[a["id"]] = a["content"], CONTROL if a["special"] else USER
    if scores and "<unk>" in vocab:
        types[vocab["<unk>"]] = UNKNOWN
    keys = {"tokenizer.ggml.model": (STRING, "llama" if scores else "gpt2"),
            "tokenizer.ggml.tokens": (STRING, tokens), "tokenizer.ggml.token_type": (I32, types)}
    if scores:
        keys["tokenizer.ggml.scores"] = (F32, scores)
    else:
        keys["tokenizer.ggml.pre"] = (STRING, pre_of(t))
        keys["tokenizer.ggml.merges"] = (STRING, [m if isinstance(m, str) else " ".join(m)
                                                  for m in t["model"]["merges"]])
    post = t.get("post_processor") or {}
    begins = [p for p in post.get("processors", [post]) if p.get("type") == "TemplateProcessing" and
              "SpecialToken" in p["single"][0]]
    keys["tokenizer.ggml.add_bos_token"] = (BOOL, bool(begins))
    for p in begins:
        name = p["single"][0]["SpecialToken"]["id"]
        keys["tokenizer.ggml.bos_token_id"] = (U32, p["special_tokens"][name]["ids"][0])
    return keys


def special(folder, c):
    """Ids and the chat template"""
    keys = {}
    for name, short in (("bos", "bos"), ("eos", "eos"), ("padding", "pad")):
        v = c.get(f"{short}_token_id")
        if v is not None:
            keys[f"tokenizer.ggml.{name}_token_id"] = (U32, v[0] if isinstance(v, list) else v)
    path = folder / "tokenizer_config.json"
    template = json.loads(path.read_text()).get("chat_template") if path.exists() else None
    if isinstance(template, str):
        keys["tokenizer.chat_template"] = (STRING, template)
    return keys


def write_parts(file, keys, tensors, parts, **options):
    """As llama-gguf-split does: all keys in the first part"""
    for i in range(parts):
        own = {"split.no": (U16, i), "split.count": (U16, parts),
               "split.tensors.count": (I32, len(tensors))}
        first, end = (len(tensors) * n // parts for n in (i, i + 1))
        path = f"{str(file).removesuffix('.gguf')}-{i + 1:05}-of-{parts:05}.gguf"
        write(path, {**(keys if i == 0 else {}), **own}, tensors[first:end], **options)


def read_folder(folder, with_tokenizer=True, scores=None, old=False):
    """(keys, tensors) of a model folder"""
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    arch = ARCHS[c["model_type"]]
    keys, tensors = config(c, arch, old)
    if with_tokenizer:
        keys.update({**special(folder, c), **tokenizer(folder, c, scores)})
    own = safetensors(folder)
    if arch == "gpt-oss":
        own = upright(own)
    if arch == "deepseek2" and not old:
        own = keys_and_values(own, c)
    return keys, tensors + [convert(*t, arch, c) for t in stack_experts(own)]


def main():
    p = argparse.ArgumentParser(prog="mkgguf.py")
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("file", type=pathlib.Path)
    p.add_argument("--split", type=int, default=1)
    p.add_argument("--alignment", type=int, default=32)
    p.add_argument("--version", type=int, default=3)
    p.add_argument("--scores", type=pathlib.Path)
    p.add_argument("--no-tokenizer", action="store_true")
    p.add_argument("--old", action="store_true")
    o = p.parse_args()
    scores = json.loads(o.scores.read_text()) if o.scores else None
    keys, tensors = read_folder(o.folder, not o.no_tokenizer, scores, o.old)
    options = {"alignment": o.alignment, "version": o.version}
    if o.alignment != 32:
        keys["general.alignment"] = (U32, o.alignment)
    if o.split > 1:
        write_parts(o.file, keys, tensors, o.split, **options)
    else:
        write(o.file, keys, tensors, **options)


if __name__ == "__main__":
    main()
