"""Attention whose KV heads are a mixture of the full and the streaming kind, in any model of
transformers that takes its attention from the interface of registered functions.

A streaming head sees the first `sink` and the last `recent` positions, in whole blocks of `block`
positions as the block-sparse kernels of DuoAttention and PruLong have it: ceil(sink / block) blocks
at the beginning, and ceil(recent / block) blocks that end with the query's own. block = 1 is the
exact window: `recent` positions, the query's own counted.

Letters: B texts side by side, T tokens, H query heads, G KV heads, R = H/G, E head width, L layers.
"""

import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, modeling_utils

from failures import BrokenFile, Refused

NAME = "kvpipe_heads"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
QUERIES_AT_ONCE = 128


def full_attention(q, k, v, scale):
    """Causal attention. q [B, H, T, E], k and v [B, G, T, E]; returns [B, H, T, E]."""
    group = q.shape[1] // k.shape[1]
    return functional.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True,
        scale=scale)


def take(x, sinks, start, end):
    """Positions [0, sinks) and [start, end) of x [B, G, T, E]; sinks <= start."""
    if sinks == start:
        return x[:, :, :end]
    return torch.cat((x[:, :, :sinks], x[:, :, start:end]), 2)


def streaming_attention(q, k, v, scale, sink, recent, block=1):
    """As full_attention(), of streaming heads. Queries run in groups that share their keys, so that
    memory grows with T (sink + recent) and no mask is T x T."""
    batch, heads, tokens, width = q.shape
    groups = k.shape[1]
    sinks, locals_ = -(-sink // block) * block, -(-recent // block)
    step = max(1, QUERIES_AT_ONCE // block) * block
    parts = []
    for begin in range(0, tokens, step):
        end = min(begin + step, tokens)
        start = max(0, (begin // block - locals_ + 1) * block)
        first = min(sinks, start)
        rows = torch.arange(begin, end, device=q.device)[:, None]
        columns = torch.cat((torch.arange(first, device=q.device),
                             torch.arange(start, end, device=q.device)))
        seen = (columns <= rows) & ((columns < sinks)
                                    | (columns // block > rows // block - locals_))
        # the query heads of a KV head stand behind each other as rows, so that keys are not copied
        rows_q = q[:, :, begin:end].reshape(batch, groups, -1, width)
        out = functional.scaled_dot_product_attention(
            rows_q, take(k, first, start, end), take(v, first, start, end),
            attn_mask=seen.repeat(heads // groups, 1), scale=scale)
        parts.append(out.reshape(batch, heads, end - begin, width))
    return torch.cat(parts, 2)


class HeadMixer:
    """What the attention of a model does now. `mode`:

    full        the model's own attention
    record      the same; the outputs are kept in `teacher`, a tensor [B, H, T, E] a layer
    mixed       weights[l] x full + (1 - weights[l]) x streaming, of the same q, k, v (PruLong)
    distilled   weights[l] x teacher[l] + (1 - weights[l]) x streaming (DuoAttention: the teacher
                path's output, without gradient)

    `weights`: [L, G], with or without gradient.
    """

    def __init__(self, sink, recent, block):
        self.sink, self.recent, self.block = sink, recent, block
        self.mode, self.weights, self.teacher = "full", None, []

    def attend(self, layer, q, k, v, scale):
        if self.mode in ("full", "record"):
            out = full_attention(q, k, v, scale)
            if self.mode == "record":
                self.teacher.append(out)
            return out
        full = self.teacher[layer] if self.mode == "distilled" else full_attention(q, k, v, scale)
        streaming = streaming_attention(q, k, v, scale, self.sink, self.recent, self.block)
        weight = self.weights[layer].to(q.dtype).repeat_interleave(q.shape[1] // k.shape[1])
        weight = weight[None, :, None, None]
        return weight * full + (1 - weight) * streaming


def attend(module, query, key, value, _mask, scaling, **_options):
    """The function that transformers calls: [B, H, T, E] in, [B, T, H, E] out."""
    out = module.head_mixer.attend(module.layer_idx, query, key, value, scaling)
    return out.transpose(1, 2).contiguous(), None


modeling_utils.ALL_ATTENTION_FUNCTIONS.register(NAME, attend)


def check_config(path, config, longest):
    """Refuses by name what would be computed wrongly."""
    if config.model_type not in FAMILIES:
        raise Refused(f"{path}: models of the family {config.model_type} are not handled, only "
                      + ", ".join(FAMILIES))
    window = getattr(config, "sliding_window", None)
    slides = config.model_type == "mistral" or "sliding_attention" in (
        getattr(config, "layer_types", None) or ())
    if slides and window and window < longest:
        raise Refused(f"{path}: layers with a sliding window of {window} are handled up to texts "
                      f"of that length, not of {longest}")


def install(model, mixer):
    """Freezes the model and makes the mixer its attention. Returns L, G."""
    model.eval().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.head_mixer = mixer
    model.set_attn_implementation(NAME)
    return len(model.model.layers), model.config.num_key_value_heads


def load_model(path, mixer, dtype, device, longest):
    """The frozen causal language model of a folder, with `mixer` as its attention."""
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        check_config(path, config, longest)
        model = AutoModelForCausalLM.from_pretrained(path, config=config, dtype=dtype,
                                                     local_files_only=True).to(device)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError) as problem:
        raise BrokenFile(f"{path}: no model: {str(problem).splitlines()[0]}") from None
    install(model, mixer)
    return model
