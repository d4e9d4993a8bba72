#!/usr/bin/python3
"""mkfamily.py - write a tiny model folder of a family, with random weights and odd shapes

usage: mkfamily.py CASE DIR TOKENIZER.json [...]      cases, each with this tokenizer
       mkfamily.py --list                            their names

The same case gives the same bytes, with any version of Python and NumPy (random.Random.random() is
stable, and all else is exact). Shapes: head width is not hidden / heads, 3 KV heads, 4 layers;
contexts are so short that rotary scaling acts within 48 tokens.
"""

import json
import pathlib
import random
import shutil
import struct
import sys

import numpy as np

from family_cases import CASES, FFN, HEADS, HIDDEN, KV_HEADS, LAYERS, VOCAB, WIDTH

# Models that see images: (class, where the names of tensors say language_model, vision_config)
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 28,
          "num_attention_heads": 2, "patch_size": 14}
WRAPPED = {
    "gemma3-wrapped": ("Gemma3", "outer", dict(VISION, model_type="siglip_vision_model")),
    "mistral3": ("Mistral3", "outer", dict(VISION, model_type="pixtral", head_dim=8)),
    "mistral3-inner": ("Mistral3", "inner", dict(VISION, model_type="pixtral", head_dim=8)),
}
OUTSIDE = ("architectures", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype")
MODEL_TYPES = {"Gemma3": "gemma3_text", "SeedOss": "seed_oss", "Qwen2Moe": "qwen2_moe",
               "Qwen3Moe": "qwen3_moe", "Glm4Moe": "glm4_moe", "DeepseekV2": "deepseek_v2",
               "DeepseekV3": "deepseek_v3", "GptOss": "gpt_oss", "KimiK2": "kimi_k2",
               "Glm4MoeLite": "glm4_moe_lite", "GPTNeoX": "gpt_neox", "MiniMaxM2": "minimax_m2"}
ARCHITECTURES = {"KimiK2": "DeepseekV3"}
# Tensors of a layer: those of Llama, and in place of some those that a family has. q, kv, D and F
# are widths; None: there is none.
ATTENTION = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
             "o": "self_attn.o_proj"}
NETWORK = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
STACKED_GATE = {"gate": None, "up": None, "gate_up": "mlp.gate_up_proj"}
OUTER = {"embed": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm",
         "head": "lm_head"}
