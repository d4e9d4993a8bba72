#!/usr/bin/env python3
"""families.py - tiny random models of every family, against transformers or what was recorded of it

families.py oracle BUILD [-k WORD]     against transformers, run by $TRAIN_PYTHON (python3); a
                                       table, exit 1 where an error is too great
families.py record [-k WORD]           what transformers computes, to tests/fixtures/families.json
families.py golden WORK CASE ...       the models in WORK/CASE, against the record; kv-prefill and
                                       kv-decode are on PATH

The record was made with transformers 5.2.0 and PyTorch 2.5.1; from OLMo-3 on with 5.24.0 and 2.6.0,
with which the older cases agree, too. It has, for each case, some logits at
three positions and at the last one, the last row of keys and values of two layers, the attention
that some rows receive there, and the 64 tokens that follow. Errors are in the L2 norm, relative.
Attention is also computed from the queries and keys of the snapshot: logits must be q.k / sqrt(E)
in every family.
"""

import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "format"))
sys.path.insert(0, str(HERE.parent / "bin"))
import kvread  # noqa: E402
import mkfamily  # noqa: E402

RECORD = HERE.parent / "fixtures" / "families.json"
TOKENS, ALLOWED, AT, IDS, LAYERS = 48, 1e-4, (0, 17, 40, 47), 6, (1, 3)


def prompt(name):
    rng = random.Random(name + " prompt")
    return [rng.randrange(8, mkfamily.VOCAB - 8) for _ in range(TOKENS)]


def prefill(folder, ids, out, *more):
    (folder / "prefix").write_text(" ".join(map(str, ids)))
    subprocess.run(["kv-prefill", "-q", "--device", "cpu", "--dtype", "f32", "-m", folder, "--ids",
                    "-o", out, *more, folder / "prefix"], check=True)
    with open(out, "rb") as file:
        return kvread.read(file)


def in_text(snapshot, l, g, values):
    """[T ...] of the rows of a KV head; NaN where a row is not there any more."""
    values = np.array(values)
    out = np.full((TOKENS, *values.shape[1:]), np.nan)
    out[snapshot.layers[l].positions[g]] = values
    return out


def rows(snapshot, what):
    """[L][G][T][E] of a snapshot."""
    return np.array([[in_text(snapshot, l, g, snapshot.array(l, what, g))
                      for g in range(snapshot.model["kv_heads"])] for l in range(mkfamily.LAYERS)])


