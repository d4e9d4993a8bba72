"""Training of head masks: one step of each method, and the loop with its checkpoints and curve."""

import hashlib
import io
import os
import signal
import sys
import time

import torch

import head_losses as losses
from failures import BrokenFile, Refused
from head_data import seeded
from head_tables import (CONFIG, TABLE, check_shape, format_table,
                         read_table, write_config, write_whole)

CHECKPOINT, CURVE, SOFT_TABLE = "checkpoint.pt", "curve.tsv", "soft_mask.tsv"
MEAN_LOG_ALPHA, SPREAD_LOG_ALPHA = 4.0, 0.01


def model_fingerprint(model):
    """Tells models apart: the configuration, and names, shapes and bytes of all weights."""
    digest = hashlib.sha256(repr(sorted(model.config.to_diff_dict().items(), key=str)).encode())
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def digest_of(tensor):
    return hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:12]


def last_hidden(model, ids):
    """Hidden states after the final norm, [T, D]."""
    tokens = torch.tensor([ids], device=model.device)
    return model.model(input_ids=tokens, use_cache=False).last_hidden_state[0]


class Duo:
    """DuoAttention: alpha as numbers of 0 .. 1, trained to leave the hidden states as they are."""

    columns = ("loss", "distill", "reg", "mean_alpha", "sparsity", "lr", "tokens", "mask")

    def __init__(self, model, mixer, source, options, shape):
        self.model, self.mixer, self.source, self.options = model, mixer, source, options
        self.mask = torch.nn.Parameter(torch.ones(shape, dtype=mask_dtype(model)))
        self.optimizer = torch.optim.AdamW([self.mask], lr=options["lr"], weight_decay=0)

    def start_from(self, rows):
        self.mask.data.copy_(torch.tensor(rows))

    def sample_loss(self, sample):
        """The distillation loss of one document, with the gradient in self.mask."""
        labels = torch.tensor(sample.labels, device=self.model.device)
        self.mixer.mode, self.mixer.teacher = "record", []
        with torch.no_grad():
            teacher = last_hidden(self.model, sample.ids)
        self.mixer.mode, self.mixer.weights = "distilled", self.mask.to(self.model.device)
        return losses.distillation(teacher, last_hidden(self.model, sample.ids), labels)

    def step(self, step):
        options = self.options
        self.mask.data.clamp_(0, 1)
        batch, total, tokens = options["batch"], 0.0, 0
        for number in range(step * batch, (step + 1) * batch):
            sample = self.source.draw(options["seed"], number)
            loss = self.sample_loss(sample) / batch
            loss.backward()
            total, tokens = total + loss.item(), tokens + len(sample.ids)
        reg = self.mask.abs().mean()
        (options["reg"] * reg).backward()
        row = {"loss": total + options["reg"] * reg.item(), "distill": total, "reg": reg.item(),
               "mean_alpha": self.mask.mean().item(),
               "sparsity": (self.mask < 0.5).double().mean().item(), "tokens": tokens,
               "mask": digest_of(self.mask)}
        row["lr"] = set_rate(self.optimizer, options["lr"],
                             losses.duo_rate(step, options["steps"]))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return row

    def state(self):
        return {"mask": self.mask.data}

    def tables(self):
        """File name -> numbers."""
        return {TABLE: self.mask.detach().clamp(0, 1).tolist()}


