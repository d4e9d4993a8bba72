"""family_cases - the cases of mkfamily.py: a class of transformers, and what its configuration has
beside or in place of the common keys ("absent": not even these)"""

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
DENSE_LATENT = {**{key: v for key, v in LATENT.items() if "expert" not in key and
                   key not in ("first_k_dense_replace", "moe_intermediate_size")},
                "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16, "hidden_size": 48,
                "tie_word_embeddings": True}
# queries, keys and values of a head together, with as many KV heads as query heads
NEOX = {"hidden_size": HEADS * WIDTH, "hidden_act": "gelu", "rms_norm_eps": "absent",
        "layer_norm_eps": 1e-5, "head_dim": "absent", "num_key_value_heads": "absent",
        "rope_theta": "absent", "rotary_pct": 0.5, "rotary_emb_base": 10000,
        "use_parallel_residual": True, "attention_bias": True, "hidden_dropout": 0.0}
FALCON = {"hidden_size": HEADS * WIDTH, "hidden_act": "absent", "activation": "gelu",
          "rms_norm_eps": "absent", "layer_norm_epsilon": 1e-5, "head_dim": "absent",
          "num_key_value_heads": "absent", "intermediate_size": "absent", "bias": False,
          "alibi": False, "parallel_attn": True, "multi_query": True,
          "tie_word_embeddings": True, "hidden_dropout": 0.0}
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
    "kimi_k2": ("KimiK2", dict(LATENT, rope_scaling=dict(
        YARN, type="yarn", beta_fast=1.0, beta_slow=1.0, factor=32.0, mscale=1.0,
        mscale_all_dim=1.0), num_nextn_predict_layers=0)),
    "kimi_k2-experts": ("KimiK2", dict(
        LATENT, first_k_dense_replace=1, n_group=1, topk_group=1, n_routed_experts=7,
        num_experts_per_tok=3, routed_scaling_factor=2.827, norm_topk_prob=True,
        topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1)),
    "glm4_moe_lite": ("Glm4MoeLite", dict(
        LATENT, first_k_dense_replace=1, n_group=1, topk_group=1, n_routed_experts=6,
        num_experts_per_tok=3, routed_scaling_factor=1.8, norm_topk_prob=True,
        topk_method="noaux_tc", rope_theta=500.0, partial_rotary_factor=1.0,
        qk_nope_head_dim=20, v_head_dim=32, num_nextn_predict_layers=1)),
    "glm4_moe_lite-types": ("Glm4MoeLite", dict(
        LATENT, first_k_dense_replace=3, n_group=2, topk_group=1, n_routed_experts=6,
        num_experts_per_tok=2, routed_scaling_factor=0.7, norm_topk_prob=False,
        attention_bias=True, q_lora_rank=None, rope_interleave=False,
        mlp_layer_types=["dense"] * 3 + ["sparse"])),
    "minicpm3": ("MiniCPM3", dict(
        DENSE_LATENT, rope_scaling={
            "type": "longrope", "original_max_position_embeddings": 16,
            "short_factor": [1.0, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0],
            "long_factor": [1.0, 2.0, 3.0, 4.5, 8.0, 12.0, 20.0, 32.0]})),
    "minicpm3-biases": ("MiniCPM3", dict(
        DENSE_LATENT, attention_bias=True, mlp_bias=True, q_lora_rank=None, hidden_size=36,
        v_head_dim="absent", tie_word_embeddings=False)),
    "minicpm": ("MiniCPM", {
        "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16, "hidden_size": 72,
        "tie_word_embeddings": True, "mup_denominator": 32}),
    "minicpm-longrope": ("MiniCPM", {
        "scale_emb": 3.5, "scale_depth": 0.9, "dim_model_base": 64, "hidden_size": 72,
        "rope_scaling": {
            "rope_type": "longrope", "original_max_position_embeddings": 16,
            "short_factor": [1.0, 1.1, 1.5, 2.0, 2.5, 3.0],
            "long_factor": [1.0, 2.0, 4.5, 8.0, 12.0, 32.0]}}),
    "cohere-normed": ("Cohere", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-5, "logit_scale": 0.8,
        "tie_word_embeddings": True, "use_qk_norm": True}),
    "glm4_moe-normed": ("Glm4Moe", {
        "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 20,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 2,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "partial_rotary_factor": 0.5,
        "attention_bias": True, "use_qk_norm": True}),
    "stablelm-12b": ("StableLm", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-5, "use_qkv_bias": False,
        "partial_rotary_factor": 0.5, "hidden_size": HEADS * WIDTH, "qk_layernorm": True,
        "use_parallel_residual": True}),
    "stablelm-normed": ("StableLm", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-4, "use_qkv_bias": True,
        "partial_rotary_factor": 0.5, "hidden_size": HEADS * WIDTH, "qk_layernorm": True,
        "use_parallel_residual": False}),
    "stablelm-parallel": ("StableLm", {
        "rms_norm_eps": "absent", "layer_norm_eps": 1e-5, "use_qkv_bias": False,
        "partial_rotary_factor": 0.5, "hidden_size": HEADS * WIDTH, "qk_layernorm": False,
        "use_parallel_residual": True}),
    "olmo-clip": ("Olmo", {"rms_norm_eps": "absent", "clip_qkv": 3.0}),
    "olmoe-clip": ("Olmoe", {"num_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20,
                             "hidden_size": HEADS * WIDTH, "norm_topk_prob": True,
                             "clip_qkv": 1.5}),
    "gpt_neox": ("GPTNeoX", NEOX),
    "gpt_neox-in-turn": ("GPTNeoX", dict(
        NEOX, use_parallel_residual=False, rotary_pct=1.0, rotary_emb_base=500,
        attention_bias=False, tie_word_embeddings=True)),
    "falcon": ("Falcon", dict(
        FALCON, new_decoder_architecture=False, num_kv_heads=HEADS, ffn_hidden_size=FFN)),
    "falcon-40b": ("Falcon", dict(
        FALCON, new_decoder_architecture=True, num_kv_heads=KV_HEADS, multi_query=True)),
    "falcon-11b": ("Falcon", dict(
        FALCON, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1,
        bias=True, rope_theta=500.0, tie_word_embeddings=False, ffn_hidden_size=FFN)),
    "internlm2": ("InternLM2", {
        "bias": False, "hidden_size": 48, "rope_theta": 500.0,
        "rope_scaling": {"type": "dynamic", "factor": 2.0}, "attn_implementation": "eager"}),
    "internlm2-biases": ("InternLM2", {"bias": True, "hidden_size": HEADS * WIDTH}),
    "minimax_m2": ("MiniMaxM2", {
        "num_local_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 24,
        "rotary_dim": 6, "use_qk_norm": True, "qk_norm_type": "per_layer",
        "scoring_func": "sigmoid", "use_routing_bias": True, "shared_intermediate_size": 0,
        "attn_type_list": [1] * LAYERS, "use_mtp": True, "num_mtp_modules": 3}),
    "cwm": ("Cwm", {"sliding_window": 9, "hidden_size": 48, "rope_scaling": LLAMA3,
                    "layer_types": [FULL, SLIDING, SLIDING, FULL]}),
    "mimo": ("MiMo", {"use_sliding_window": False, "attention_bias": True, "hidden_size": 48,
                      "num_nextn_predict_layers": 1, "rope_theta": 640000}),
    "apertus": ("Apertus", {"hidden_act": "xielu", "rope_scaling": LLAMA3, "qk_norm": True,
                            "post_norm": False, "mlp_bias": False}),
    "apertus-biases": ("Apertus", {"hidden_act": "xielu", "attention_bias": True,
                                   "rope_scaling": {"type": "linear", "factor": 2.0}}),
    "phimoe": ("PhiMoE", {
        "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24,
        "hidden_size": HEADS * WIDTH, "attention_bias": True, "lm_head_bias": True,
        "router_jitter_noise": 0.15, "sliding_window": None, "rope_scaling": {
            "type": "longrope", "original_max_position_embeddings": 16,
            "short_factor": [1.0, 1.1, 1.5, 2.0, 2.5, 3.0], "short_mscale": 1.2,
            "long_factor": [1.0, 2.0, 4.5, 8.0, 12.0, 32.0], "long_mscale": 1.2}}),
    "phimoe-window": ("PhiMoE", {
        "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20,
        "router_jitter_noise": 0.3, "sliding_window": 11, "tie_word_embeddings": False}),
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
    "deepseek_v2", "deepseek_v3", "gpt_oss", "kimi_k2", "glm4_moe_lite", "minicpm3", "minicpm",
    "apertus", "phimoe", "gpt_neox", "falcon", "internlm2", "minimax_m2", "cwm", "mimo")})
