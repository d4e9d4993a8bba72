"""The demo model in PyTorch: a Llama with plain, readable attention, in f32.

Tensor shapes: B documents, T tokens, D model width, H query heads, G KV heads, E head width.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocabulary: int = 1536
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    ffn: int = 384
    theta: float = 500000.0
    eps: float = 1e-5
    max_position: int = 4096


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope_table(length, head_width, theta):
    """Cosines and sines [length][E] of the rotary angles; both halves of a row are the same."""
    frequency = theta ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency[None]
    angle = torch.cat([angle, angle], -1)
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """Rotary embedding, rotate-half pairing: element i goes with i + E/2."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Layer(nn.Module):
    """One layer's weights."""

    def __init__(self, config):
        super().__init__()
        width, heads_width = config.hidden, config.heads * config.head_width
        kv_width = config.kv_heads * config.head_width
        self.norm_att = nn.Parameter(torch.ones(width))
        self.norm_ffn = nn.Parameter(torch.ones(width))
        self.q = nn.Linear(width, heads_width, bias=False)
        self.k = nn.Linear(width, kv_width, bias=False)
        self.v = nn.Linear(width, kv_width, bias=False)
        self.o = nn.Linear(heads_width, width, bias=False)
        self.gate = nn.Linear(width, config.ffn, bias=False)
        self.up = nn.Linear(width, config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, width, bias=False)

    def feed_forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    """The whole model; input and output embedding are the same matrix."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.hidden))
        self.tables = {}
        self.random_init()

    def random_init(self):
        config = self.config
        heads_width = config.heads * config.head_width
        nn.init.normal_(self.embedding.weight, std=0.05)
        for layer in self.layers:
            for matrix in (layer.q, layer.k, layer.v, layer.gate, layer.up):
                nn.init.normal_(matrix.weight, std=0.8 / math.sqrt(config.hidden))
            nn.init.normal_(layer.o.weight, std=0.5 / math.sqrt(heads_width) / math.sqrt(2))
            nn.init.normal_(layer.down.weight, std=0.5 / math.sqrt(config.ffn) / math.sqrt(2))

    def rope(self, length):
        if length not in self.tables:
            config = self.config
            self.tables[length] = rope_table(length, config.head_width, config.theta)
        return self.tables[length]

    def hidden(self, ids):
        """ids [B][T] -> the normalised residual stream [B][T][D]."""
        config = self.config
        B, T = ids.shape
        x = self.embedding(ids)
        cos, sin = self.rope(T)
        scale = config.head_width ** -0.5
        for layer in self.layers:
            h = rms_norm(x, layer.norm_att, config.eps)
            q = layer.q(h).view(B, T, config.heads, config.head_width).transpose(1, 2)
            k = layer.k(h).view(B, T, config.kv_heads, config.head_width).transpose(1, 2)
            v = layer.v(h).view(B, T, config.kv_heads, config.head_width).transpose(1, 2)
            q = rotate(q, cos * scale, sin * scale)
            o = causal_attention(q, rotate(k, cos, sin), v)
            x = x + layer.o(o.transpose(1, 2).reshape(B, T, -1))
            x = x + layer.feed_forward(rms_norm(x, layer.norm_ffn, config.eps))
        return rms_norm(x, self.norm, config.eps)

    def logits(self, hidden):
        return F.linear(hidden, self.embedding.weight)


def causal_attention(q, k, v):
    """q [B][H][T][E] (already scaled), k and v [B][G][T][E] -> [B][H][T][E].

    In chunks of queries, so that the scores of a long document need not stand in memory at once.
    """
    B, H, T, E = q.shape
    G = k.shape[1]
    q = q.view(B, G, H // G, T, E)
    k, v = k.reshape(B * G, T, E), v.reshape(B * G, T, E)
    chunk = min(T, 128 if T <= 256 else 256)
    future = torch.full((chunk, chunk), -1e9).triu(1)
    outputs = []
    for start in range(0, T, chunk):
        end = min(T, start + chunk)
        rows = end - start
        queries = q[:, :, :, start:end].reshape(B * G, H // G * rows, E)
        scores = torch.bmm(queries, k[:, :end].transpose(1, 2)).view(B * G, H // G, rows, end)
        scores[..., start:end] += future[:rows, :rows]
        weights = torch.softmax(scores, -1).view(B * G, H // G * rows, end)
        outputs.append(torch.bmm(weights, v[:, :end]).view(B, G, H // G, rows, E))
    return torch.cat(outputs, 3).reshape(B, H, T, E)
