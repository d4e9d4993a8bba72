"""What full sinks would bring: a snapshot in elements that has the numbers of quantised rows, but
for the first rows of each KV head, which are those of the full one. For quantised_rows.py."""

import json
import os


def open_tensors(path):
    """{name: array [G][S][bytes of a row]} of the keys and values in a file of kv-convert, which
    can be written"""
    import numpy
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(size))
    data = numpy.memmap(path, "u1", "r+", 8 + size)
    return {name: data[slice(*one["data_offsets"])].reshape(*one["shape"][1:3], -1)
            for name, one in head.items() if name.endswith((".keys", ".values"))}


def with_full_sinks(program, full, small, sinks, out):
    """out <- the snapshot `small`, whose rows are quantised, with its first rows as in `full`; all
    are paths of snapshots. program(WORD ...): runs one."""
    exact, rows = f"{out}.exact.safetensors", f"{out}.safetensors"
    program("kv-convert", "-q", "-o", exact, full)
    program("kv-convert", "-q", "-o", rows, small)
    there = open_tensors(exact)
    for name, tensor in open_tensors(rows).items():
        tensor[:, :sinks] = there[name][:, :sinks]
        tensor.base.flush()
    program("kv-convert", "-q", "-o", out, rows)
    for path in (exact, rows):
        os.remove(path)
