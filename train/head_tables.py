"""Tables of head masks: read, write, round. Standard library only (rounding imports what it needs).

A table has a line for each layer and in it a number for each KV head, 1 for a head that needs the
whole text, 0 for one that sees sinks and recent tokens only: full_attention_heads.tsv of
DuoAttention's attn_patterns, PruLong's masks, and what `kv-evict --heads` reads.
"""

import json
import math
import os

from failures import BrokenFile, Refused

TABLE = "full_attention_heads.tsv"
CONFIG = "config.json"
ROUNDINGS = ("nearest", "duo", "prulong")
NOISE = 1e-6                            # DuoAttention: against ties


def parse_line(place, text):
    """The numbers of one line, clipped to 0 .. 1; tabs, blanks or commas between, # a comment."""
    values = []
    for word in text.split("#")[0].replace(",", " ").split():
        try:
            if "_" in word:
                raise ValueError
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BrokenFile(f"{place} column {len(values) + 1}: {word!r} is not a number")
        values.append(min(max(value, 0.0), 1.0))
    return values


def read_table(path):
    """[layer][KV head] -> number of 0 .. 1. `path` may be a folder that holds such a table."""
    if os.path.isdir(path):
        path = os.path.join(path, TABLE)
    rows = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                values = parse_line(f"{path}: line {number}", text)
                if values and rows and len(values) != len(rows[0]):
                    raise BrokenFile(f"{path}: line {number}: the lines before have {len(rows[0])} "
                                     f"numbers, this one {len(values)}")
                if values:
                    rows.append(values)
    except (OSError, UnicodeDecodeError) as problem:
        raise BrokenFile(f"{path}: {getattr(problem, 'strerror', None) or 'not text'}") from None
    if not rows:
        raise BrokenFile(f"{path}: line 1: there are no numbers")
    return rows


def check_shape(path, rows, layers, heads):
    if (len(rows), len(rows[0])) != (layers, heads):
        raise Refused(f"{path} has {len(rows)} layers of {len(rows[0])} KV heads, "
                      f"the model {layers} of {heads}")


def format_table(rows, digits=17):
    return "".join("\t".join(f"{value:.{digits}g}" for value in row) + "\n" for row in rows)


def write_whole(path, data):
    """Writes bytes or text so that the file is there as a whole or not at all."""
    data = data.encode() if isinstance(data, str) else data
    try:
        with open(path + ".tmp", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
    except OSError as problem:
        raise BrokenFile(f"{path}: {problem.strerror}") from None


def write_config(path, config):
    write_whole(path, json.dumps(config, indent=1, sort_keys=True) + "\n")


def round_duo(flat, sparsity, seed):
    """sparsify_attention_heads() of DuoAttention: full where the number, with noise of U(0, 1e-6),
    reaches the quantile `sparsity` of all (linear interpolation)."""
    import numpy
    noisy = numpy.array(flat) + numpy.random.RandomState(seed).uniform(0, NOISE, len(flat))
    threshold = numpy.quantile(noisy, sparsity)
    if sparsity >= 1:
        threshold = 2
    if sparsity <= 0:
        threshold = -1
    return [int(value >= threshold) for value in noisy]


def round_prulong(flat, sparsity, seed):
    """round_masks_for_sparsity() of PruLong: the int(n (1 - sparsity)) greatest are full; of equal
    ones those that torch's generator gives the smaller number."""
    import torch
    generator = torch.Generator()
    generator.manual_seed(seed)
    draws = [torch.rand(1, generator=generator).item() for _ in flat]
    order = sorted(range(len(flat)), key=lambda i: (-flat[i], draws[i]))
    full = set(order[:int(len(flat) * (1 - sparsity))])
    return [int(i in full) for i in range(len(flat))]


def round_nearest(flat, sparsity, _seed):
    """kv-evict --sparsity: round(n sparsity) heads stream, halves to even; of equal ones the lower
    layer first, then the lower head."""
    order = sorted(range(len(flat)), key=lambda i: (flat[i], i))
    streams = set(order[:round(len(flat) * sparsity)])
    return [int(i not in streams) for i in range(len(flat))]


def round_table(rows, sparsity, rounding="nearest", seed=42):
    """The table as 0 and 1, where the share `sparsity` of all heads is 0."""
    flat = [value for row in rows for value in row]
    kept = {"duo": round_duo, "prulong": round_prulong, "nearest": round_nearest}[rounding](
        flat, sparsity, seed)
    width = len(rows[0])
    return [kept[at:at + width] for at in range(0, len(kept), width)]
