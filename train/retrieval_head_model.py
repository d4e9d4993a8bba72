"""The retrieval head of SpeContext, the model that it learns from, and the texts.

SpeContext (2025), section 4.3, takes the draft layer of EAGLE-3, prunes it to norms and projections
of queries and keys, and lets its attention weights choose what every layer reads (kv-head(5) has
the formulas). A draft is trained to guess tokens; here the head is trained for what it is used for:
its weights are to be those of the model's own attention, taken over all layers.

Letters: L layers, H query heads, G choices, R = H/G, E head width, D model width, T tokens of a
text, P sampled positions, whose tokens ask. A choice is for each KV head of the model, or, with
latent attention, for each query head.
"""

import math
import random

import torch
from torch.nn import functional

from lookahead_data import right_answer
from lookahead_model import FrozenModel, read_model
from lookahead_prompts import text_group, demo_group

FEATURES = 3
LATENT = ("deepseek_v2", "deepseek_v3")


class Head(torch.nn.Module):
    """q = W_q [e; f], k = W_k [e; f]: e the normed embedding of a token, f the normed fc of what
    the residual stream of the token before is in front of three layers; alone: e only."""

    def __init__(self, model, layers, alone=False, seed=1):
        super().__init__()
        config = model.config
        self.layers, self.alone = layers, alone
        self.heads, self.kv_heads, self.choices = model.heads, model.kv_heads, choices_of(model)
        self.width, self.eps = model.head_width, config.rms_norm_eps
        self.theta = (getattr(config, "rope_parameters", None) or {}).get(
            "rope_theta", getattr(config, "rope_theta", 10000.0))
        size = config.hidden_size
        make = torch.Generator().manual_seed(seed)

        def weight(rows, columns):
            w = torch.randn(rows, columns, generator=make) / math.sqrt(columns)
            return torch.nn.Parameter(w)

        wide = size if alone else 2 * size
        self.norm = torch.nn.Parameter(torch.ones(size))
        self.q = weight(self.heads * self.width, wide)
        self.k = weight(self.kv_heads * self.width, wide)
        if not alone:
            self.hidden_norm = torch.nn.Parameter(torch.ones(size))
            self.fc = weight(size, FEATURES * size)

    def rmsnorm(self, x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * w

    def turn(self, x, positions):
        """Rotary embedding of x [N, heads, E]."""
        half = self.width // 2
        freq = self.theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = (positions[:, None].double() * freq)[:, None]
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def logits(self, embedded, streams, asks):
        """[H, P, T]: embedded [T, D], streams [T, 3 D] in front of the three layers."""
        u = self.rmsnorm(embedded, self.norm)
        if not self.alone:
            before = functional.pad(streams[:-1] @ self.fc.T, (0, 0, 1, 0))
            f = self.rmsnorm(before, self.hidden_norm)
            u = torch.cat([u, f], 1)
        every = torch.arange(len(u))
        q = self.turn((u[asks] @ self.q.T).view(len(asks), self.heads, -1), asks)
        k = self.turn((u @ self.k.T).view(len(u), self.kv_heads, -1), every)
        k = k.repeat_interleave(self.heads // self.kv_heads, 1)
        return torch.einsum("phe,the->hpt", q, k) / math.sqrt(self.width)

    def weights(self, embedded, streams, asks):
        """log of the greatest softmax weight among the query heads of each choice [G, P, T]."""
        logits = self.logits(embedded, streams, asks).masked_fill(hidden(asks, len(embedded)),
                                                                  -math.inf)
        return logits.log_softmax(-1).unflatten(0, (self.choices, -1)).amax(1)

    def tensors(self):
        """By their names in a checkpoint."""
        named = {"midlayer.input_layernorm.weight": self.norm,
                 "midlayer.self_attn.q_proj.weight": self.q,
                 "midlayer.self_attn.k_proj.weight": self.k}
        if not self.alone:
            named |= {"midlayer.hidden_norm.weight": self.hidden_norm, "fc.weight": self.fc}
        return {name: w.detach() for name, w in named.items()}


def hidden(asks, length):
    """[P, T]: rows that a token does not see."""
    return torch.arange(length) > asks[:, None]


# ---- the model ----

class LatentModel:
    """A model with latent attention. Its head has as many query heads as it has, each for a choice
    of its own, and one KV head: keys of every query head would be as large as the latent vectors of
    many layers."""

    def __init__(self, model):
        self.model = model.eval().requires_grad_(False)
        self.config, self.layers = model.config, model.model.layers
        self.heads, self.kv_heads = self.config.num_attention_heads, 1
        self.head_width = self.config.qk_nope_head_dim + self.config.qk_rope_head_dim

    def embed(self, ids):
        """[..., N] token ids -> [..., N, D]."""
        return self.model.model.embed_tokens(ids)

    def watch(self, ids, asks, layers, see):
        """As watch(). A layer's attention of all tokens is in memory, [H, T, T]."""
        kept, hooks = [], []

        def keep(_, args):
            kept.append(args[0][0])

        def show(number):
            def hook(_, args, output):          # what it returned would be the output
                see(number, output[1][0, :, asks].float())
            return hook

        try:
            for number, layer in enumerate(self.layers):
                hooks.append(layer.self_attn.register_forward_hook(show(number)))
                if number in layers:
                    hooks.append(layer.register_forward_pre_hook(keep))
            self.model.model(torch.tensor(ids)[None], use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.cat(kept, 1)


def load_model(folder, dtype):
    """A model that a head can learn from."""
    model = read_model(folder, dtype, attn_implementation="eager")
    latent = model.config.model_type in LATENT
    return LatentModel(model) if latent else FrozenModel(model)


def choices_of(model):
    """How many choices a step makes: kv-decode's own, without per=."""
    return model.heads if isinstance(model, LatentModel) else model.kv_heads


@torch.no_grad()
def watch(model, ids, asks, layers, see):
    """Runs a text. Returns the streams [T, 3 D] in front of three layers; see(layer, weights
    [G, P, T]) gets the greatest softmax weight among the query heads of each choice."""
    if isinstance(model, LatentModel):
        return model.watch(ids, asks, layers, see)
    x = model.embed(torch.tensor(ids)[None])
    positions = torch.arange(len(ids))
    rotary, kept = model.rotary(positions[None]), []
    mask = hidden(asks, len(ids))
    for number, layer in enumerate(model.layers):
        if number in layers:
            kept.append(x[0])
        normed = layer.input_layernorm(x)
        q, k = model.queries_keys(number, normed, rotary)
        asked = q[0, :, asks].unflatten(0, (model.kv_heads, -1)) * layer.self_attn.scaling
        weights = torch.einsum("grpe,gte->grpt", asked, k[0]).masked_fill(mask, -math.inf)
        see(number, weights.softmax(-1).amax(1))
        v = model.linear(number, "v_proj", normed, None)
        v = v.view(1, len(ids), model.kv_heads, -1).transpose(1, 2).to(model.wide)
        x = x + model.linear(number, "o_proj", model.attend_causally(number, q, k, v), None)
        x = x + model.ffn(number, layer.post_attention_layernorm(x), None)
    return torch.cat(kept, 1)


# ---- texts ----

class Text:
    """ids, and the positions whose tokens ask; answers: those among them that follow a question."""

    def __init__(self, ids, asks, answers):
        self.ids, self.asks, self.answers = ids, torch.tensor(sorted(asks)), set(answers)


def draw_text(number, seed, tokenizer, sources, target, questions, asks, demo=False):
    """About `target` tokens of documents, the last of which has facts; questions about these, one
    behind the other, each with its right answer."""
    r = random.Random(f"retrieval head {seed} {number}")
    if demo:
        group, before = demo_group(seed, number, tokenizer, questions), []
    else:
        group, before = None, []
        while group is None or not any(q.answer for q in group.questions):
            number += 1000003
            group = text_group(seed, number, tokenizer, sources, questions)
        while len(before) + len(group.prefix) < target - 300:
            number += 1000003
            before += text_group(seed, number, tokenizer, sources, 1).prefix
        before = before[:max(target - 300 - len(group.prefix), 0)]
    ids, answers = before + list(group.prefix), []
    for question, tail in zip(group.questions, group.tails):
        if question.answer is None:
            continue
        answer = right_answer(tokenizer, question, tail)
        start = len(ids) + len(tail)
        ids += list(tail) + list(answer)
        answers += range(start - 1, len(ids))           # the token that stands before asks first
    chosen = set(answers if len(answers) <= asks // 2 else r.sample(answers, asks // 2))
    late = range(min(64, len(ids) // 2), len(ids))
    chosen |= set(r.sample(late, min(asks - len(chosen), len(late))))
    return Text(ids, chosen, answers)
