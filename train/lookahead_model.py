"""A frozen transformers model, and the trained rows that guess what the answer will attend to.

LookaheadKV (2026), sections 3.1 and 3.2: n learned embeddings stand behind a prompt of T
tokens, at positions T .. T+n-1, and run through the model with LoRA on these rows only. The score
of prompt token j in query head h of layer l is the mean over the rows of their softmax attention
to j; prompt keys and the learned rows' own keys are in the softmax.

`FrozenModel` runs layers of a model with the model's own modules, weights and rotary embedding, on
any rows behind any cache. `Adapter` holds what is trained. Nothing here draws data or trains.

Letters: L layers, Q questions side by side, N rows of a call, D model width, H query heads, G KV
heads, R = H/G, E head width, S rows of a cache, T prompt tokens, n learned rows.
"""

import math
import os

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM
from transformers.utils import logging
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from failures import BrokenFile, Refused

# Families whose layers are those of Llama; Qwen2 adds biases, Qwen3 norms of queries and keys.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
# Their frequencies depend on the length of the text, so that a key would not stay what it is.
REFUSED_ROPE = ("dynamic", "longrope")

ATTENTION_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj")
FFN_MODULES = ("gate_proj", "up_proj", "down_proj")
MODULES = ATTENTION_MODULES + FFN_MODULES
# Nothing behind the keys and queries of the last layer reaches a score.
LAST_LAYER_MODULES = ("q_proj", "k_proj")


def module_path(name):
    """Where a linear stands in a layer: 'self_attn.q_proj'."""
    return ("self_attn." if name in ATTENTION_MODULES else "mlp.") + name


def check_config(config):
    """Refuses by name what FrozenModel would compute wrongly."""
    if config.model_type not in FAMILIES:
        raise Refused(f"models of the family {config.model_type} are not handled, only "
                      + ", ".join(FAMILIES))
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in REFUSED_ROPE:
        raise Refused(f"rope scaling {kind} is not handled: it changes with the length of the text")
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()) or (
            config.model_type == "mistral" and getattr(config, "sliding_window", None)):
        raise Refused("layers with a sliding window are not handled")


def read_model(folder, dtype, **how):
    """A transformers model from a folder."""
    logging.disable_progress_bar()
    if not os.path.exists(os.path.join(folder, "config.json")):
        raise BrokenFile(f"{folder}: there is no config.json")
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True,
                                                    **how)
    except (OSError, ValueError, KeyError) as problem:
        raise BrokenFile(f"{folder}: {problem}") from problem


class Cache:
    """Keys and values of each layer, in f32, in two parts: those of a document that all questions
    share, `document`, [1, G, S, E], and those of each question, `own`, [Q, G, S, E]. Either may be
    empty. The last layer's values may be None."""

    def __init__(self, document=None, own=None):
        self.document, self.own = document, own

    def parts(self, layer, k, v):
        """All that rows with these keys and values see: (document or None, own with them)."""
        if self.own is not None:
            old_k, old_v = self.own[layer]
            k = torch.cat([old_k, k], 2)
            v = None if v is None else torch.cat([old_v, v], 2)
        return self.document and self.document[layer], (k, v)


class GrowingCache(Cache):
    """A cache with room for tokens that are decoded one by one; `used` own rows are in use."""

    def __init__(self, cache, room):
        def grow(old):
            new = old.new_zeros((*old.shape[:2], old.shape[2] + room, old.shape[3]))
            new[:, :, :old.shape[2]] = old
            return new
        self.used = cache.own[0][0].shape[2]
        super().__init__(cache.document, [(grow(k), grow(v)) for k, v in cache.own])

    def parts(self, layer, k, v):
        keys, values = self.own[layer]
        end = self.used + k.shape[2]
        keys[:, :, self.used:end] = k
        values[:, :, self.used:end] = v
        return self.document and self.document[layer], (keys[:, :, :end], values[:, :, :end])


