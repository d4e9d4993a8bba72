"""The cache policies that eval.py compares, after the papers, in PyTorch.

These are references for the demo model's figures and independent of kvpipe's own methods. A policy
gets the prefill's state of one layer, a KV head, the prompt length and a budget in rows, and
returns the ascending numbers of the rows to keep.
"""

import torch
import torch.nn.functional as F

SINKS = 4                            # of StreamingLLM
GROUP = 32                           # tokens that share a range in FIER's 1-bit keys


def streaming(_state, _head, length, budget):
    """StreamingLLM: the first rows and the last ones."""
    return torch.tensor(sorted({*range(SINKS), *range(length - (budget - SINKS), length)}))


def snapkv(window, kernel):
    """SnapKV: what the last queries attend to, pooled along the rows; the window itself stays."""
    def select(state, head, length, budget):
        before = length - window
        paid = state.window[head][:, -window:, :before].mean(1)
        pooled = F.avg_pool1d(paid[None], kernel, 1, kernel // 2, count_include_pad=True)[0]
        best = pooled.mean(0).topk(max(0, budget - window)).indices.sort().values
        return torch.cat([best, torch.arange(before, length)])
    return select


def h2o(state, head, length, budget):
    """H2O: half recent rows, half those that received most attention."""
    recent = budget // 2
    received = state.received[head].sum(0)[:length - recent]
    best = received.topk(budget - recent).indices.sort().values
    return torch.cat([best, torch.arange(length - recent, length)])


def l2norm(state, head, _length, budget):
    """Lowest key norms, in all layers."""
    return (-state.k[head].norm(dim=-1)).topk(budget).indices.sort().values


def random_rows(_state, _head, length, budget):
    return torch.randperm(length)[:budget].sort().values


def full(_state, _head, length, _budget):
    return torch.arange(length)


def policy_named(name):
    """"snapkv-16-7" is SnapKV with window 16 and kernel 7."""
    if name.startswith("snapkv-"):
        return snapkv(*map(int, name.split("-")[1:]))
    return {"streaming": streaming, "h2o": h2o, "l2norm": l2norm, "random": random_rows,
            "full": full}[name]


def evict(policy, states, length, budget):
    """The cache [layer][KV head] -> (k, v) of the rows that the policy keeps."""
    cache = []
    for state in states:
        layer = []
        for head in range(state.k.shape[0]):
            rows = policy(state, head, length, budget)
            layer.append((state.k[head][rows], state.v[head][rows]))
        cache.append(layer)
    return cache


def one_bit(keys):
    """FIER's keys: each channel of 32 tokens is rounded to its least or greatest value."""
    rounded = torch.empty_like(keys)
    for start in range(0, keys.shape[0], GROUP):
        part = keys[start:start + GROUP]
        low, high = part.min(0).values, part.max(0).values
        rounded[start:start + GROUP] = torch.where(part > (low + high) / 2, high, low)
    return rounded


def fier_readers(states, budget):
    """[layer][KV head] -> function of the queries: the best prompt rows by 1-bit keys, and every
    generated row."""
    def reader(keys):
        rounded, length = one_bit(keys), keys.shape[0]

        def rows(queries, total):
            best = (queries @ rounded.T).sum(0).topk(budget).indices
            return torch.cat([best, torch.arange(length, total)])
        return rows

    return [[reader(keys) for keys in state.k] for state in states]
