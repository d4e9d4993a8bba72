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

LAYERS, HIDDEN, HEADS, KV_HEADS, WIDTH, FFN, VOCAB = 4, 40, 6, 3, 12, 56, 1536
FULL, SLIDING = "full_attention", "sliding_attention"
GELU = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
# latent attention: 3 heads; queries of 24 + 16, values of 40, rows of 56 + 16 numbers
LATENT = {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": "absent",
          "kv_lora_rank": 56, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 40,
          "q_lora_rank": 72, "first_k_dense_replace": LAYERS, "moe_intermediate_size": 8,
          "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2}
CASES = {
    "llama": ("Llama", {}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-linear": ("Llama", {"rope_scaling": {"type": "linear", "factor": 3.0}}),
    "llama-llama3": ("Llama", {"rope_scaling": LLAMA3}),
    "llama-dynamic": ("Llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    "llama-yarn": ("Llama", {"rope_scaling": YARN}),
    "llama-yarn-mscale": ("Llama", {"rope_scaling": dict(
        YARN, factor=40.0, mscale=0.707, mscale_all_dim=0.5, beta_fast=8.0, beta_slow=0.5,
        truncate=False)}),
    "llama-yarn-factor": ("Llama", {"rope_scaling": dict(YARN, attention_factor=0.8)}),
    "mistral": ("Mistral", {"sliding_window": 200}),
    "ministral3": ("Ministral3", {
        "rope_theta": None, "sliding_window": None, "rope_parameters": dict(
            YARN, type="yarn", rope_theta=5000.0, mscale=1.0, mscale_all_dim=1.0,
            max_position_embeddings=512, llama_4_scaling_beta=0.4)}),
    "ministral3-window": ("Ministral3", {
        "rope_theta": None, "sliding_window": 13, "rope_parameters": dict(
            YARN, factor=8.0, rope_theta=5000.0, original_max_position_embeddings=5,
            mscale=1.0, mscale_all_dim=0.0, llama_4_scaling_beta=0.1)}),
    "qwen2": ("Qwen2", {"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 2,
                        "tie_word_embeddings": True}),
    "qwen2-yarn": ("Qwen2", {"use_sliding_window": False, "rope_scaling": dict(
        {k: v for k, v in YARN.items() if k != "rope_type"}, type="yarn")}),
    "qwen3": ("Qwen3", {"attention_bias": False, "use_sliding_window": False}),
    "qwen3-yarn": ("Qwen3", {"attention_bias": True, "rope_scaling": YARN}),
    "phi3": ("Phi3", {"sliding_window": 200, "original_max_position_embeddings": 512}),
    "phi3-partial": ("Phi3", {"partial_rotary_factor": 0.5, "tie_word_embeddings": True,
                              "original_max_position_embeddings": 512}),
    # transformers wants factors for hidden / heads channels
    "phi3-longrope": ("Phi3", {
        "hidden_size": 72, "original_max_position_embeddings": 16, "rope_scaling": {
        "type": "longrope", "short_factor": [1.0, 1.1, 1.5, 2.0, 2.5, 3.0],
        "long_factor": [1.0, 2.0, 4.5, 8.0, 12.0, 32.0]}}),
    "phi3-longrope-short": ("Phi3", {
        "hidden_size": 72, "original_max_position_embeddings": 256, "max_position_embeddings": 4096,
        "partial_rotary_factor": 0.5, "rope_scaling": {
            "rope_type": "longrope", "short_factor": [1.0, 1.5, 3.0],
            "long_factor": [1.0, 4.5, 32.0]}}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1, 0], "no_rope_layer_interval": 2,
                            "layer_types": ["full_attention"] * 4, "use_sliding_window": False}),
    "smollm3-biases": ("SmolLM3", {"no_rope_layer_interval": 3, "no_rope_layers": None,
                                   "mlp_bias": True, "attention_bias": True}),
    "granite": ("Granite", {
        "attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.6,
        "logits_scaling": 2.0, "mlp_bias": True}),
    "olmo2": ("Olmo2", {"attention_bias": False}),
    "olmo3": ("Olmo3", {"sliding_window": 9, "rope_theta": 500000.0}),
    # transformers scales the layers with a window, too, from 5.0 to some version before 5.24
    "olmo3-yarn": ("Olmo3", {"sliding_window": 11, "layer_types": [SLIDING, FULL] * 2,
                             "rope_theta": 500000.0,
                             "rope_scaling": dict(YARN, attention_factor=1.2)}),
    "exaone4": ("Exaone4", {"sliding_window": 9, "sliding_window_pattern": 3}),
    "exaone4-llama3": ("Exaone4", {"sliding_window": None, "layer_types": [FULL] * 4,
                                   "rope_scaling": LLAMA3}),
    "exaone4-typed": ("Exaone4", {"sliding_window": 14, "layer_types": [SLIDING, FULL] * 2,
                                  "sliding_window_pattern": "LG"}),
    "glm": ("Glm", {"attention_bias": True, "partial_rotary_factor": 0.5}),
    "glm4": ("Glm4", {"attention_bias": False, "partial_rotary_factor": 0.5}),
    "glm4-biases": ("Glm4", {"attention_bias": True, "rope_theta": None, "rope_parameters": {
        "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.84}}),
    "ernie4_5": ("Ernie4_5", {"use_bias": False, "tie_word_embeddings": True}),
    "ernie4_5-biases": ("Ernie4_5", {"use_bias": True, "rope_theta": 500.0}),
    "helium": ("Helium", {"hidden_size": HEADS * WIDTH, "attention_bias": True, "mlp_bias": True,
                          "rms_norm_eps": 1e-8}),
    "seed_oss": ("SeedOss", {"attention_bias": True, "attention_out_bias": False,
                             "mlp_bias": True, "residual_dropout": 0.1}),
    "internlm3": ("InternLM3", {"hidden_size": 48, "bias": False, "qkv_bias": False}),
    "exaone": ("Exaone", {
        "hidden_size": 48, "hidden_act": "absent", "activation_function": "silu",
        "rms_norm_eps": "absent", "layer_norm_epsilon": 1e-5, "num_hidden_layers": "absent",
        "num_layers": LAYERS, "rope_scaling": LLAMA3}),
    "arcee": ("Arcee", {"hidden_size": 48, "hidden_act": "relu2", "rope_scaling": YARN}),
    "arcee-biases": ("Arcee", {"hidden_size": 48, "hidden_act": "relu2", "attention_bias": True,
                               "mlp_bias": True}),
    "nemotron": ("Nemotron", {"hidden_act": "relu2", "rms_norm_eps": "absent", "norm_eps": 1e-5,
                              "partial_rotary_factor": 0.5}),
    "starcoder2": ("Starcoder2", {
        "hidden_act": "gelu_pytorch_tanh", "use_bias": True, "rms_norm_eps": "absent",
        "norm_epsilon": 1e-5, "sliding_window": 21, "tie_word_embeddings": True,
        "hidden_size": HEADS * WIDTH}),
    "phi": ("Phi", {
        "hidden_act": "gelu_new", "rms_norm_eps": "absent", "layer_norm_eps": 1e-5,
        "partial_rotary_factor": 0.4, "hidden_size": HEADS * WIDTH, "qk_layernorm": False}),
    "stablelm": ("StableLm", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-5, "use_qkv_bias": True,
        "partial_rotary_factor": 0.5, "hidden_size": HEADS * WIDTH}),
    "olmo": ("Olmo", {"rms_norm_eps": "absent", "clip_qkv": None}),
    "cohere": ("Cohere", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-5, "logit_scale": 0.25,
        "tie_word_embeddings": True, "use_qk_norm": False}),
    "cohere-biases": ("Cohere", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-4, "attention_bias": True,
        "tie_word_embeddings": True}),
    "cohere2": ("Cohere2", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-5, "logit_scale": 0.5,
        "tie_word_embeddings": True, "sliding_window": 9, "layer_types": [SLIDING, FULL] * 2}),
    "mistral-window": ("Mistral", {"sliding_window": 7}),
    "ministral": ("Ministral", {"sliding_window": 9,
                                "layer_types": [FULL, SLIDING, SLIDING, FULL]}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 17,
                               "max_window_layers": 2}),
    "qwen3-window": ("Qwen3", {"use_sliding_window": True, "sliding_window": 1,
                               "layer_types": [SLIDING, FULL] * 2}),
    "phi3-window": ("Phi3", {"sliding_window": 40, "original_max_position_embeddings": 512}),
    "smollm3-window": ("SmolLM3", {"no_rope_layer_interval": 2, "use_sliding_window": True,
                                   "sliding_window": 12, "no_rope_layers": None}),
    "gemma": ("Gemma", GELU),
    "gemma2": ("Gemma2", dict(GELU, sliding_window=10, query_pre_attn_scalar=16,
                              attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
    # transformers refuses a folder of Gemma 3 unless its heads divide the hidden size
    "gemma3": ("Gemma3", dict(GELU, hidden_size=48, sliding_window=8, sliding_window_pattern=3,
                              rope_theta=1000000.0,
                              query_pre_attn_scalar=12, rope_local_base_freq=100.0,
                              rope_scaling={"rope_type": "linear", "factor": 8.0})),
    "gemma3-nested": ("Gemma3", dict(
        GELU, hidden_size=48, sliding_window=8, layer_types=[SLIDING, FULL, SLIDING, FULL],
        rope_theta=None,
        attention_bias=True, query_pre_attn_scalar=20, final_logit_softcapping=20.0,
        rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 70.0}})),
    "gemma3-wrapped": ("Gemma3", dict(GELU, hidden_size=48, sliding_window=8,
                                      query_pre_attn_scalar=12, layer_types=[SLIDING, FULL] * 2)),
    "gpt_oss": ("GptOss", {
        "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24,
        "attention_bias": True, "sliding_window": 9, "layer_types": [SLIDING, FULL] * 2,
        "swiglu_limit": 1.5, "rope_theta": 150.0, "rope_scaling": dict(
            YARN, beta_fast=32.0, beta_slow=1.0, truncate=False)}),
    # of rows that blocks of 32 fit
    "gpt_oss-blocks": ("GptOss", {
        "num_local_experts": 3, "num_experts_per_tok": 2, "hidden_size": 96,
        "intermediate_size": 32, "attention_bias": True, "sliding_window": 13,
        "layer_types": [SLIDING, FULL, FULL, SLIDING], "experts_per_token": 2,
        "initial_context_length": 16, "swiglu_limit": 3.0, "rope_scaling": YARN}),
    "mixtral": ("Mixtral", {"num_local_experts": 5, "num_experts_per_tok": 2,
                            "intermediate_size": 24, "sliding_window": None,
                            "router_jitter_noise": 0.0}),
    "mixtral-window": ("Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 1,
                                   "intermediate_size": 24, "sliding_window": 13}),
    "qwen2_moe": ("Qwen2Moe", {
        "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 20, "norm_topk_prob": False, "qkv_bias": True,
        "use_sliding_window": False, "decoder_sparse_step": 1, "mlp_only_layers": []}),
    "qwen2_moe-layers": ("Qwen2Moe", {
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 36, "norm_topk_prob": True, "qkv_bias": False,
        "use_sliding_window": False, "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    "qwen3_moe": ("Qwen3Moe", {
        "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
        "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "use_sliding_window": False, "max_window_layers": 4}),
    "qwen3_moe-layers": ("Qwen3Moe", {
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
        "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [0, 2],
        "attention_bias": True, "rope_scaling": YARN}),
    "olmoe": ("Olmoe", {"num_experts": 9, "num_experts_per_tok": 3, "intermediate_size": 20,
                        "hidden_size": HEADS * WIDTH, "norm_topk_prob": False, "clip_qkv": None}),
    "granitemoe": ("GraniteMoe", {
        "num_local_experts": 5, "num_experts_per_tok": 3, "intermediate_size": 24,
        "attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.6,
        "logits_scaling": 2.0}),
    "granitemoeshared": ("GraniteMoeShared", {
        "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24,
        "shared_intermediate_size": 28, "attention_multiplier": 0.3,
        "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 3.0}),
    "glm4_moe": ("Glm4Moe", {
        "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
        "n_shared_experts": 1, "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 1.7, "partial_rotary_factor": 0.5,
        "attention_bias": True, "use_qk_norm": False}),
    "dots1": ("Dots1", {
        "n_routed_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 12,
        "n_shared_experts": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 2,
        "norm_topk_prob": False, "routed_scaling_factor": 0.8, "sliding_window": None}),
    "ernie4_5_moe": ("Ernie4_5_Moe", {
        "moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": 20,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
        "moe_layer_interval": 1, "use_bias": False, "tie_word_embeddings": True}),
    "deepseek_v2": ("DeepseekV2", LATENT),
    "deepseek_v2-lite": ("DeepseekV2", dict(LATENT, q_lora_rank=None, rope_scaling=dict(
        YARN, factor=40.0, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek_v2-biases": ("DeepseekV2", dict(LATENT, attention_bias=True)),
    "deepseek_v2-64": ("DeepseekV2", dict(LATENT, kv_lora_rank=48)),      # blocks of 32 numbers
    "deepseek_v3": ("DeepseekV3", dict(LATENT, rope_scaling=dict(
        YARN, factor=40.0, mscale=1.0, mscale_all_dim=1.0), rope_interleave=True)),
    "deepseek_v3-halves": ("DeepseekV3", dict(
        LATENT, q_lora_rank=None, rope_interleave=False, attention_bias=True, num_mtp_layers=0)),
    # the widths of the published models
    "deepseek_v3-wide": ("DeepseekV3", dict(
        LATENT, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, hidden_size=16)),
    "deepseek_v2-greedy": ("DeepseekV2", dict(
        LATENT, first_k_dense_replace=0, topk_method="greedy", n_group=None, topk_group=None,
        norm_topk_prob=False, scoring_func="softmax")),
    "deepseek_v2-experts": ("DeepseekV2", dict(
        LATENT, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=3,
        topk_group=2, n_routed_experts=6, n_shared_experts=2, routed_scaling_factor=1.8)),
    "deepseek_v3-experts": ("DeepseekV3", dict(
        LATENT, first_k_dense_replace=2, n_group=3, topk_group=2, n_routed_experts=9,
        num_experts_per_tok=3, routed_scaling_factor=2.5, norm_topk_prob=True,
        topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1)),
    "mistral3": ("Mistral", {"sliding_window": None}),
    "mistral3-inner": ("Ministral3", {
        "rope_theta": None, "sliding_window": None, "rope_parameters": dict(
            YARN, rope_theta=5000.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)}),
}
# Families with weights of bf16, as most models are published. Not Gemma: it rounds the root of the
# width, by which it multiplies embeddings, to the type that it computes in, and here that of the
# weights is not that of the oracle.
CASES.update({f"{name}-bf16": CASES[name] for name in (
    "llama", "mistral", "ministral", "qwen2", "qwen3", "phi3", "smollm3", "granite", "olmo2",
    "olmo3", "exaone4", "ministral3", "glm", "glm4", "ernie4_5", "helium", "seed_oss", "internlm3",
    "exaone", "arcee", "nemotron", "starcoder2", "phi", "stablelm", "olmo", "cohere", "cohere2",
    "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "glm4_moe", "dots1",
    "deepseek_v2", "deepseek_v3", "gpt_oss")})
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
               "DeepseekV3": "deepseek_v3", "GptOss": "gpt_oss"}
# Tensors of a layer: those of Llama, and in place of some those that a family has. q, kv, D and F
# are widths; None: there is none.
ATTENTION = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
             "o": "self_attn.o_proj"}
NETWORK = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
STACKED_GATE = {"gate": None, "up": None, "gate_up": "mlp.gate_up_proj"}
OUTER = {"embed": "model.embed_tokens", "layers": "model.layers", "norm": "model.norm",
         "head": "lm_head"}
NAMES = {
    "Phi3": {"q": None, "k": None, "v": None, "qkv": "self_attn.qkv_proj", **STACKED_GATE},
    "Glm": STACKED_GATE, "Glm4": STACKED_GATE,
    "Arcee": {"gate": None}, "Nemotron": {"gate": None},
    "Starcoder2": {"gate": None, "up": "mlp.c_fc", "down": "mlp.c_proj"},
    "Phi": {"gate": None, "up": "mlp.fc1", "down": "mlp.fc2", "o": "self_attn.dense",
            "norm": "model.final_layernorm"},
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
    "Qwen2Moe": dict(SPARSE, shared="mlp.shared_expert.", score="mlp.shared_expert_gate"),
    "Qwen3Moe": SPARSE, "Olmoe": SPARSE, "GraniteMoe": GRANITE,
    "GraniteMoeShared": dict(GRANITE, shared_all="shared_mlp."),
    "Glm4Moe": SHARED, "Dots1": SHARED, "DeepseekV3": SHARED,
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
}
BIASED_NORMS = ("Starcoder2", "Phi", "StableLm", "Nemotron")
O_PLAIN = ("Glm", "Glm4", "SeedOss", "Helium", "StableLm", "Qwen2", "Qwen2Moe",
           "Glm4Moe")                   # o has no bias
# what says whether projections have biases, where it is not attention_bias and mlp_bias; or whether
# they have
BIAS_KEYS = {"Qwen2": (True, False), "Phi": (True, True), "Starcoder2": ("use_bias", "use_bias"),
             "Ernie4_5": ("use_bias", "use_bias"), "StableLm": ("use_qkv_bias", False),
             "Qwen2Moe": ("qkv_bias", False)}


def is_bf16(name):
    return name.endswith("-bf16")


def config(name):
    family, more = CASES[name]
    base = {
        "architectures": [family + "ForCausalLM"],
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
    nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    biased = c.get("attention_bias", False)
    if Q is None:
        yield "self_attn.q_proj", H * (nope + rope), D, False
    else:
        yield "self_attn.q_a_proj", Q, D, biased
        yield "self_attn.q_b_proj", H * (nope + rope), Q, False
    yield "self_attn.kv_a_proj_with_mqa", rank + rope, D, biased
    yield "self_attn.kv_b_proj", H * (nope + v), rank, False
    yield "self_attn.o_proj", D, H * v, biased


def projections(name, c, layer):
    """(tensor, rows, columns, with a bias) of a layer's matrices, without experts."""
    family = CASES[name][0]
    if "kv_lora_rank" in c:
        yield from latent_attention(c)
    names = {**ATTENTION, **NETWORK, **NAMES.get(family, {})}
    q, kv, D = HEADS * WIDTH, KV_HEADS * WIDTH, c["hidden_size"]
    shape = {"qkv": (q + 2 * kv, D), "q": (q, D), "k": (kv, D), "v": (kv, D), "o": (D, q),
             "gate_up": (2 * FFN, D), "gate": (FFN, D), "up": (FFN, D), "down": (D, FFN)}
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
    """(tensor, width) of a layer's norms."""
    c = CASES[name][1]
    if "kv_lora_rank" in c:
        latent = [("self_attn.q_a_layernorm", c["q_lora_rank"]),
                  ("self_attn.kv_a_layernorm", c["kv_lora_rank"])]
        return [(tensor, D) for tensor, _ in BEFORE] + [one for one in latent if one[1]]
    width = {"D": D, "E": WIDTH, "q": HEADS * WIDTH, "kv": KV_HEADS * WIDTH}
    return [(tensor, width[by]) for tensor, by in NORMS.get(CASES[name][0], BEFORE)]


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
        for tensor, width in norms(name, D):
            yield f"{layer}{tensor}.weight", (width,)
            if family in BIASED_NORMS:
                yield f"{layer}{tensor}.bias", (width,)
    if family != "Olmo":
        yield f"{names['norm']}.weight", (D,)
    if family in BIASED_NORMS:
        yield f"{names['norm']}.bias", (D,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (VOCAB, D)
    if family == "Phi":
        yield "lm_head.bias", (VOCAB,)
    if name in WRAPPED:                 # a part that sees images
        yield VISION_TENSOR, (3,)


VISION_TENSOR = "vision_tower.no_such.weight"


def values(rng, tensor, shape):
    """Matrices and biases: even, with standard deviation 0.3; norm weights 0.5 to 1.5; multiples of
    2^-12."""
    n = int(np.prod(shape))
    x = np.array([rng.random() for _ in range(n)]) * 2 - 1
    is_norm = tensor.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))
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
