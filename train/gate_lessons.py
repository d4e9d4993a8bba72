"""What a gate of KVzap learns from: the hidden states of a text's tokens, and the scores that
KVzip+ gives to their rows.

The scores are those of the C programs, which repeat the text; the hidden states, behind the input
norm of each layer, are transformers'. Both get the same token ids.

Letters: L layers, G KV heads, D model width, T tokens of a text, P tokens of it that are lessons.
"""

import hashlib
import io
import json
import os
import random
import subprocess
import sys

import numpy
import torch

from failures import BrokenFile, Refused
from lookahead_files import fingerprint, write_atomically
from lookahead_prompts import begin_ids, draw_paragraphs

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kvsnapshot  # noqa: E402

FLOOR = 1e-6                # of a score: the least that SmolLM2 gives to a row is ten times that
TRIES = 20                  # texts that are too short before they are refused


def draw_ids(rng, tokenizer, sources, shortest, longest):
    """Token ids of a text: neighbouring paragraphs of one file or of several."""
    most = 0
    for _ in range(TRIES):
        length = rng.randint(shortest, longest)
        paragraphs = draw_paragraphs(rng, sources, tokenizer, length)[0]
        ids = begin_ids(tokenizer) + tokenizer("\n\n".join(paragraphs),
                                               add_special_tokens=False).input_ids
        most = max(most, len(ids))
        if len(ids) >= length:
            return ids[:length]
    raise Refused(f"the texts are too short: the longest of {TRIES} has {most} tokens, and texts "
                  f"are to have from {shortest} to {longest}")


@torch.no_grad()
def hidden_states(model, ids):
    """f32 [L][T][D], behind the input norm of each layer"""
    kept = []
    hooks = [layer.input_layernorm.register_forward_hook(lambda _, __, out: kept.append(out[0]))
             for layer in model.layers]
    try:
        model.run(model.embed(torch.tensor(ids)[None]), torch.arange(len(ids))[None], store=False)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(kept).float().numpy()


def piped(commands, data):
    """What the last of the programs writes, of what the first one reads."""
    for command in commands:
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise BrokenFile(f"{' '.join(command[:2])} ended with status {done.returncode}")
        data = done.stdout
    return data


def scored_snapshot(folder, ids, threads, plus):
    """The bytes of a snapshot of this text with KVzip's scores; plus: KVzip+'s"""
    with_model = ["-q", "-j", str(threads), "-m", folder]
    return piped([["kv-prefill", *with_model, "--ids"],
                  ["kv-observe", *with_model, "--repeat-context", *["--value-norms"] * plus],
                  ["kv-score", "-q", "--method", "kvzip"]], "\n".join(map(str, ids)).encode())


def plus_scores(folder, ids, threads):
    """f32 [L][G][T]: KVzip+'s score of each row; +inf of those that it always keeps"""
    written = scored_snapshot(folder, ids, threads, True)
    return numpy.array([layer.scores for layer in kvsnapshot.read(io.BytesIO(written)).layers])


class Teacher:
    """Makes lessons, f32 [L][P][D+G]: inputs, and the logarithms of scores beside them. One that is
    in the folder already is taken from there."""

    def __init__(self, model, folder, lessons, dtype, threads):
        self.model, self.folder, self.lessons = model, folder, lessons
        self.threads, self.identity = threads, [fingerprint(folder), dtype, FLOOR]
        os.makedirs(lessons, exist_ok=True)

    def teach(self, ids, positions, seed):
        """The path of a lesson: of so many positions by chance, or of all; those with a score of
        +inf are left out."""
        key = json.dumps([self.identity, ids, positions, seed]).encode()
        path = os.path.join(self.lessons, hashlib.sha256(key).hexdigest()[:32] + ".npy")
        if not os.path.exists(path):
            scores = plus_scores(self.folder, ids, self.threads)
            chosen = numpy.flatnonzero(numpy.isfinite(scores).all((0, 1))).tolist()
            if positions is not None and positions < len(chosen):
                chosen = sorted(random.Random(f"positions {seed}").sample(chosen, positions))
            targets = numpy.log(numpy.maximum(scores[:, :, chosen], FLOOR)).transpose(0, 2, 1)
            lesson = numpy.concatenate([hidden_states(self.model, ids)[:, chosen], targets], -1)
            write_atomically(path, lambda temporary: save(temporary, lesson))
        return path


def save(path, array):
    with open(path, "wb") as file:
        numpy.save(file, array)


def load_layer(paths, layer, width):
    """Inputs [n][D] and targets [n][G] of a layer, of all these lessons"""
    parts = []
    for path in paths:
        try:
            parts.append(numpy.load(path, mmap_mode="r")[layer])
        except (ValueError, EOFError) as problem:
            raise BrokenFile(f"{path}: no lesson: {problem}") from problem
    whole = torch.from_numpy(numpy.concatenate(parts))
    return whole[:, :width].contiguous(), whole[:, width:].contiguous()
