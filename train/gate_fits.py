"""How the gate of a layer is fitted, and how near it comes to what it was to learn.

KVzap (2026): a linear gate by ridge regression, or one with a hidden layer by AdamW. Letters: n
tokens, D model width, G KV heads.
"""

import numpy
import torch

ALPHA = 1.0
BATCH, RATE, CLIP = 512, 5e-3, 1.0


def ridge(x, y, alpha=ALPHA):
    """weight [G][D] and bias [G] with the least |x W^T + b - y|^2 + alpha |W|^2 of x [n][D] and
    y [n][G]: the bias is not penalised."""
    x, y = x.double(), y.double()
    x_mean, y_mean = x.mean(0), y.mean(0)
    x, y = x - x_mean, y - y_mean
    gram = x.T @ x
    gram.diagonal().add_(alpha)
    weight = torch.cholesky_solve(x.T @ y, torch.linalg.cholesky(gram)).T
    return weight.float(), (y_mean - weight @ x_mean).float()


def fit_linear(x, y):
    net = torch.nn.Linear(x.shape[1], y.shape[1])
    weight, bias = ridge(x, y)
    net.load_state_dict({"weight": weight, "bias": bias})
    return net


def fit_mlp(x, y, hidden, epochs, seed):
    """Squared error. The last bias begins as the mean of the targets, so that a short training need
    not find it."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], hidden), torch.nn.GELU(),
                              torch.nn.Linear(hidden, y.shape[1]))
    with torch.no_grad():
        net[2].bias.copy_(y.mean(0))
    optimizer = torch.optim.AdamW(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer,
                                                          epochs * -(-len(x) // BATCH))
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x[batch]), y[batch]).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            schedule.step()
    return net


# ---- how near ----

def ranks(values):
    """[n]: equal values share the mean of their ranks"""
    _, which, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    return (numpy.cumsum(counts) - (counts - 1) / 2)[which]


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / max(numpy.sqrt((a * a).sum() * (b * b).sum()), 1e-30))


def explained(found, wanted):
    """R^2: 1 - the squared error as a share of that of the mean of `wanted`"""
    wanted, found = wanted.astype("f8"), found.astype("f8")
    spread = ((wanted - wanted.mean()) ** 2).sum()
    return float(1 - ((found - wanted) ** 2).sum() / max(spread, 1e-30))


@torch.no_grad()
def judge(net, x, y):
    """[(R^2, rank correlation)] for each KV head"""
    found = net(x).numpy()
    return [(explained(a, b), spearman(a, b)) for a, b in zip(found.T, y.numpy().T)]