TOGETHER = {"q": None, "k": None, "v": None}
TO_4H = {"gate": None, "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}
NAMES = {
    "Phi3": {"q": None, "k": None, "v": None, "qkv": "self_attn.qkv_proj", **STACKED_GATE},
    "Glm": STACKED_GATE, "Glm4": STACKED_GATE,
    "Apertus": {"gate": None}, "Arcee": {"gate": None}, "Nemotron": {"gate": None},
    "Starcoder2": {"gate": None, "up": "mlp.c_fc", "down": "mlp.c_proj"},
    "Phi": {"gate": None, "up": "mlp.fc1", "down": "mlp.fc2", "o": "self_attn.dense",
            "norm": "model.final_layernorm"},
    "GPTNeoX": {"embed": "gpt_neox.embed_in", "layers": "gpt_neox.layers",
                "norm": "gpt_neox.final_layer_norm", "head": "embed_out", **TOGETHER,
                "qkv": "attention.query_key_value", "o": "attention.dense", **TO_4H},
    "Falcon": {"embed": "transformer.word_embeddings", "layers": "transformer.h",
               "norm": "transformer.ln_f", **TOGETHER, "qkv": "self_attention.query_key_value",
               "o": "self_attention.dense", **TO_4H},
    "InternLM2": {"embed": "model.tok_embeddings", "head": "output", **TOGETHER,
                  "qkv": "attention.wqkv", "o": "attention.wo", "gate": "feed_forward.w1",
                  "up": "feed_forward.w3", "down": "feed_forward.w2"},
    "Exaone": {"embed": "transformer.wte", "layers": "transformer.h", "norm": "transformer.ln_f",
               "q": "attn.attention.q_proj", "k": "attn.attention.k_proj",
               "v": "attn.attention.v_proj", "o": "attn.attention.out_proj",
               "gate": "mlp.c_fc_0", "up": "mlp.c_fc_1", "down": "mlp.c_proj"},
}
# Experts of a layer: the router, what its scores are corrected by, the matrices of each expert, of
# all in one, and the network that all rows take with its width
GLU = ("gate_proj", "up_proj", "down_proj")
SPARSE = {"router": "mlp.gate", "each": "mlp.experts", "parts": GLU}
GRANITE = {"router": "block_sparse_moe.router.layer", "all": "block_sparse_moe."}
SHARED = dict(SPARSE, corrected="mlp.gate.e_score_correction_bias", shared="mlp.shared_experts.")
EXPERTS = {
    "Mixtral": {"router": "block_sparse_moe.gate", "each": "block_sparse_moe.experts",
                "parts": ("w1", "w3", "w2")},
    "PhiMoE": {"router": "block_sparse_moe.gate", "each": "block_sparse_moe.experts",
               "parts": ("w1", "w3", "w2")},
    "Qwen2Moe": dict(SPARSE, shared="mlp.shared_expert.", score="mlp.shared_expert_gate"),
    "Qwen3Moe": SPARSE, "Olmoe": SPARSE, "GraniteMoe": GRANITE,
    "GraniteMoeShared": dict(GRANITE, shared_all="shared_mlp."),
    "Glm4Moe": SHARED, "Dots1": SHARED, "DeepseekV3": SHARED, "KimiK2": SHARED,
    "Glm4MoeLite": SHARED,
    "MiniMaxM2": {"router": "block_sparse_moe.gate", "each": "block_sparse_moe.experts",
                  "parts": ("w1", "w3", "w2"),
                  "corrected": "block_sparse_moe.e_score_correction_bias"},
    "DeepseekV2": {key: v for key, v in SHARED.items() if key != "corrected"},
    "GptOss": {"router": "mlp.router", "turns": "mlp.experts."},
    "Ernie4_5_Moe": dict(SHARED, corrected="mlp.moe_statics.e_score_correction_bias"),
}
BEFORE = (("input_layernorm", "D"), ("post_attention_layernorm", "D"))
AFTER = (("post_attention_layernorm", "D"), ("post_feedforward_layernorm", "D"))
HEAD = (("self_attn.q_norm", "E"), ("self_attn.k_norm", "E"))
WIDE = (("self_attn.q_norm", "q"), ("self_attn.k_norm", "kv"))
AROUND = BEFORE + (("pre_feedforward_layernorm", "D"), ("post_feedforward_layernorm", "D"))
NORMS = {
    "Exaone4": AFTER + HEAD, "Olmo2": AFTER + WIDE, "Olmo3": AFTER + WIDE,
    "Glm4": BEFORE + (("post_self_attn_layernorm", "D"), ("post_mlp_layernorm", "D")),
    "Gemma2": AROUND, "Gemma3": AROUND + HEAD, "Qwen3": BEFORE + HEAD, "Qwen3Moe": BEFORE + HEAD,
    "Dots1": BEFORE + HEAD, "Olmoe": BEFORE + WIDE,
    "Phi": BEFORE[:1], "Cohere": BEFORE[:1], "Cohere2": BEFORE[:1], "Olmo": (),
    "Exaone": (("ln_1", "D"), ("ln_2", "D")),
    "MiniMaxM2": BEFORE + WIDE, "InternLM2": (("attention_norm", "D"), ("ffn_norm", "D")),
    "Falcon": BEFORE[:1],
    "Apertus": (("attention_layernorm", "D"), ("feedforward_layernorm", "D")) + HEAD,
}
EACH = tuple((f"self_attn.{x}_layernorm.norms.{h}", "E") for x, heads in
             (("q", HEADS), ("k", KV_HEADS)) for h in range(heads))
# of cases that are another form of their family
FORMS = {"cohere-normed": BEFORE[:1] + (("self_attn.q_norm", "HxE"), ("self_attn.k_norm", "GxE")),
         "glm4_moe-normed": BEFORE + HEAD, "stablelm-12b": BEFORE[:1] + EACH,
         "stablelm-normed": BEFORE + EACH, "stablelm-parallel": BEFORE[:1],
         "falcon-40b": (("ln_attn", "D"), ("ln_mlp", "D"))}
BIASED_NORMS = ("PhiMoE", "Starcoder2", "Phi", "StableLm", "Nemotron", "GPTNeoX", "Falcon")
O_PLAIN = ("Glm", "Glm4", "SeedOss", "Helium", "StableLm", "Qwen2", "Qwen2Moe",
           "Glm4Moe", "MiMo")           # o has no bias
# what says whether projections have biases, where it is not attention_bias and mlp_bias; or whether
# they have
BIAS_KEYS = {"Qwen2": (True, False), "Phi": (True, True), "Starcoder2": ("use_bias", "use_bias"),
             "Ernie4_5": ("use_bias", "use_bias"), "StableLm": ("use_qkv_bias", False),
             "Qwen2Moe": ("qkv_bias", False), "GPTNeoX": ("attention_bias", True),
             "MiMo": (True, False), "Falcon": ("bias", "bias"), "InternLM2": ("bias", False)}


def is_bf16(name):
    return name.endswith("-bf16")


def config(name):
    family, more = CASES[name]
    base = {
        "architectures": [ARCHITECTURES.get(family, family) + "ForCausalLM"],
        "model_type": MODEL_TYPES.get(family, family.lower()),
        "bos_token_id": VOCAB - 2, "eos_token_id": VOCAB - 1, "pad_token_id": 0,
        "attention_dropout": 0.0, "head_dim": WIDTH, "hidden_act": "silu", "hidden_size": HIDDEN,
        "initializer_range": 0.02, "intermediate_size": FFN, "max_position_embeddings": 512,
        "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True,
        "vocab_size": VOCAB}
    if is_bf16(name):
        base["torch_dtype"] = "bfloat16"
    return {key: v for key, v in {**base, **more}.items() if v != "absent"}


def file_config(name):
    """What config.json has: in WRAPPED cases the configuration is that of the text part."""
    c = config(name)
    if name not in WRAPPED:
        return c
    outer, text = WRAPPED[name][0], {k: v for k, v in c.items() if k not in OUTSIDE}
    return {"architectures": [outer + "ForConditionalGeneration"], "model_type": outer.lower(),
            "text_config": text, "vision_config": WRAPPED[name][2], "image_token_index": 5,
            **{k: c[k] for k in OUTSIDE[1:]}}


def file_name(name, tensor):
    """Where the text part of a WRAPPED case has a tensor."""
    if tensor == VISION_TENSOR:
        return tensor
    form = WRAPPED.get(name, (None, ""))[1]
    if form == "outer":
        return "language_model." + tensor
    return tensor.replace("model.", "model.language_model.", 1) if form == "inner" and \
        tensor.startswith("model.") else tensor


def latent_attention(c):
    """The same of latent attention"""
    D, H, Q, rank = (c[key] for key in ("hidden_size", "num_attention_heads", "q_lora_rank",
                                        "kv_lora_rank"))
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c.get("v_head_dim", D // H)
    biased = c.get("attention_bias", False)
    if Q is None:
        yield "self_attn.q_proj", H * (nope + rope), D, False
    else:
        yield "self_attn.q_a_proj", Q, D, biased
        yield "self_attn.q_b_proj", H * (nope + rope), Q, False
    yield "self_attn.kv_a_proj_with_mqa", rank + rope, D, biased
    yield "self_attn.kv_b_proj", H * (nope + v), rank, False
    yield "self_attn.o_proj", D, H * v, biased


def kv_heads(c):
    if c["model_type"] == "gpt_neox":
        return HEADS
    if c["model_type"] == "falcon":
        return c["num_kv_heads"] if c["new_decoder_architecture"] else 1
    return KV_HEADS


def projections(name, c, layer):
    """(tensor, rows, columns, with a bias) of a layer's matrices, without experts."""
    family = CASES[name][0]
    if "kv_lora_rank" in c:
        yield from latent_attention(c)
    names = {**ATTENTION, **NETWORK, **NAMES.get(family, {})}
    q, kv, D = HEADS * WIDTH, kv_heads(c) * WIDTH, c["hidden_size"]
    F = c.get("intermediate_size", c.get("ffn_hidden_size", 4 * D))
    shape = {"qkv": (q + 2 * kv, D), "q": (q, D), "k": (kv, D), "v": (kv, D), "o": (D, q),
             "gate_up": (2 * F, D), "gate": (F, D), "up": (F, D), "down": (D, F)}
    keys = BIAS_KEYS.get(family, ("attention_bias", "mlp_bias"))
    for part, (rows, columns) in shape.items():
        key = keys[part in ("gate_up", "gate", "up", "down")]
        biased = key if isinstance(key, bool) else c.get(key, False)
        if part in NETWORK and has_experts(name, c, layer):
            continue
        if names.get(part) is not None and not ("kv_lora_rank" in c and part in "qkvo"):
            yield names[part], rows, columns, biased and not (part == "o" and family in O_PLAIN)


def has_experts(name, c, layer):
    """By the rules of Qwen and of DeepSeek."""
    return CASES[name][0] in EXPERTS and layer not in c.get("mlp_only_layers", ()) and \
        (layer + 1) % c.get("decoder_sparse_step", 1) == 0 and \
        layer >= c.get("first_k_dense_replace", c.get("moe_layer_start_index", 0)) and \
        layer <= c.get("moe_layer_end_index", LAYERS)


def network(prefix, parts, D, F):
    gate, up, down = parts
    return [(f"{prefix}{gate}.weight", (F, D)), (f"{prefix}{up}.weight", (F, D)),
            (f"{prefix}{down}.weight", (D, F))]


def experts(name, c):
    """(tensor, shape) of a layer's mixture."""
    is_ = EXPERTS[CASES[name][0]]
    D, F = c["hidden_size"], c.get("moe_intermediate_size", c["intermediate_size"])
    M = next(c[key] for key in (
        "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts") if key in c)
    shared = c.get("n_shared_experts", c.get("moe_num_shared_experts", 0)) * F
    shared = c.get("shared_expert_intermediate_size", shared)
    out = [(f"{is_['router']}.weight", (M, D))]
    if "corrected" in is_:
        out.append((is_["corrected"], (1, M) if "statics" in is_["corrected"] else (M,)))
    for e in range(M if "each" in is_ else 0):
        out += network(f"{is_['each']}.{e}.", is_["parts"], D, F)
    if "all" in is_:
        out += [(f"{is_['all']}input_linear.weight", (M, 2 * F, D)),
                (f"{is_['all']}output_linear.weight", (M, D, F))]
    if "turns" in is_:                  # gate and up in turns, on their side; all have biases
        out += [(f"{is_['router']}.bias", (M,)),
                (f"{is_['turns']}gate_up_proj", (M, D, 2 * F)),
                (f"{is_['turns']}gate_up_proj_bias", (M, 2 * F)),
                (f"{is_['turns']}down_proj", (M, F, D)), (f"{is_['turns']}down_proj_bias", (M, D))]
    if "shared" in is_:
        out += network(is_["shared"], GLU, D, shared)
    if "shared_all" in is_:
        shared = c["shared_intermediate_size"]
        out += [(f"{is_['shared_all']}input_linear.weight", (2 * shared, D)),
                (f"{is_['shared_all']}output_linear.weight", (D, shared))]
    if "score" in is_:
        out.append((f"{is_['score']}.weight", (1, D)))
    return out


def norms(name, D):
    """(tensor, shape) of a layer's norms."""
    c = CASES[name][1]
    if "kv_lora_rank" in c:
        latent = [("self_attn.q_a_layernorm", c["q_lora_rank"]),
                  ("self_attn.kv_a_layernorm", c["kv_lora_rank"])]
        return [(tensor, (D,)) for tensor, _ in BEFORE] + \
            [(tensor, (width,)) for tensor, width in latent if width]
    shape = {"D": (D,), "E": (WIDTH,), "q": (HEADS * WIDTH,), "kv": (KV_HEADS * WIDTH,),
             "HxE": (HEADS, WIDTH), "GxE": (KV_HEADS, WIDTH)}
    form = FORMS.get(name, NORMS.get(CASES[name][0], BEFORE))
    return [(tensor, shape[by]) for tensor, by in form]


def shapes(name, c):
    D, family = c["hidden_size"], CASES[name][0]
    names = {**OUTER, **NAMES.get(family, {})}
    yield f"{names['embed']}.weight", (VOCAB, D)
    for n in range(LAYERS):
        layer = f"{names['layers']}.{n}."
        for tensor, rows, columns, biased in projections(name, c, n):
            yield f"{layer}{tensor}.weight", (rows, columns)
            if biased:
                yield f"{layer}{tensor}.bias", (rows,)
        for tensor, shape in experts(name, c) if has_experts(name, c, n) else ():
            yield f"{layer}{tensor}", shape
        if family == "GptOss":
            yield f"{layer}self_attn.sinks", (HEADS,)
        for tensor, shape in norms(name, D):
            yield f"{layer}{tensor}.weight", shape
            if family in BIASED_NORMS and "self_attn" not in tensor:
                yield f"{layer}{tensor}.bias", shape
    for n in range(LAYERS if family == "Apertus" else 0):
        for number, shape in (("alpha_p", (1,)), ("alpha_n", (1,)), ("beta", ()), ("eps", ())):
            yield f"model.layers.{n}.mlp.act_fn.{number}", shape
    if family != "Olmo":
        yield f"{names['norm']}.weight", (D,)
    if family in BIASED_NORMS:
        yield f"{names['norm']}.bias", (D,)
    if not c["tie_word_embeddings"]:
        yield f"{names['head']}.weight", (VOCAB, D)
    if family == "Phi" or c.get("lm_head_bias"):
        yield "lm_head.bias", (VOCAB,)
    if family == "MiMo":                # a layer that guesses a further token
        yield "model.mtp_layers.0.input_proj.weight", (D, 2 * D)
    if name in WRAPPED:                 # a part that sees images
        yield VISION_TENSOR, (3,)


VISION_TENSOR = "vision_tower.no_such.weight"


def values(rng, tensor, shape):
    """Matrices and biases: even, with standard deviation 0.3; norm weights 0.5 to 1.5; multiples of
    2^-12."""
    if tensor.endswith((".act_fn.beta", ".act_fn.eps")):
        return np.array(0.5 if tensor.endswith("beta") else -1e-6, "<f4")
    n = int(np.prod(shape))
    x = np.array([rng.random() for _ in range(n)]) * 2 - 1
    is_norm = ".norms." in tensor or tensor.endswith((
        "norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", "ln_attn.weight",
        "ln_mlp.weight"))
    x = 1 + 0.5 * x if is_norm else 0.52 * x
    return (np.round(x * 4096) / 4096).astype("<f4")


def bf16(data):
    """f32 as bf16: the nearest, halves to even."""
    bits = np.frombuffer(data, "<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write(name, folder, tokenizer):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    c, rng = config(name), random.Random(name)
    (folder / "config.json").write_text(json.dumps(file_config(name), indent=2) + "\n")
    shutil.copyfile(tokenizer, folder / "tokenizer.json")
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for tensor, shape in shapes(name, c):
        data.append(values(rng, tensor, shape).tobytes())
        if is_bf16(name):
            data[-1] = bf16(data[-1])
        header[file_name(name, tensor)] = {
            "dtype": "BF16" if is_bf16(name) else "F32", "shape": shape,
            "data_offsets": [at, at + len(data[-1])]}
        at += len(data[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def main(arguments):
    if arguments == ["--list"]:
        print(*CASES, sep="\n")
        return
    for at in range(0, len(arguments), 3):
        write(*arguments[at:at + 3])


if __name__ == "__main__":
    main(sys.argv[1:])