class PruLong:
    """PruLong: hard concrete masks, trained on the next token under a constraint on sparsity."""

    columns = ("loss", "nll", "penalty", "sparsity", "target", "lambda1", "lambda2", "lr", "tokens",
               "mask")

    def __init__(self, model, mixer, source, options, shape):
        self.model, self.mixer, self.source, self.options = model, mixer, source, options
        noise = torch.randn(shape, generator=self.generator("start"), dtype=torch.float64)
        dtype = mask_dtype(model)
        self.mask = torch.nn.Parameter((MEAN_LOG_ALPHA + SPREAD_LOG_ALPHA * noise).to(dtype))
        self.multipliers = torch.nn.Parameter(torch.zeros(2, dtype=dtype))
        self.optimizer = torch.optim.AdamW(
            [{"params": [self.mask]}, {"params": [self.multipliers], "maximize": True}],
            lr=options["lr"], betas=(0.9, 0.95), weight_decay=options["weight_decay"])

    def generator(self, *what):
        seed = seeded(self.options["seed"], "masks", *what).getrandbits(63)
        return torch.Generator().manual_seed(seed)

    def start_from(self, rows):
        """Log alpha whose soft mask the numbers are, within -10 .. 10 as the public code rounds."""
        p = torch.tensor(rows, dtype=torch.float64)
        self.mask.data.copy_((torch.logit(p) * losses.TAU / losses.SOFT).clamp(-10, 10))

    def sample_loss(self, sample, z):
        self.mixer.mode, self.mixer.weights = "mixed", z.to(self.model.device)
        hidden = last_hidden(self.model, sample.ids)
        targets = torch.tensor(sample.ids[1:], device=self.model.device)
        return losses.NextToken.apply(hidden[:-1], self.model.lm_head.weight, targets)

    def step(self, step):
        options, batch = self.options, self.options["batch"]
        target = losses.target_sparsity(step, options["steps"], options["target"],
                                        options["target_warmup"])
        total, penalty, sparsity, tokens = 0.0, 0.0, 0.0, 0
        for number in range(step * batch, (step + 1) * batch):
            sample = self.source.draw(options["seed"], number)
            u = losses.draw_uniform(self.mask.shape, self.generator(number))
            z = losses.sample_mask(self.mask, u)
            s = losses.expected_sparsity(self.mask, z, options["sparsity_est"])
            nll = self.sample_loss(sample, z)
            extra = losses.lagrangian(s, target, self.multipliers)
            ((nll.to(extra.device) + extra) / batch).backward()
            total, penalty = total + nll.item() / batch, penalty + extra.item() / batch
            sparsity, tokens = sparsity + s.item() / batch, tokens + len(sample.ids)
        row = {"loss": total + penalty, "nll": total, "penalty": penalty, "sparsity": sparsity,
               "target": target, "lambda1": self.multipliers[0].item(),
               "lambda2": self.multipliers[1].item(), "tokens": tokens,
               "mask": digest_of(self.mask)}
        torch.nn.utils.clip_grad_norm_([self.mask, self.multipliers], 1.0)
        row["lr"] = set_rate(self.optimizer, options["lr"],
                             losses.prulong_rate(step, options["steps"], options["lr_schedule"]))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return row

    def state(self):
        return {"mask": self.mask.data, "multipliers": self.multipliers.data}

    def tables(self):
        return {TABLE: losses.final_mask(self.mask.detach()).tolist(),
                SOFT_TABLE: losses.soft_mask(self.mask.detach().double()).tolist()}


METHODS = {"duo": Duo, "prulong": PruLong}


def mask_dtype(model):
    """Masks are f32, also with weights of 16 bits; f64 with such weights."""
    return torch.float64 if model.dtype == torch.float64 else torch.float32


def set_rate(optimizer, rate, share):
    for group in optimizer.param_groups:
        group["lr"] = rate * share
    return rate * share


def report(text):
    print(f"heads.py: {text}", file=sys.stderr, flush=True)