class FrozenModel:
    """A causal language model whose weights stay as they are."""

    def __init__(self, model):
        check_config(model.config)
        self.model = model.eval().requires_grad_(False)
        self.config = model.config
        self.layers = model.model.layers
        self.device = model.device
        self.dtype = model.model.embed_tokens.weight.dtype
        # of queries, keys and all that follows from them
        self.wide = torch.promote_types(self.dtype, torch.float32)
        first = self.layers[0].self_attn
        self.head_width = first.head_dim
        self.heads = first.q_proj.out_features // first.head_dim
        self.kv_heads = first.k_proj.out_features // first.head_dim

    @classmethod
    def load(cls, folder, dtype=torch.float32, device="cpu"):
        """From a model folder."""
        return cls(read_model(folder, dtype).to(device))

    @property
    def last(self):
        """The number of the last layer."""
        return len(self.layers) - 1

    def embed(self, ids):
        """[..., N] token ids -> [..., N, D]."""
        return self.model.model.embed_tokens(ids)

    def logits(self, hidden):
        """[..., D] -> [..., V], the final norm included."""
        return self.model.lm_head(self.model.model.norm(hidden)).to(self.wide)

    def stop_ids(self):
        """Ids of tokens that end an answer."""
        ids = self.model.generation_config.eos_token_id
        ids = self.config.eos_token_id if ids is None else ids
        return set(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])

    def rotary(self, positions):
        """cos and sin of [Q, N] positions, as the model has them."""
        like = torch.empty(0, dtype=self.wide, device=self.device)
        return self.model.model.rotary_emb(like, positions)

    def linear(self, layer, name, x, adapter):
        """x W^T + b of one linear, and of its LoRA."""
        block = self.layers[layer]
        y = getattr(block.self_attn if name in ATTENTION_MODULES else block.mlp, name)(x)
        return y if adapter is None else adapter.add(layer, name, x, y)

    def queries_keys(self, layer, x, rotary, adapter=None):
        """Of normed rows [Q, N, D]: queries [Q, H, N, E] and keys [Q, G, N, E], turned, f32."""
        attention = self.layers[layer].self_attn
        shape = (*x.shape[:2], -1, self.head_width)
        q = self.linear(layer, "q_proj", x, adapter).view(shape)
        k = self.linear(layer, "k_proj", x, adapter).view(shape)
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        q, k = q.transpose(1, 2).to(self.wide), k.transpose(1, 2).to(self.wide)
        return apply_rotary_pos_emb(q, k, *rotary)

    def attend(self, layer, q, document, own, mask):
        """Attention of queries [Q, H, N, E] to keys of the document and each question's own.

        mask: [Q, N, M], added to the logits of the last M columns; every row sees those before.
        None: every row sees all. No values: no output.
        Returns (output [Q, N, H*E] or None, attention [G, Q, R, N, S]).
        """
        count, _, rows, width = q.shape
        groups, (keys, values) = self.kv_heads, own
        # [G, Q, R*N, E]: for the document the questions are but more rows
        q = (q * self.layers[layer].self_attn.scaling).reshape(count, groups, -1, width)
        q = q.transpose(0, 1)
        logits = q @ keys.transpose(0, 1).transpose(2, 3)
        if mask is not None:
            repeats = self.heads // groups
            logits[..., -mask.shape[-1]:] += mask.repeat(1, repeats, 1)
        shared = 0
        if document is not None:
            shared = document[0].shape[2]
            first = q.reshape(groups, -1, width) @ document[0][0].transpose(1, 2)
            logits = torch.cat([first.view(*logits.shape[:3], shared), logits], 3)
        attention = logits.softmax(-1)
        weights = attention.view(groups, count, -1, rows, attention.shape[-1])
        if values is None:
            return None, weights
        # one split, whose gradient is one concatenation
        before, behind = attention.split((shared, attention.shape[-1] - shared), 3)
        output = behind @ values.transpose(0, 1)
        if document is not None:
            output = output + (before.flatten(1, 2) @ document[1][0]).view(output.shape)
        output = output.transpose(0, 1).reshape(count, self.heads, rows, width)
        return self.joined(output), weights

    def attend_causally(self, layer, q, k, v):
        """Attention of rows that nothing stands before: output [Q, N, H*E]."""
        repeats = self.heads // self.kv_heads
        return self.joined(functional.scaled_dot_product_attention(
            q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1), is_causal=True,
            scale=self.layers[layer].self_attn.scaling))

    def joined(self, output):
        """[Q, H, N, E] -> [Q, N, H*E], in the type of the weights."""
        return output.transpose(1, 2).flatten(2).to(self.dtype)

    def run(self, x, positions, past=None, mask=None, adapter=None, see=None, store=True,
            until_scores=False):
        """Rows x [Q, N, D] at positions [Q, N] through all layers.

        past: a Cache that stands before; None: nothing does, and the rows are causal.
        mask: as in attend(), over the end of the past and then the rows themselves.
        see: a function (layer, q, k, attention) that gets turned queries [Q, H, N, E] and keys of
            the rows and their attention as attend() returns it.
        store: return the keys and values of the rows.
        until_scores: stop where the attention of the last layer is known.
        Returns (hidden [Q, N, D] before the final norm, or None; [(keys, values)] of the rows).
        """
        rotary, made = self.rotary(positions), []
        for number, layer in enumerate(self.layers):
            ends = until_scores and number == self.last
            normed = layer.input_layernorm(x)
            q, k = self.queries_keys(number, normed, rotary, adapter)
            v = None
            if not ends:
                v = self.linear(number, "v_proj", normed, adapter)
                v = v.view(*x.shape[:2], self.kv_heads, -1).transpose(1, 2).to(self.wide)
            if past is None:
                output = self.attend_causally(number, q, k, v)
            else:
                output, attention = self.attend(number, q, *past.parts(number, k, v), mask)
                if see is not None:
                    see(number, q, k, attention)
            if store:
                made.append((k, v))
            if ends:
                return None, made
            x = x + self.linear(number, "o_proj", output, adapter)
            x = x + self.ffn(number, layer.post_attention_layernorm(x), adapter)
        return x, made

    def ffn(self, layer, x, adapter):
        gate = self.linear(layer, "gate_proj", x, adapter)
        up = self.linear(layer, "up_proj", x, adapter)
        return self.linear(layer, "down_proj", self.layers[layer].mlp.act_fn(gate) * up, adapter)

    @torch.no_grad()
    def prefix(self, ids):
        """[(keys, values)] of a text that nothing stands before."""
        ids = torch.as_tensor(ids, device=self.device)[None]
        positions = torch.arange(ids.shape[1], device=self.device)[None]
        made = self.run(self.embed(ids), positions)[1]
        return [(k.contiguous(), v.contiguous()) for k, v in made]


