#!/usr/bin/env python3
"""real_model.py MODEL WORK: a real model against transformers, from text to text, as TAP

MODEL is the folder of SmolLM2-135M-Instruct that examples/smollm2/folder.sh makes; WORK a new
folder; kv-* are on PATH. $TRAIN_PYTHON (python3) runs real_model_hf.py. Compared: ids of texts;
logits behind each of 64 tokens; 64 greedy tokens; keys and values of a prompt of about a thousand
tokens, whole, in chunks, and continued from snapshots; text that is continued from a snapshot here
and there.

Tokens are compared exactly. Errors are in the L2 norm, relative, with f32 caches: weights are bf16
on both sides and widened exactly, so that only the order of f32 sums differs, and what 30 layers
make of that.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "format"))
import kvread  # noqa: E402

COUNT = 64                      # positions, and tokens that are generated
ALLOWED = 3e-5
ALLOWED_BF16 = 2 ** -8          # unit roundoff of bf16
LONG = "manual"
PIECE = 150
PLAN = {"count": COUNT, "run": ["chat", "code", "licence", LONG], "logits": ["chat", "code"],
        "greedy": ["chat", "code", "licence", LONG], "rows": [LONG],
        "conversation": [
            {"role": "user", "content": "Why is the sky blue? Answer in one sentence."},
            {"role": "assistant", "content": "Air scatters blue light most."},
            {"role": "user", "content": "And why are sunsets red?"}]}
UNICODE = ("naïve café, e\u0301 and é; ÅÄÖ ß ﬁ Ⅳ ½ ２３; Привет, мир! Γειά σου Κόσμε. "
           "שלום עולם. مرحبا بالعالم ١٢٣\n"
           "你好，世界。こんにちは世界、カタカナ。안녕하세요 세계. नमस्ते दुनिया. สวัสดีชาวโลก\n"
           "👋🏽 👨\u200d👩\u200d👧 🇩🇪 ✨\u00a0x\u2009y\u3000z\t\ttabs  two   three\r\n\r\n"
           "\u200b\ufeff end 1234567890 1,234.5e-6\n")

done = {"ok": 0, "not ok": 0}


def check(good, what):
    word = "ok" if good else "not ok"
    done[word] += 1
    print(f"{word} {sum(done.values())} - {what}", flush=True)


def kv(program, *arguments, ids=None):
    """Standard output of a program that runs on the CPU's f32."""
    given = " ".join(map(str, ids)) if ids is not None else None
    return subprocess.run([program, *map(str, arguments)], input=given, check=True, text=True,
                          capture_output=True).stdout


def numbers(text):
    return [int(word) for word in text.split()]


def prefill(model, out, ids, *more):
    kv("kv-prefill", "-q", "--device", "cpu", "--products", "f32", "-m", model, "--ids",
       "-o", out, *more, "-", ids=ids)
    return out


def read(path):
    with open(path, "rb") as file:
        return kvread.read(file)


def rows(snapshot, what):
    """[L][G][T][E]"""
    groups = range(len(snapshot.layers[0].positions))
    return np.array([[snapshot.array(l, what, g) for g in groups]
                     for l in range(len(snapshot.layers))])


def relative(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.sqrt(((a - b) ** 2).sum() / (b ** 2).sum()))


def small(error, what, allowed=ALLOWED):
    check(error < allowed, f"{what}: {error:.1e}, at most {allowed:.1e}")


def write_texts(work):
    (work / "licence.txt").write_bytes((ROOT / "LICENSE").read_bytes())
    shutil.copyfile(ROOT / "model" / "forward.c", work / "source.txt")
    (work / "code.txt").write_bytes((HERE / "same.py").read_bytes()[:1500])
    (work / "unicode.txt").write_bytes(UNICODE.encode())
    shutil.copyfile(ROOT / "examples" / "prompts" / "manual.txt", work / f"{LONG}.txt")
    (work / "plan.json").write_text(json.dumps(PLAN))


def check_tokens(model, work, want):
    for path in sorted(work.glob("*.txt")):
        ids = want[f"{path.stem}.ids"].tolist()
        ours = numbers(kv("kv-tokenize", "-m", model, path))
        check(ours == ids, f"tokens of {path.stem}: {len(ids)}, the same ids")
        said = subprocess.run(["kv-tokenize", "-d", "-m", model], check=True, capture_output=True,
                              input=" ".join(map(str, ids)).encode()).stdout
        check(said == path.read_bytes(), f"ids of {path.stem} are its text again")


