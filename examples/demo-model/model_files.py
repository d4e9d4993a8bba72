"""Reads and writes the model folder: config.json and model.safetensors,
as Hugging Face names them."""

import json
import os
import struct

import torch

from model import Config, Model

CONFIG_NAMES = {                     # Config field -> key of config.json
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_width": "head_dim",
    "ffn": "intermediate_size",
    "theta": "rope_theta",
    "eps": "rms_norm_eps",
    "max_position": "max_position_embeddings",
}
LAYER_NAMES = {                      # Layer attribute -> name of the tensor
    "norm_att": "input_layernorm",
    "norm_ffn": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def named_tensors(model):
    """The model's tensors under their names in the file, in the file's order."""
    tensors = {"model.embed_tokens.weight": model.embedding.weight}
    for number, layer in enumerate(model.layers):
        for attribute, name in LAYER_NAMES.items():
            value = getattr(layer, attribute)
            tensor = value.weight if hasattr(value, "weight") else value
            tensors[f"model.layers.{number}.{name}.weight"] = tensor
    tensors["model.norm.weight"] = model.norm
    return tensors


def save_safetensors(path, model):
    """Writes the weights, rounded to bf16."""
    header = {"__metadata__": {"format": "pt"}}
    buffers, offset = [], 0
    for name, tensor in named_tensors(model).items():
        rounded = tensor.detach().float().contiguous().bfloat16()
        data = rounded.view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        buffers.append(data)
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded + b"".join(buffers))


def load_model(folder):
    """The model of a folder, its weights widened to f32."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        content = json.load(file)
    model = Model(Config(**{field: content[key] for field, key in CONFIG_NAMES.items()}))
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        raw = file.read()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:start])
    dtypes = {"BF16": torch.bfloat16, "F32": torch.float32}
    for name, tensor in named_tensors(model).items():
        entry = header[name]
        begin, end = (start + offset for offset in entry["data_offsets"])
        data = torch.frombuffer(bytearray(raw[begin:end]), dtype=dtypes[entry["dtype"]])
        tensor.data.copy_(data.view(entry["shape"]).float())
    return model
