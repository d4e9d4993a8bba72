"""Gates as torch modules, to hold train/gates.py and kv-prefill --gate to.

    train_gates.py published FILE.pt           writes a gate of Fast KVzip for the demo model as its
                                               authors publish it, of numbers by chance
    train_gates.py compare GATE SCORED.kv      what kvzap or fastkvzip made of the scores of the
                                               module, with the demo model; GATE is a folder of
                                               KVzap, or FILE.pt
    train_gates.py explains GATE.kv PLUS.kv    a gate's scores come near to the logarithm of
                                               KVzip+'s in each layer
    train_gates.py fits                        the fits against others, of numbers by chance
    train_gates.py lessons IDS SCORED.kv       a lesson against the scores of a snapshot
    train_gates.py refused CASES               each line of CASES: exit status, what the last line
                                               of standard error ends with, and arguments of
                                               gates.py, with tabs between
    train_gates.py changed CASES FILE.pt       each line: what --convert says of FILE.pt behind a
                                               Python statement about `o`, what is in it
"""

import contextlib
import io
import math
import os
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "train"), os.path.join(ROOT, "python")]

import gates  # noqa: E402
import gate_fits  # noqa: E402
import gate_lessons  # noqa: E402
import kvsnapshot  # noqa: E402
from lookahead_model import FrozenModel  # noqa: E402

DEMO = os.path.join(ROOT, "examples", "demo-model")
LAYERS, GROUPS, REPEATS, MODEL = 4, 2, 2, 128
WIDTH, SINKS = 16, 12


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


class FastGate(nn.Module):
    """Of one layer; its parameters have the names and shapes of the published ones."""

    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(MODEL, GROUPS * REPEATS * WIDTH)
        self.k_proj = nn.Linear(MODEL, GROUPS * WIDTH, bias=False)
        self.q_norm, self.k_norm = Norm(), Norm()
        self.k_base = nn.Parameter(torch.randn(GROUPS, 1, SINKS, WIDTH) * 0.3)
        self.b = nn.Parameter(torch.randn(GROUPS, 1, REPEATS))

    def forward(self, h):
        """[T][D] -> [T][G]"""
        columns = []
        for g in range(GROUPS):
            shares = []
            for r in range(REPEATS):
                at = (g * REPEATS + r) * WIDTH
                q = self.q_norm(self.q_proj(h)[:, at:at + WIDTH])
                k = self.k_norm(self.k_proj(h)[:, g * WIDTH:(g + 1) * WIDTH])
                own = (q * k).sum(-1, keepdim=True) / math.sqrt(WIDTH) + self.b[g, 0, r]
                all_ = torch.cat([own, q @ self.k_base[g, 0].T / math.sqrt(WIDTH)], 1)
                shares.append(all_.softmax(-1)[:, 0])
            columns.append(torch.stack(shares).mean(0))
        return torch.stack(columns, 1)


def published(path):
    torch.manual_seed(5)
    torch.save({"module": [FastGate().state_dict() for _ in range(LAYERS)],
                "loss": np.linspace(1, 0, 7)}, path)


def modules_of(gate):
    if gate.endswith(".pt"):
        state = torch.load(gate, weights_only=False)["module"]
        made = [FastGate() for _ in state]
    else:
        tensors = load_file(os.path.join(gate, "model.safetensors"))
        state = [{name.split(".", 2)[2]: tensor for name, tensor in tensors.items()
                  if name.startswith(f"layers.{layer}.")} for layer in range(LAYERS)]
        hidden = len(state[0].get("0.bias", ()))
        made = [nn.Sequential(nn.Linear(MODEL, hidden), nn.GELU(), nn.Linear(hidden, GROUPS))
                if hidden else nn.Linear(MODEL, GROUPS) for _ in state]
    for module, tensors in zip(made, state):
        module.load_state_dict(tensors)
    return made


@torch.no_grad()
def compare(gate, path):
    snapshot = kvsnapshot.read(path)
    hidden = gate_lessons.hidden_states(FrozenModel.load(DEMO), snapshot.tokens.tolist())
    for layer, module in enumerate(modules_of(gate)):
        wanted = module(torch.from_numpy(hidden[layer])).numpy()
        for g, got in enumerate(snapshot.layers[layer].scores):
            rows = np.isfinite(got)             # others are kept in any case
            assert rows.sum() > 0.9 * len(wanted)
            wrong = np.abs(wanted[rows, g] - got[rows]).max()
            assert wrong < 2e-5 * np.abs(wanted).max(), f"layer {layer} KV head {g}: {wrong}"
        assert wanted.std() > 1e-2, "all rows have the same score"


