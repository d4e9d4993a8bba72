"""Checks train/heads.py against formulas worked out by other means: NumPy in f64, naive masked
softmax, the models' own attention with a mask, finite differences, PyTorch's cross-entropy.

    train_heads.py         a line for each check: its name, tab, "ok" or what went wrong
"""

import math
import os
import sys
import traceback

import numpy as np
import torch
import transformers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "train"))

import head_attention  # noqa: E402
import head_losses  # noqa: E402
import head_tables  # noqa: E402
from head_data import MULTIPLE, Passkeys, Sample, Task, Texts  # noqa: E402
from head_training import Duo, PruLong  # noqa: E402

torch.set_num_threads(1)
DEMO = os.path.join(ROOT, "examples", "demo-model")
FAMILIES = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
            "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}
SINK, RECENT, TOKENS = 2, 5, 29


def tiny(family="llama", mixer=None, seed=0):
    """A random model in f64: L = 2, H = 4, G = 2. With a mixer it is frozen and uses it."""
    torch.manual_seed(seed)
    config = FAMILIES[family](hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, vocab_size=61,
                              head_dim=8, max_position_embeddings=64, initializer_range=0.4,
                              sliding_window=None, pad_token_id=0)
    config._attn_implementation = "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):   # which computes in f32, whatever it gets
            module.forward = lambda x, m=module: m.weight * x * torch.rsqrt(
                x.pow(2).mean(-1, keepdim=True) + m.variance_epsilon)
    if mixer:
        assert head_attention.install(model, mixer) == (2, 2)
    return model


