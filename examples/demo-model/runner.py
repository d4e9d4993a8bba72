"""Prefill and greedy decoding with a cache from which rows can be missing, in PyTorch.

One document at a time. Keys keep the rotary position they were computed at. Shapes: T tokens,
H query heads, G KV heads, E head width, W the last queries of the prompt.
"""

import dataclasses

import torch

from model import rms_norm, rope_table, rotate

MAX_POSITION = 8192
MAX_ANSWER = 8
WINDOW = 32


@dataclasses.dataclass
class LayerState:
    """What the prefill leaves of one layer."""
    k: torch.Tensor                  # [G][T][E] after rotary embedding
    v: torch.Tensor                  # [G][T][E]
    received: torch.Tensor           # [G][H/G][T] attention received, summed over all queries
    window: torch.Tensor             # [G][H/G][W][T] attention paid by the last queries


class Runner:
    def __init__(self, model, tokenizer):
        config = model.config
        self.model = model
        self.config = config
        self.tokenizer = tokenizer
        self.stop = (tokenizer.encode(".\n")[0], tokenizer.eos)
        self.cos, self.sin = rope_table(MAX_POSITION, config.head_width, config.theta)

    def project(self, layer, x, position):
        """x [T][D] at position, position + 1, ... -> q [G][H/G][T][E], k and v [G][T][E]."""
        config = self.config
        G, E, T = config.kv_heads, config.head_width, x.shape[0]
        h = rms_norm(x, layer.norm_att, config.eps)
        cos, sin = self.cos[position:position + T], self.sin[position:position + T]
        q = rotate(layer.q(h).view(T, config.heads, E).transpose(0, 1), cos, sin)
        k = rotate(layer.k(h).view(T, G, E).transpose(0, 1), cos, sin)
        v = layer.v(h).view(T, G, E).transpose(0, 1)
        return q.reshape(G, config.heads // G, T, E), k, v

    def finish_layer(self, layer, x, o):
        """Adds the attention's output o [G][H/G][T][E] and the feed-forward network to x."""
        config, T = self.config, x.shape[0]
        o = o.reshape(config.heads, T, config.head_width).transpose(0, 1).reshape(T, -1)
        x = x + layer.o(o)
        return x + layer.feed_forward(rms_norm(x, layer.norm_ffn, config.eps))

    def logits(self, x):
        """The logits after the last row of x."""
        return self.model.logits(rms_norm(x[-1:], self.model.norm, self.config.eps))[0]

    @torch.no_grad()
    def prefill(self, ids):
        """Full attention over the prompt. Returns the last logits and the state of each layer."""
        T = len(ids)
        x = self.model.embedding(torch.tensor(ids))
        scale = self.config.head_width ** -0.5
        future = torch.full((T, T), -1e30).triu(1)
        states = []
        for layer in self.model.layers:
            q, k, v = self.project(layer, x, 0)
            p = torch.softmax(q @ k[:, None].transpose(-1, -2) * scale + future, -1)
            states.append(LayerState(k, v, received=p.sum(2), window=p[:, :, -WINDOW:]))
            x = self.finish_layer(layer, x, p @ v[:, None])
        return self.logits(x), states

    @torch.no_grad()
    def step(self, token, position, cache, readers=None):
        """One token. cache [layer][KV head] -> (k, v), which grows by a row.

        readers [layer][KV head], where given, choose the rows a query sees: function of the
        queries [H/G][E] and the number of rows -> row numbers.
        """
        x = self.model.embedding(torch.tensor([token]))
        scale = self.config.head_width ** -0.5
        for number, layer in enumerate(self.model.layers):
            q, k_new, v_new = self.project(layer, x, position)
            outputs = []
            for head in range(self.config.kv_heads):
                k, v = cache[number][head]
                k, v = torch.cat([k, k_new[head]]), torch.cat([v, v_new[head]])
                cache[number][head] = (k, v)
                if readers is not None:
                    rows = readers[number][head](q[head, :, 0], k.shape[0])
                    k, v = k[rows], v[rows]
                outputs.append(torch.softmax(q[head] @ k.T * scale, -1) @ v)
            x = self.finish_layer(layer, x, torch.stack(outputs))
        return self.logits(x)

    def answer(self, logits, cache, position, readers=None):
        """Greedy text from these logits on, up to the full stop that ends the line."""
        ids = []
        for i in range(MAX_ANSWER):
            token = int(logits.argmax())
            ids.append(token)
            if token in self.stop:
                break
            logits = self.step(token, position + i, cache, readers)
        return self.tokenizer.decode(ids).strip().rstrip(".").strip()