def check_logits(model, work, want):
    for name in PLAN["logits"]:
        ids, worst, same = want[f"{name}.ids"].tolist(), 0, 0
        for t in range(COUNT):
            snapshot = prefill(model, work / "x.kv", ids[:t + 1], "--dtype", "f32")
            logits = np.array(read(snapshot).logits)
            worst = max(worst, relative(logits, want[f"{name}.logits"][t]))
            same += int(logits.argmax() == want[f"{name}.logits"][t].argmax())
        small(worst, f"logits of {name}, worst of {COUNT} positions")
        check(same == COUNT, f"likeliest token of {name}: the same at {same} of {COUNT} positions")


def check_greedy(model, work, want):
    for name in PLAN["greedy"]:
        ids, said = want[f"{name}.ids"].tolist(), want[f"{name}.greedy"].tolist()
        snapshot = prefill(model, work / "x.kv", ids, "--dtype", "f32")
        small(relative(read(snapshot).logits, want[f"{name}.last"]),
              f"last logits of {name}, {len(ids)} tokens")
        options = ("-q", "--device", "cpu", "-m", model, "--ids", "--ignore-eos")
        ours = numbers(kv("kv-decode", *options, "-n", COUNT, snapshot))
        same = sum(a == b for a, b in zip(ours, said))
        check(ours == said, f"greedy tokens of {name}: {same} of {COUNT}")
        first = numbers(kv("kv-decode", *options, "-n", 20, "-o", work / "more.kv", snapshot))
        rest = numbers(kv("kv-decode", *options, "-n", COUNT - 20, work / "more.kv"))
        check(first + rest == said,
              f"greedy tokens of {name}, resumed from a snapshot behind 20 of them")


def check_rows(model, work, want):
    """Every way to the same cache."""
    ids = want[f"{LONG}.ids"].tolist()
    pieces = [ids[i:i + PIECE] for i in range(0, len(ids), PIECE)]
    whole = prefill(model, work / f"{LONG}.kv", ids, "--dtype", "f32")
    chunks = prefill(model, work / "chunks.kv", ids, "--dtype", "f32", "--chunk", PIECE)
    resumed = prefill(model, work / "resumed.kv", pieces[0], "--dtype", "f32")
    for piece in pieces[1:]:
        prefill(model, resumed, piece, "--no-template", "-r", resumed)
    for what, path in (("whole", whole), (f"in chunks of {PIECE}", chunks),
                       (f"continued {len(pieces) - 1} times from a snapshot", resumed)):
        snapshot = read(path)
        for part in ("keys", "values"):
            ours, theirs = rows(snapshot, part), want[f"{LONG}.{part}"]
            worst = max(relative(a, b) for a, b in zip(ours, theirs, strict=True))
            small(worst, f"{part} of {len(ids)} tokens, {what}, worst of {len(ours)} layers")
        small(relative(snapshot.logits, want[f"{LONG}.last"]), f"logits behind them, {what}")
    snapshot = read(prefill(model, work / "bf16.kv", ids))
    # The rounded rows of a layer change the input of the layers after it.
    for part in ("keys", "values"):
        small(relative(rows(snapshot, part)[0], want[f"{LONG}.{part}"][0]),
              f"{part} of the first layer, rounded to bf16", ALLOWED_BF16)


def check_continued(model, work, want):
    """transformers goes on where a snapshot of ours ends."""
    kv("kv-convert", "-o", work / "x.safetensors", work / f"{LONG}.kv")
    said = numbers(kv(os.environ.get("TRAIN_PYTHON", "python3"), HERE / "continue_cache.py",
                      ROOT / "examples" / "transformers", model, "go", work / "x.safetensors",
                      COUNT))
    check(said == want[f"{LONG}.greedy"].tolist(),
          f"transformers goes on from our snapshot: the same {COUNT} tokens")


def main():
    model, work = sys.argv[1], pathlib.Path(sys.argv[2])
    work.mkdir(parents=True)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    write_texts(work)
    python = os.environ.get("TRAIN_PYTHON", "python3")
    subprocess.run([python, HERE / "real_model_hf.py", model, work], check=True)
    with np.load(work / "hf.npz") as file:
        want = {key: file[key] for key in file.files}
    for part in (check_tokens, check_logits, check_greedy, check_rows, check_continued):
        part(model, work, want)
    print(f"1..{sum(done.values())}")
    return 1 if done["not ok"] else 0


if __name__ == "__main__":
    sys.exit(main())