def received(snapshot, l):
    """[H][T]: the attention of all tokens, from the queries and keys of a layer;
    NaN where rows are missing."""
    model = snapshot.head["model"]
    cap = model.get("attention_softcap", 0)
    heads, kv_heads, width = (model[key] for key in ("query_heads", "kv_heads", "head_width"))
    if any(len(snapshot.layers[l].positions[g]) < TOKENS for g in range(kv_heads)):
        return np.full((heads, TOKENS), np.nan)
    group, layer = heads // kv_heads, snapshot.layers[l]
    q = kvread.widen(layer.queries.data, "f32")
    q = np.array(q).reshape(heads, TOKENS, width)
    out = []
    for h in range(heads):
        keys = np.array(snapshot.array(l, "keys", h // group))
        logits = q[h] @ keys.T / math.sqrt(width)
        logits = cap * np.tanh(logits / cap) if cap else logits
        weights = np.exp(np.where(np.tri(TOKENS) > 0, logits, -np.inf))
        sink = math.exp(layer.sinks[h]) if layer.sinks is not None else 0
        out.append((weights / (weights.sum(1, keepdims=True) + sink)).sum(0))
    return np.array(out)


def ours(folder, ids, at):
    """As families_hf.py has it, logits at these positions, and "each" in one run (--logits);
    "seen": attention from queries and keys."""
    out, logits = folder / "out.kv", {}
    for t in at:
        more = ()
        if t == TOKENS - 1:
            more = ("--mass", "--observe", str(TOKENS), "--logits", folder / "each.npy")
        snapshot = prefill(folder, ids[:t + 1], out, *more)
        logits[t] = np.array(snapshot.logits)
    heads = snapshot.model["query_heads"]
    group = heads // snapshot.model["kv_heads"]
    mass = np.array([[in_text(snapshot, l, h // group, layer.mass[h // group][h % group])
                      for h in range(heads)] for l, layer in enumerate(snapshot.layers)])
    seen = np.array([received(snapshot, l) for l in range(mkfamily.LAYERS)])
    text = subprocess.run(["kv-decode", "-q", "--device", "cpu", "-m", folder, "--ids",
                           "--ignore-eos", "-n", "64", out],
                          check=True, capture_output=True, text=True).stdout
    return {"logits": logits, "each": np.load(folder / "each.npy"),
            "keys": rows(snapshot, "keys"), "values": rows(snapshot, "values"),
            "mass": mass, "seen": seen, "greedy": [int(word) for word in text.split()]}


def relative(a, b):
    """Of what there is of a, if anything is."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    there = ~np.isnan(a)
    a, b = a[there], b[there]
    if a.size == 0:
        return 0.0
    return float(math.sqrt(((a - b) ** 2).sum() / (b ** 2).sum()))


def compare(name, got, want):
    """A line of the table, and whether all is well."""
    logits = max(relative(got["logits"][t], want["logits"][t]) for t in range(TOKENS))
    kv = max(relative(got[what], want[what]) for what in ("keys", "values"))
    mass = max(relative(got[what], want["mass"]) for what in ("mass", "seen"))
    same = sum(a == b for a, b in zip(got["greedy"], want["greedy"], strict=True))
    line = f"| {name} | {logits:.1e} | {same} of 64 | {kv:.1e} | {mass:.1e} |"
    return line, max(logits, kv, mass) < ALLOWED and same == 64


def short(x):
    return [float(f"{v:.7g}") for v in np.asarray(x).ravel()]


def excerpt(result):
    """What the record has of a result."""
    last = [result[what][l, :, -1].ravel() for l in LAYERS for what in ("keys", "values")]
    return {"logits": [short(result["logits"][t][:IDS]) for t in AT],
            "sum": short([result["logits"][t].sum() for t in AT]),
            "rows": [short(x[:8]) for x in last], "mass": short(result["mass"][LAYERS[1], :, :2]),
            "late": short(result["mass"][LAYERS[0], :, -2:]),
            "greedy": [int(t) for t in result["greedy"]]}


def oracle(options):
    os.environ["PATH"] = f"{pathlib.Path(options.build or '.').resolve()}:{os.environ['PATH']}"
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", KV_PRODUCTS="f32")
    names = [name for name in mkfamily.CASES if options.k in name]
    tokenizer = HERE.parent.parent / "examples" / "demo-model" / "tokenizer.json"
    record, well = {}, True
    with tempfile.TemporaryDirectory() as work:
        folders = [pathlib.Path(work) / name for name in names]
        for name, folder in zip(names, folders, strict=True):
            mkfamily.main([name, folder, tokenizer])
            (folder / "ids").write_text(" ".join(map(str, prompt(name))))
        python = os.environ.get("TRAIN_PYTHON", "python3")
        subprocess.run([python, HERE / "families_hf.py", *folders], check=True)
        if options.build:
            print("| model | logits | greedy | keys and values | attention |\n"
                  "|---|---|---|---|---|")
        for name, folder in zip(names, folders, strict=True):
            with np.load(folder / "hf.npz") as file:
                want = {key: file[key] for key in file.files}
            record[name] = excerpt(want)
            if not options.build:
                continue
            line, good = compare(name, ours(folder, prompt(name), range(TOKENS)), want)
            well = well and good
            print(line if good else line + " WRONG", flush=True)
    if options.what == "record":
        record = {**json.loads(RECORD.read_text()), **record} if options.k else record
        record = {name: record[name] for name in mkfamily.CASES if name in record}
        lines = [f"{json.dumps(name)}: {json.dumps(record[name], separators=(',', ':'))}"
                 for name in record]
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0 if well else 1


def golden(case, work, want):
    """Prints the error of a case; whether all is well."""
    result = ours(pathlib.Path(work) / case, prompt(case), AT)
    got = excerpt(result)
    error = max(relative(got[key], want[key]) for key in ("logits", "rows", "mass", "late"))
    error = max(error, relative([short(result["each"][t][:IDS]) for t in AT], want["logits"]),
                relative([result["each"][t] for t in AT], [result["logits"][t] for t in AT]))
    seen = result["seen"]
    error = max(error, relative(seen, np.where(np.isnan(seen), np.nan, result["mass"])))
    same = got["greedy"] == want["greedy"]
    well = error < ALLOWED and same
    print(f"{case} {error:.1e} {'same' if same else 'other'} tokens" + ("" if well else " WRONG"),
          flush=True)
    return well


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    command = commands.add_parser("oracle")
    command.add_argument("build")
    command.add_argument("-k", default="", help="only cases with this in their name")
    command = commands.add_parser("record")
    command.add_argument("-k", default="",
                         help="only cases with this in their name; the others stay")
    command.set_defaults(build=None)
    command = commands.add_parser("golden")
    command.add_argument("work")
    command.add_argument("cases", nargs="+", metavar="CASE")
    options = parser.parse_args()
    if options.what != "golden":
        return oracle(options)
    record = json.loads(RECORD.read_text())
    return 0 if all([golden(case, options.work, record[case]) for case in options.cases]) else 1


if __name__ == "__main__":
    sys.exit(main())