class Adapter(torch.nn.Module):
    """What is trained: learned embeddings [n, D], and LoRA matrices A [r, in] and B [out, r].

    y = x W^T + (alpha / r) (x A^T) B^T; B begins at zero, so that at first nothing is added.
    """

    def __init__(self, model, tokens=32, rank=8, alpha=32, modules=MODULES, init="tokens"):
        super().__init__()
        if rank == 0:
            modules = ()
        self.tokens, self.rank, self.alpha, self.init = tokens, rank, alpha, init
        self.modules_with_lora = tuple(name for name in MODULES if name in modules)
        self.scale = alpha / rank if rank else 0.0
        self.P = torch.nn.Parameter(self.first_rows(model.model.model.embed_tokens.weight.float()))
        self.A = torch.nn.ParameterDict()
        self.B = torch.nn.ParameterDict()
        for layer, block in enumerate(model.layers):
            for name in self.modules_with_lora:
                if layer == model.last and name not in LAST_LAYER_MODULES:
                    continue
                linear = block.get_submodule(module_path(name))
                bound = 1 / math.sqrt(linear.in_features)
                a = torch.empty(rank, linear.in_features).uniform_(-bound, bound)
                self.A[f"{layer} {name}"] = torch.nn.Parameter(a)
                self.B[f"{layer} {name}"] = torch.nn.Parameter(
                    torch.zeros(linear.out_features, rank))
        self.to(model.device)

    def first_rows(self, embeddings):
        """[n, D]: embeddings of tokens drawn at random, or their mean with noise of their size."""
        if self.init == "tokens":
            return embeddings[torch.randint(0, len(embeddings), (self.tokens,))].clone()
        noise = torch.randn(self.tokens, embeddings.shape[1]) * embeddings.std(0)
        return embeddings.mean(0) + noise

    def settings(self):
        return {"tokens": self.tokens, "rank": self.rank, "alpha": self.alpha, "init": self.init,
                "modules": list(self.modules_with_lora)}

    def add(self, layer, name, x, y):
        """y with the part of LoRA added."""
        key = f"{layer} {name}"
        if key not in self.A:
            return y
        a, b = self.A[key].to(x.dtype), self.B[key].to(x.dtype)
        return y + self.scale * functional.linear(functional.linear(x, a), b)

    def tensors(self):
        """Names and tensors as the adapter file has them."""
        return {file_name(name): tensor for name, tensor in self.state_dict().items()}


def file_name(name):
    """What the adapter file calls a parameter of Adapter: 'P', 'A.0 q_proj', 'B.0 q_proj'."""
    if name == "P":
        return "lookahead.embeddings"
    matrix, layer, linear = name.replace(".", " ").split()
    return f"base_model.model.model.layers.{layer}.{module_path(linear)}.lora_{matrix}.weight"
