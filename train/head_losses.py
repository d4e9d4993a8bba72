"""What DuoAttention and PruLong minimise: hard concrete masks, losses, schedules. Formulas only.

DuoAttention: Xiao et al. 2024, and its public code (duo_attn/train.py). PruLong: Bhaskar et al.
2025, section 4 and appendix B, and its public code (training/l0.py, training/lh_trainer.py);
hard concrete variables are those of Louizos et al. 2018.
"""

import math

import torch
from torch.nn import functional

TAU = 2 / 3                             # temperature
LEFT, RIGHT = -0.1, 1.1                 # limits that the variable is stretched to
EPSILON = 1e-8                          # of the public code; the paper prints 1e-6
SOFT = 0.8                              # of the mask without noise
LEAST_RATE = 0.01                       # of the learning rate at the end
ROWS_OF_LOGITS = 512


def draw_uniform(shape, generator):
    """u of U(eps, 1 - eps), f64."""
    u = torch.rand(shape, generator=generator, dtype=torch.float64)
    return EPSILON + (1 - 2 * EPSILON) * u


def stretch(log_alpha, u):
    """s of the hard concrete variable, 0 .. 1, before it is stretched and clipped."""
    return torch.sigmoid((torch.log(u) - torch.log(1 - u) + log_alpha) / TAU)


def sample_mask(log_alpha, u):
    """z: [L, G] of 0 .. 1, most of them exactly 0 or 1."""
    return functional.hardtanh(LEFT + (RIGHT - LEFT) * stretch(log_alpha, u), 0, 1)


def keep_probability(log_alpha, tau=TAU):
    """P(z > 0). tau = 1 is the formula that PruLong's paper prints (appendix B); the distribution
    that is sampled has that of Louizos et al., with the temperature."""
    return torch.sigmoid(log_alpha - tau * math.log(-LEFT / RIGHT))


def soft_mask(log_alpha):
    """The mask without noise, 0 .. 1: it ranks heads as log alpha does."""
    return torch.sigmoid(SOFT * log_alpha / TAU)


def final_mask(log_alpha):
    """0 or 1: heads are zeroed, the smallest first and as many as the distribution expects to be
    zero; of the others those are 1 whose soft mask is above a half."""
    flat = log_alpha.double().reshape(-1)
    zeros = int(torch.round(flat.numel() - keep_probability(flat).sum()))
    mask = soft_mask(flat) > 0.5
    mask[torch.argsort(flat, stable=True)[:zeros]] = False
    return mask.reshape(log_alpha.shape).int()


def expected_sparsity(log_alpha, z, estimate):
    """s, in closed form (`closed`), as the paper prints that (`paper`), or of the masks drawn
    (`sample`)."""
    if estimate == "sample":
        return 1 - z.mean()
    return 1 - keep_probability(log_alpha, 1 if estimate == "paper" else TAU).mean()


def lagrangian(sparsity, target, multipliers):
    """lambda1 (s - t) + lambda2 (s - t)^2; ascends in the multipliers."""
    off = sparsity - target
    return multipliers[0] * off + multipliers[1] * off ** 2


def distillation(teacher, mixed, labels):
    """Mean over the label tokens of the mean of squares. Hidden states [T, D], labels [T] bool."""
    return (teacher[labels] - mixed[labels]).to(torch.promote_types(mixed.dtype, torch.float32)) \
        .pow(2).mean(-1).mean()


class NextToken(torch.autograd.Function):
    """Mean negative log likelihood of targets [N] from hidden states [N, D] and the frozen output
    matrix [V, D]. Its gradient is made on the way, so that logits of few rows are in memory."""

    @staticmethod
    def forward(ctx, hidden, weight, targets):
        gradient, total = torch.empty_like(hidden), 0.0
        for at in range(0, len(targets), ROWS_OF_LOGITS):
            part = slice(at, at + ROWS_OF_LOGITS)
            logits = (hidden[part] @ weight.T).to(
                torch.promote_types(hidden.dtype, torch.float32))
            log_p = logits.log_softmax(-1)
            total = total - log_p.gather(1, targets[part, None]).sum()
            p = log_p.exp_()
            p.scatter_add_(1, targets[part, None], p.new_full((len(p), 1), -1.0))
            gradient[part] = p.to(hidden.dtype) @ weight
        ctx.save_for_backward(gradient / len(targets))
        return total / len(targets)

    @staticmethod
    def backward(ctx, above):
        return (above * ctx.saved_tensors[0]).to(ctx.saved_tensors[0].dtype), None, None


def duo_rate(step, steps):
    """Share of DuoAttention's learning rate: up and down in a fifth of the steps each, not below a
    tenth."""
    fifth = max(1, steps // 5)
    return min(1, max((step + 1) / fifth, 0.1), max((steps - step) / fifth, 0.1))


def prulong_rate(step, steps, schedule):
    """Share of PruLong's learning rate: a tenth of the steps up from 0, then down to 1 %, in a line
    as the paper says or along a cosine as the public script does."""
    warm = math.ceil(0.1 * steps)
    if step < warm:
        return step / warm
    done = (step - warm) / max(1, steps - warm)
    rate = 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return LEAST_RATE + (1 - LEAST_RATE) * rate


def target_sparsity(step, steps, last, warmup):
    """t: from 0 to `last` over the first 80 % of the steps; `logarithmic`: 1 - t falls by the same
    factor in each step."""
    warm = math.ceil(0.8 * steps)
    if step >= warm:
        return last
    if warmup == "linear":
        return last * step / warm
    return 1 - math.exp(math.log(1 - last) * step / warm)