class Training:
    """A trainer with its files in a folder. `identity`: what a run must share with the one that it
    resumes: options and digests of model and texts."""

    def __init__(self, trainer, folder, identity, options):
        self.trainer, self.folder, self.identity, self.options = trainer, folder, identity, options
        self.done, self.stopped = 0, False
        self.lines = ["\t".join(("step",) + trainer.columns) + "\n"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self):
        """The checkpoint is replaced last: what it says is in the other files, too."""
        for name, rows in self.trainer.tables().items():
            write_whole(self.path(name), format_table(rows, 17 if name == SOFT_TABLE else 9))
        write_config(self.path(CONFIG), self.identity)
        data = io.BytesIO()
        torch.save({"identity": self.identity, "step": self.done, "curve": "".join(self.lines),
                    "state": self.trainer.state(),
                    "optimizer": self.trainer.optimizer.state_dict()}, data)
        write_whole(self.path(CHECKPOINT), data.getvalue())

    def resume(self):
        path = self.path(CHECKPOINT)
        try:
            saved = torch.load(path, weights_only=True)
            identity, state = saved["identity"], saved["state"]
            self.lines = saved["curve"].splitlines(keepends=True)
            self.done = saved["step"]
        except Exception as problem:  # torch.load() raises whatever its reader finds
            why = getattr(problem, "strerror", None) or "this is no checkpoint of heads.py"
            raise BrokenFile(f"{path}: {why}") from None
        for name in sorted(set(identity) | set(self.identity)):
            if identity.get(name) != self.identity.get(name):
                raise Refused(f"{path} was made with {name} = {identity.get(name)}, "
                              f"not {self.identity.get(name)}")
        try:
            for name, tensor in self.trainer.state().items():
                tensor.copy_(state[name])
            self.trainer.optimizer.load_state_dict(saved["optimizer"])
        except (KeyError, RuntimeError, TypeError, ValueError):
            raise BrokenFile(f"{path}: the state in it is incomplete") from None

    def stop(self, number, _frame):
        """The first signal ends the run behind this step, the second at once."""
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True
        report(f"{signal.Signals(number).name}: stopping behind this step")

    def run(self):
        """Returns whether all steps were made."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.stop)
        write_whole(self.path(CURVE), "".join(self.lines))
        steps, every = self.options["steps"], self.options["save"]
        begin, first = time.monotonic(), self.done
        with open(self.path(CURVE), "a", encoding="ascii") as curve:
            while self.done < steps and not self.stopped:
                row = self.trainer.step(self.done)
                if not row["loss"] - row["loss"] == 0:
                    raise BrokenFile(f"step {self.done}: the loss is {row['loss']}")
                self.lines.append(format_row(self.done, row, self.trainer.columns))
                curve.write(self.lines[-1])
                curve.flush()
                self.done += 1
                if self.done % every == 0 and self.done < steps:
                    self.save()
                    pace = (time.monotonic() - begin) / (self.done - first)
                    report(f"step {self.done} of {steps}, loss {row['loss']:.4f}, sparsity "
                           f"{row['sparsity']:.3f}, {pace:.2f} s a step")
        self.save()
        return self.done == steps


def format_row(step, row, columns):
    values = (row[name] for name in columns)
    return "\t".join([str(step)] + [f"{value:.9g}" if isinstance(value, float) else str(value)
                                    for value in values]) + "\n"


def start(trainer, path, shape):
    """Begins with the numbers of a table."""
    rows = read_table(path)
    check_shape(path, rows, *shape)
    trainer.start_from(rows)


def answers_right(model, sample):
    """Which tokens of the answers the model would say itself, [A] bool."""
    answers = torch.tensor(sample.answers, device=model.device)
    rows = last_hidden(model, sample.ids)[answers.roll(-1)]
    ids = torch.tensor(sample.ids, device=model.device)[answers]
    return (rows @ model.lm_head.weight.T).argmax(-1) == ids


@torch.no_grad()
def evaluate(model, mixer, source, options, weights):
    """Mean of what the model gets right (share of answer tokens; of plain text the mean negative
    log likelihood) with each of the weights [L, G], or None for its own attention."""
    results = []
    for weight in weights:
        mixer.mode, mixer.weights = ("mixed", weight) if weight is not None else ("full", None)
        values = []
        for number in range(options["samples"]):
            # behind all samples of a training run, so that they are other ones
            sample = source.draw(options["seed"], options["steps"] * options["batch"] + number)
            if sample.answers:
                values.append(answers_right(model, sample).double().mean().item())
            else:
                targets = torch.tensor(sample.ids[1:], device=model.device)
                values.append(losses.NextToken.apply(last_hidden(model, sample.ids)[:-1],
                                                     model.lm_head.weight, targets).item())
        results.append(sum(values) / len(values))
    return results