def ids(count=TOKENS, seed=1):
    return torch.randint(1, 61, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def close(got, wanted, within):
    got, wanted = (np.asarray(x.detach() if torch.is_tensor(x) else x, dtype=float)
                   for x in (got, wanted))
    assert got.shape == wanted.shape, f"{got.shape}, not {wanted.shape}"
    worst = np.abs(got - wanted).max() if got.size else 0
    assert worst <= within, f"{got} is {worst:.3g} off {wanted}"


def seen(tokens, sink, recent, block):
    """Which keys a query sees, token by token from the definition."""
    sinks, blocks = math.ceil(sink / block), math.ceil(recent / block)
    return np.array([[j <= i and (j // block < sinks or i // block - j // block < blocks)
                      for j in range(tokens)] for i in range(tokens)])


def naive(q, k, v, scale, mask):
    """Masked softmax in NumPy, f64, a row at a time. q [H, T, E], k and v [G, T, E]."""
    out = np.zeros_like(q)
    for h in range(q.shape[0]):
        g = h // (q.shape[0] // k.shape[0])
        for i in range(q.shape[1]):
            logits = (k[g][mask[i]] @ q[h, i]) * scale
            p = np.exp(logits - logits.max())
            out[h, i] = (p / p.sum()) @ v[g][mask[i]]
    return out


def numeric(f, x, step=1e-6):
    """Central differences of f at x."""
    flat, grad = x.detach().clone().reshape(-1), torch.zeros(x.numel(), dtype=torch.float64)
    for i in range(len(flat)):
        moved = []
        for sign in (1, -1):
            at = flat.clone()
            at[i] += sign * step
            with torch.no_grad():
                moved.append(float(f(at.reshape(x.shape))))
        grad[i] = (moved[0] - moved[1]) / (2 * step)
    return grad.reshape(x.shape)


def check_hard_concrete():
    """sampled masks have the values of the formula"""
    for log_alpha, u, s, z in ((4, 0.5, 0.997527, 1), (4, 0.01, 0.290557, 0.248669),
                               (0, 0.5, 0.5, 0.5)):
        a, u = torch.tensor(float(log_alpha)).double(), torch.tensor(u).double()
        close(head_losses.stretch(a, u), s, 5e-7)
        close(head_losses.sample_mask(a, u), z, 5e-7)


def check_closed_forms():
    """both closed forms have their values, that with the temperature is the samples'"""
    four, zero = torch.tensor(4.0).double(), torch.tensor(0.0).double()
    close(head_losses.keep_probability(four), 0.99631, 5e-6)
    close(head_losses.keep_probability(four, 1), 0.99834, 5e-6)
    close(head_losses.keep_probability(zero), 0.831822, 5e-7)
    for log_alpha in (-3.0, 0.0, 1.0):
        a = torch.full((200000,), log_alpha, dtype=torch.float64)
        u = head_losses.draw_uniform(a.shape, torch.Generator().manual_seed(1))
        z = head_losses.sample_mask(a, u)
        # six standard deviations of a share of 200000
        close((z > 0).double().mean(), head_losses.keep_probability(a[0]), 6 * 0.5 / 200000 ** 0.5)
    close(head_losses.expected_sparsity(four, None, "closed"), 1 - 0.99631, 5e-6)
    close(head_losses.expected_sparsity(four, None, "paper"), 1 - 0.99834, 5e-6)
    close(head_losses.expected_sparsity(four, torch.tensor([1, 0.25]), "sample"), 0.375, 1e-7)


def check_streaming():
    """streaming attention is a masked softmax in f64, and so is its gradient"""
    usual, generator = head_attention.QUERIES_AT_ONCE, torch.Generator().manual_seed(3)
    for heads, groups, tokens, sink, recent, block, at_once in (
            (4, 2, 29, 2, 5, 1, usual), (4, 2, 29, 2, 5, 1, 8), (2, 2, 40, 3, 7, 4, 8),
            (3, 1, 37, 4, 8, 4, 16), (6, 2, 50, 0, 3, 1, 7), (2, 1, 33, 16, 16, 16, 16),
            (2, 1, 12, 40, 5, 4, 8), (2, 1, 5, 1, 1, 1, 2), (2, 2, 64, 8, 16, 8, 1)):
        q, k, v, up = (torch.randn(1, n, tokens, 6, generator=generator, dtype=torch.float64)
                       for n in (heads, groups, groups, heads))
        mask = seen(tokens, sink, recent, block)
        head_attention.QUERIES_AT_ONCE = at_once
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out = head_attention.streaming_attention(*inputs, 0.3, sink, recent, block)
        close(out[0], naive(q[0].numpy(), k[0].numpy(), v[0].numpy(), 0.3, mask), 1e-12)
        (out * up).sum().backward()
        plain = [x.clone().requires_grad_() for x in (q, k, v)]
        wide = [x.repeat_interleave(heads // groups, 1) for x in plain[1:]]
        logits = (plain[0] @ wide[0].transpose(2, 3) * 0.3).masked_fill(
            ~torch.from_numpy(mask), -torch.inf)
        ((logits.softmax(-1) @ wide[1]) * up).sum().backward()
        for mine, theirs in zip(inputs, plain):
            close(mine.grad, theirs.grad, 1e-12)
    head_attention.QUERIES_AT_ONCE = usual


def check_memory():
    """streaming attention makes no mask of tokens x tokens"""
    masks, original = [], head_attention.functional.scaled_dot_product_attention

    def watch(q, k, v, attn_mask=None, **options):
        masks.append((attn_mask.numel(), k.shape[2]))
        return original(q, k, v, attn_mask=attn_mask, **options)
    head_attention.functional.scaled_dot_product_attention = watch
    try:
        x = torch.zeros(1, 1, 4000, 2)
        head_attention.streaming_attention(x, x, x, 1, 16, 64, 16)
    finally:
        head_attention.functional.scaled_dot_product_attention = original
    assert max(keys for _, keys in masks) <= 16 + 64 + 128, masks
    assert sum(size for size, _ in masks) <= 4000 * (16 + 64 + 128), masks


def check_own_logits():
    """masks of 1 give the model's own logits, in each family"""
    for family in FAMILIES:
        tokens = torch.tensor([ids()])
        wanted = tiny(family)(input_ids=tokens, use_cache=False).logits
        mixer = head_attention.HeadMixer(SINK, RECENT, 1)
        model = tiny(family, mixer)
        for mode, weights in (("full", None), ("mixed", torch.ones(2, 2))):
            mixer.mode, mixer.weights = mode, weights
            close(model(input_ids=tokens, use_cache=False).logits, wanted, 1e-11)


def check_streaming_model():
    """masks of 0 give the model whose every head streams, in each family"""
    for family in FAMILIES:
        tokens = torch.tensor([ids()])
        mask = torch.from_numpy(seen(TOKENS, SINK, RECENT, 1))[None, None]
        float_mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -1e300)
        wanted = tiny(family)(input_ids=tokens, attention_mask=float_mask, use_cache=False).logits
        mixer = head_attention.HeadMixer(SINK, RECENT, 1)
        model = tiny(family, mixer)
        mixer.mode, mixer.weights = "mixed", torch.zeros(2, 2)
        close(model(input_ids=tokens, use_cache=False).logits, wanted, 1e-11)


def duo(alpha, **options):
    mixer = head_attention.HeadMixer(SINK, RECENT, 1)
    trainer = Duo(tiny(mixer=mixer), mixer, None,
                  {"lr": 0.02, "reg": 0.05, "batch": 1, "steps": 10, "seed": 1} | options, (2, 2))
    trainer.mask.data.copy_(alpha)
    return trainer


def labelled(last=9):
    tokens = ids()
    return Sample(tokens, [False] * (TOKENS - last) + [True] * last, [])


ALPHA = torch.tensor([[0.9, 0.2], [0.4, 0.7]], dtype=torch.float64)


def check_teacher():
    """an alpha of 1 is the teacher exactly, one of 0 the streaming model"""
    trainer = duo(torch.ones(2, 2))
    assert trainer.sample_loss(labelled()).item() == 0
    trainer = duo(torch.zeros(2, 2))
    sample = labelled()
    loss = trainer.sample_loss(sample).item()
    mask = torch.from_numpy(seen(TOKENS, SINK, RECENT, 1))[None, None]
    float_mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -1e300)
    plain, tokens = tiny().model, torch.tensor([sample.ids])
    full = plain(input_ids=tokens, use_cache=False).last_hidden_state[0].detach().numpy()
    cut = plain(input_ids=tokens, attention_mask=float_mask,
                use_cache=False).last_hidden_state[0].detach().numpy()
    close(loss, ((full - cut)[-9:] ** 2).mean(axis=1).mean(), 1e-12)


def check_duo_mixture():
    """the full part of DuoAttention's mixture is the teacher's output"""
    trainer, sample = duo(ALPHA), labelled()
    outputs = []
    original = trainer.mixer.attend
    trainer.mixer.attend = lambda *args: outputs.append((args, original(*args))) or outputs[-1][1]
    trainer.sample_loss(sample)
    teacher, mixed = outputs[:2], outputs[2:]
    mask = seen(TOKENS, SINK, RECENT, 1)
    for layer in range(2):
        (_, q, k, v, scale), got = mixed[layer]
        streaming = naive(*(x[0].detach().numpy() for x in (q, k, v)), scale, mask)
        a = np.repeat(ALPHA[layer].numpy(), 2)[:, None, None]
        close(got[0], a * teacher[layer][1][0].numpy() + (1 - a) * streaming, 1e-12)
        assert not teacher[layer][1].requires_grad


def check_duo_gradient():
    """the gradient of DuoAttention's loss is that of finite differences"""
    trainer, sample = duo(ALPHA), labelled()

    def loss(alpha):
        trainer.mask.data.copy_(alpha)
        return trainer.sample_loss(sample) + 0.05 * trainer.mask.abs().mean()
    expected = numeric(loss, ALPHA)
    trainer.mask.data.copy_(ALPHA)
    (trainer.sample_loss(sample) + 0.05 * trainer.mask.abs().mean()).backward()
    close(trainer.mask.grad, expected, 1e-7)
    assert expected.abs().min() > 1e-3, f"a gradient of nothing: {expected}"


def prulong(**options):
    mixer = head_attention.HeadMixer(SINK, RECENT, 1)
    return PruLong(tiny(mixer=mixer), mixer, None,
                   {"lr": 1.0, "batch": 1, "steps": 10, "seed": 1, "target": 0.7,
                    "target_warmup": "linear", "sparsity_est": "closed", "lr_schedule": "linear",
                    "weight_decay": 0.0} | options, (2, 2))


def check_prulong_gradient():
    """the gradient of PruLong's loss is that of finite differences, in masks and multipliers"""
    trainer, sample = prulong(), labelled()
    u = torch.tensor([[0.3, 0.6], [0.45, 0.2]], dtype=torch.float64)
    log_alpha = torch.tensor([[0.3, -0.4], [0.1, 0.9]], dtype=torch.float64)
    multipliers = torch.tensor([0.7, -1.3], dtype=torch.float64)
    for estimate in ("closed", "paper", "sample"):
        def loss(a, m):
            z = head_losses.sample_mask(a, u)
            s = head_losses.expected_sparsity(a, z, estimate)
            return trainer.sample_loss(sample, z) + head_losses.lagrangian(s, 0.35, m)
        a, m = log_alpha.clone().requires_grad_(), multipliers.clone().requires_grad_()
        loss(a, m).backward()
        close(a.grad, numeric(lambda x: loss(x, multipliers), log_alpha), 1e-7)
        close(m.grad, numeric(lambda x: loss(log_alpha, x), multipliers), 1e-7)


def check_next_token():
    """the loss on the next token is PyTorch's cross-entropy, with its gradient"""
    generator = torch.Generator().manual_seed(5)
    head_losses.ROWS_OF_LOGITS = 7
    hidden = torch.randn(20, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 11, (20,), generator=generator)
    (3 * head_losses.NextToken.apply(hidden, weight, targets)).backward()
    mine, hidden.grad = hidden.grad, None
    wanted = torch.nn.functional.cross_entropy(hidden @ weight.T, targets)
    close(head_losses.NextToken.apply(hidden, weight, targets), wanted, 1e-12)
    (3 * wanted).backward()
    close(mine, hidden.grad, 1e-12)
    head_losses.ROWS_OF_LOGITS = 512


def check_distillation():
    """the distillation loss is the mean over label tokens of the mean of squares"""
    a = torch.tensor([[1.0, 2], [3, 4], [5, 6]])
    b = torch.tensor([[9.0, 9], [3, 2], [6, 9]])
    close(head_losses.distillation(a, b, torch.tensor([False, True, True])), (2 + 5) / 2, 0)


def check_duo_rate():
    """DuoAttention's learning rate goes up and down in a fifth of the steps each"""
    close([head_losses.duo_rate(s, 2000) for s in (0, 38, 39, 40, 199, 399, 400, 1600, 1601, 1800,
                                                   1960, 1999)],
          [0.1, 0.1, 0.1, 0.1025, 0.5, 1, 1, 1, 0.9975, 0.5, 0.1, 0.1], 1e-12)
    close([head_losses.duo_rate(s, 3) for s in (0, 2)], [1, 1], 0)


def check_prulong_schedules():
    """PruLong's learning rate and target have the values of paper and script"""
    rate = head_losses.prulong_rate
    close([rate(s, 1000, "linear") for s in (0, 50, 100, 550, 1000)],
          [0, 0.5, 1, 0.505, 0.01], 1e-12)
    close([rate(s, 1000, "cosine") for s in (50, 100, 325, 550, 1000)],
          [0.5, 1, 0.01 + 0.99 * (1 + math.sqrt(0.5)) / 2, 0.505, 0.01], 1e-12)
    target = head_losses.target_sparsity
    close([target(s, 1000, 0.7, "linear") for s in (0, 400, 800, 999)], [0, 0.35, 0.7, 0.7], 1e-12)
    close([target(s, 1000, 0.75, "logarithmic") for s in (0, 400, 800)], [0, 0.5, 0.75], 1e-12)


class Fixed:
    """A source with one sample."""

    def draw(self, _seed, _number):
        return labelled()


def check_steps():
    """a step clips alpha before, pulls log alpha and pushes the multipliers"""
    trainer = duo(torch.tensor([[1.5, -0.25], [0.5, 1.0]]), steps=1)
    trainer.source = Fixed()
    close(trainer.step(0)["mean_alpha"], (1 + 0 + 0.5 + 1) / 4, 1e-12)
    trainer = prulong(sparsity_est="closed")
    trainer.source = Fixed()
    trainer.mask.data.fill_(5.0)
    before = trainer.mask.detach().clone()
    row = trainer.step(0)               # of rate 0
    close(trainer.mask, before, 0)
    trainer.step(1)                     # the multipliers begin at 0
    row = trainer.step(2)
    # sparsity below target: the constraint's multiplier falls, so that loss falls with sparsity
    assert (row["sparsity"] < row["target"]) == (trainer.multipliers[0].item() < 0)
    assert (trainer.mask.detach() - before).abs().min() > 0


def check_final_mask():
    """the smallest heads are zeroed, as many as expected; the rest is cut at a half"""
    log_alpha = torch.tensor([[5.0, -6.0, 0.1], [4.0, -5.0, -0.2]])
    # P(z = 0), by the formula in NumPy: sums to 0.0014 + 0.988 + 0.155 + 0.0037 + 0.968 + 0.198
    gone = 1 - 1 / (1 + np.exp(-(log_alpha.double().numpy() + 2 / 3 * math.log(11))))
    assert round(gone.sum()) == 2, gone.sum()
    close(head_losses.final_mask(log_alpha), [[1, 0, 1], [1, 0, 0]], 0)
    close(head_losses.final_mask(torch.tensor([[8.0, 7.0]])), [[1, 1]], 0)
    # heads of 0.01 have 0.167 zeros each: 0.33 of two are rounded to none, 0.83 of five to one
    close(head_losses.final_mask(torch.full((1, 2), 0.01)), [[1, 1]], 0)
    close(head_losses.final_mask(torch.full((1, 5), 0.01)), [[0, 1, 1, 1, 1]], 0)


def check_rounding_duo():
    """DuoAttention's rounding is its quantile with seeded noise"""
    rng = np.random.default_rng(7)
    table = rng.random((6, 5)).round(1)          # with ties
    for sparsity in (0, 0.1, 0.25, 0.5, 0.77, 1):
        noisy = table + np.random.RandomState(42).uniform(0, 1e-6, table.shape)
        wanted = (noisy >= np.quantile(noisy, sparsity)) if 0 < sparsity < 1 else \
            np.full(table.shape, sparsity == 0)
        close(head_tables.round_table(table.tolist(), sparsity, "duo"), wanted, 0)


def check_rounding_prulong():
    """PruLong's rounding keeps the int(n (1 - sparsity)) greatest, ties drawn with seed 42"""
    table = np.array([[0.5, 1, 0.5], [0, 0.5, 1]])
    draws = torch.rand(6, generator=torch.Generator().manual_seed(42)).tolist()
    single = torch.Generator().manual_seed(42)
    draws = [torch.rand(1, generator=single).item() for _ in draws]
    for sparsity in (0, 0.3, 0.5, 0.7, 1):
        order = sorted(range(6), key=lambda i: (-table.flat[i], draws[i]))
        wanted = np.zeros(6)
        wanted[order[:int(6 * (1 - sparsity))]] = 1
        close(head_tables.round_table(table.tolist(), sparsity, "prulong"),
              wanted.reshape(2, 3), 0)


def check_passkeys():
    """documents have needles in order, labels on the questions, a length of 16s"""
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO)
    texts = Texts([os.path.join(DEMO, "README.md")], tokenizer, 2000, 1)
    source = Passkeys(texts, tokenizer, Task(), [900, 1000, 1100], 3, 4)
    lengths = []
    for number in range(6):
        sample = source.draw(1, number)
        lengths.append(len(sample.ids))
        assert len(sample.ids) % MULTIPLE == 0 and len(sample.labels) == len(sample.ids)
        first = sample.labels.index(True)
        assert all(sample.labels[first:]) and not any(sample.labels[:first])
        text, asked = tokenizer.decode(sample.ids[:first]), tokenizer.decode(sample.ids[first:])
        assert asked.startswith("Based on the content of the book, what is the first passkey")
        answers = tokenizer.decode([i for i, a in zip(sample.ids, sample.answers) if a])
        place, said = 0, ""
        for name, part in zip(("first", "second", "third"), asked.split("Based on ")[1:]):
            key = part.split("Passkey: ")[1].split("\n\n")[0]
            assert len(key.split(" ")) == 4
            found = text.find(f"it's the {name} passkey to the vault: {key}\n\n", place)
            assert found > place, f"{name} {key} is not in {text[place:]}"
            place, said = found, said + key
        assert answers == said
        assert source.draw(1, number).ids == sample.ids != source.draw(2, number).ids
    assert sorted(lengths) == [912, 912, 1008, 1008, 1104, 1104], lengths


def check_refused():
    """models that would be computed wrongly are refused by name"""
    for config, longest, word in (
            (transformers.GPT2Config(), 100, "gpt2"),
            (transformers.MistralConfig(sliding_window=64), 100, "sliding window of 64")):
        try:
            head_attention.check_config("M", config, longest)
        except head_tables.Refused as problem:
            assert word in str(problem), problem
        else:
            raise AssertionError(f"{word} is accepted")
    head_attention.check_config("M", transformers.MistralConfig(sliding_window=64), 64)


def main():
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        result = "ok"
        try:
            check()
        except Exception:
            result = " | ".join(traceback.format_exc().strip().split("\n"))
        print(f"{check.__doc__}\t{result}", flush=True)


main()