def explains(gate, plus):
    shares = []
    for one, other in zip(kvsnapshot.read(gate).layers, kvsnapshot.read(plus).layers):
        for a, b in zip(one.scores, other.scores):
            a, b = a[np.isfinite(b)], np.log(b[np.isfinite(b)])
            shares.append(1 - ((a - b) ** 2).sum() / ((b - b.mean()) ** 2).sum())
    assert min(shares) > 0 and np.mean(shares) > 0.4, shares


def naive_ranks(values):
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


def fits():
    rng = np.random.default_rng(3)
    n, width, heads = 50, 80, 3                 # more unknowns than equations
    x, y = rng.normal(2, 1, (n, width)), rng.normal(-5, 1, (n, heads))
    # as least squares: a row sqrt(alpha) for each weight, none for the bias
    rows = np.block([[x, np.ones((n, 1))],
                     [np.eye(width) * math.sqrt(gate_fits.ALPHA), np.zeros((width, 1))]])
    wanted = np.linalg.lstsq(rows, np.vstack([y, np.zeros((width, heads))]), rcond=None)[0]
    weight, bias = gate_fits.ridge(torch.tensor(x), torch.tensor(y))
    assert np.abs(wanted[:-1].T - weight.numpy()).max() < 1e-6
    assert np.abs(wanted[-1] - bias.numpy()).max() < 1e-5
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    nets = [gate_fits.fit_mlp(x, y, 4, 2, seed)[0].weight for seed in (1, 1, 2)]
    assert nets[0].equal(nets[1]) and not nets[0].equal(nets[2])
    a, b = rng.integers(0, 9, 60), rng.integers(0, 9, 60)
    wanted = np.corrcoef(naive_ranks(a), naive_ranks(a + b))[0, 1]
    assert abs(gate_fits.spearman(a, a + b) - wanted) < 1e-12
    assert abs(gate_fits.explained(np.array([1., 2, 4]), np.array([1., 2, 3])) - 0.5) < 1e-12


def lessons(ids_path, scored):
    with open(ids_path, encoding="ascii") as file:
        ids = [int(line) for line in file]
    scores = np.array([layer.scores for layer in kvsnapshot.read(scored).layers])
    finite = np.isfinite(scores).all((0, 1))
    assert 0 < (~finite).sum() < 9
    model = FrozenModel.load(DEMO)
    hidden = gate_lessons.hidden_states(model, ids)
    # a floor that some scores are below
    gate_lessons.FLOOR = float(np.median(scores[:, :, finite]))
    with tempfile.TemporaryDirectory() as folder:
        teacher = gate_lessons.Teacher(model, DEMO, folder, "float32", 1)
        whole = teacher.teach(ids, None, "a")
        some = np.load(teacher.teach(ids, 20, "a"))
        assert some.shape == (LAYERS, 20, MODEL + GROUPS)
        for layer in range(LAYERS):
            x, y = gate_lessons.load_layer([whole, whole], layer, MODEL)
            one = np.concatenate([hidden[layer], np.log(np.maximum(
                scores[layer], gate_lessons.FLOOR)).T], 1)[finite]
            both = np.concatenate([x.numpy(), y.numpy()], 1)
            assert np.array_equal(both, np.concatenate([one, one]))
            assert {row.tobytes() for row in some[layer]} < {row.tobytes() for row in one}


def said(arguments):
    """Exit status of gates.py, and the last line of what it says."""
    sys.argv, text = ["gates.py", *arguments], io.StringIO()
    with contextlib.redirect_stderr(text):
        try:
            status = gates.main()
        except SystemExit as end:
            status = end.code
    return status, (text.getvalue().splitlines() or [""])[-1]


def cases_of(path):
    with open(path, encoding="ascii") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def refused(path):
    for status, words, *arguments in cases_of(path):
        got, line = said(arguments)
        assert (got, line.endswith(words)) == (int(status), True), (arguments, got, line)


class Run:
    """Makes a folder where a file with it is loaded without care."""

    def __reduce__(self):
        return os.mkdir, ("was-run",)


def changed(cases, path):
    for statement, words in cases_of(cases):
        o = torch.load(path, weights_only=False)
        exec(statement, {"Run": Run}, {"o": o})
        torch.save(o, "changed.pt")
        got, line = said(["--convert", "changed.pt", "--out", "never"])
        assert (got, words in line) == (1, True), (statement, got, line)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](*sys.argv[2:])
