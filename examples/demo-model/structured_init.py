"""The hand-made start of the delivered weights: one rough induction head, before any training.

Layer 0 gets a head that copies the previous token's content into a scratch part of the residual
stream; layer 1 gets a head that looks for a row whose scratch matches the current token, and
copies that row's content. Everything else stays random, and all weights are then trained.

Residual stream: dimension 0 is a constant, the middle holds the token's content, the last 32
dimensions start empty (scratch).
"""

import torch

SCRATCH = 32


def random_projection(width):
    """[SCRATCH][width] with orthonormal rows."""
    return torch.linalg.qr(torch.randn(width, SCRATCH))[0].T


@torch.no_grad()
def structured_init(model, constant=0.3, sharpness=6.0, match=1.6, damping=0.2):
    config = model.config
    width = config.hidden - SCRATCH - 1
    content = slice(1, 1 + width)
    embedding = model.embedding.weight
    embedding.normal_(0, 0.565 / width ** 0.5)
    embedding[:, 0] = constant
    embedding[:, -SCRATCH:] = 0
    for layer in model.layers:
        layer.o.weight.mul_(damping)
        layer.down.weight.mul_(damping)
    match_projection = random_projection(width)
    copy_projection = random_projection(width)
    normed = embedding / (embedding.pow(2).mean(-1, keepdim=True) + config.eps).sqrt()

    previous_token_head(model, normed, content, match_projection, sharpness)
    match_and_copy_head(model, content, match_projection, copy_projection, match)


def previous_token_head(model, normed, content, projection, sharpness):
    """Layer 0, head 0: queries are the constant turned back by one position."""
    config, layer = model.config, model.layers[0]
    E = config.head_width
    level = normed[:, 0].mean().item()
    frequency = config.theta ** (-torch.arange(0, E, 2).float() / E)
    q, k = layer.q.weight[:E], layer.k.weight[:E]
    q.mul_(0.2)
    k.mul_(0.2)
    q[:E // 2, 0] = sharpness / level * torch.cos(-frequency)
    q[E // 2:, 0] = sharpness / level * torch.sin(-frequency)
    k[:E // 2, 0] = sharpness / level
    k[E // 2:, 0] = 0
    v, o = layer.v.weight[:E], layer.o.weight[:, :E]
    v.zero_()
    v[:, content] = projection
    o.zero_()
    norm = (normed[:, content] @ projection.T).norm(dim=-1).mean().item()
    o[-SCRATCH:] = torch.eye(SCRATCH) * (0.4 / norm)


def match_and_copy_head(model, content, projection, copy_projection, match):
    """Layer 1, head 0: matches content against scratch, in the slowly turning dimensions only."""
    layer, E = model.layers[1], model.config.head_width
    scratch_start = model.config.hidden - SCRATCH
    q, k = layer.q.weight[:E], layer.k.weight[:E]
    q.zero_()
    k.zero_()
    for i in range(E):
        if i % (E // 2) >= 6:
            q[i, content] = projection[i] * match
            k[i, scratch_start + i] = match
    v, o = layer.v.weight[:E], layer.o.weight[:, :E]
    v.zero_()
    v[:, content] = copy_projection
    o.zero_()
    o[content] = copy_projection.T * 0.15
