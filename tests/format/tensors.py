#!/usr/bin/env python3
"""A safetensors file and a snapshot, compared and made by other code than ours: NumPy, and the
readers of this folder.

  tensors.py compare SNAPSHOT FILE        every tensor is what the snapshot holds, its padding zero
  tensors.py write SNAPSHOT FILE [EDIT]   the snapshot as a file in another order of tensors; EDIT
                                          is Python that may change `meta` (a dict of texts) and
                                          `t` (a dict of arrays) before it is written"""

import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kvread  # noqa: E402

TYPES = {"I64": "<i8", "I32": "<i4", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
OURS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def read_file(path):
    """Metadata, and for each tensor its type and its array; BF16 as the 16 bits."""
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + n])
    meta = header.pop("__metadata__", {})
    assert n % 8 == 0, "the data does not begin on a multiple of 8"
    tensors, end = {}, 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = t["data_offsets"]
        assert begin == end, f"{name}: a hole or an overlap"
        end = after
        raw = np.frombuffer(data[8 + n + begin : 8 + n + after], TYPES[t["dtype"]])
        assert begin % raw.itemsize == 0, f"{name} is not aligned"
        tensors[name] = t["dtype"], raw.reshape(t["shape"])
    assert 8 + n + end == len(data), "bytes behind the last tensor"
    return meta, tensors


def rows(snapshot, l, name):
    """[G][S][E] as stored, zeros behind the rows of KV heads that have fewer than others"""
    layer, model = snapshot.layers[l], snapshot.head["model"]
    most = max(len(p) for p in layer.positions)
    out = np.zeros((1, model["kv_heads"], most, model["head_width"]),
                   TYPES[OURS[snapshot.head["dtype"]]])
    raw = np.frombuffer(getattr(layer, name), out.dtype).reshape(-1, model["head_width"])
    at = 0
    for g, p in enumerate(layer.positions):
        out[0, g, : len(p)] = raw[at : at + len(p)]
        at += len(p)
    return out


def tensors_of(snapshot):
    """What 4 of the format says, as the tensors that kv-convert(1) describes"""
    t = {"tokens": ("I64", np.array([snapshot.tokens], "<i8"))}
    for l, layer in enumerate(snapshot.layers):
        lists = [list(p) for p in layer.positions]
        most = max(len(p) for p in lists)
        padded = np.array([p + [-1] * (most - len(p)) for p in lists], "<i8")
        padded = padded.reshape(len(lists), most)
        same = all(p == lists[0] for p in lists)
        t[f"layers.{l}.positions"] = "I64", padded[:1] if same else padded
        for name in ("keys", "values"):
            t[f"layers.{l}.{name}"] = OURS[snapshot.head["dtype"]], rows(snapshot, l, name)
    if snapshot.logits is not None:
        t["logits"] = "F32", np.array([snapshot.logits], "<f4")
    return t


def compare(snapshot, path):
    meta, got = read_file(path)
    want = tensors_of(snapshot)
    assert sorted(got) == sorted(want), f"tensors: {sorted(got)}"
    for name, (dtype, array) in want.items():
        kind, values = got[name]
        assert kind == dtype and values.shape == array.shape, f"{name}: {kind} {values.shape}"
        assert got[name][1].tobytes() == array.tobytes(), f"{name} differs"
    assert json.loads(meta["kv-snapshot"]) == snapshot.head, "the head differs"


def write(snapshot, path, edit=""):
    meta, t = {"kv-snapshot": json.dumps(snapshot.head, indent=1)}, tensors_of(snapshot)
    exec(edit, {"meta": meta, "t": t, "np": np})
    header, body = {"__metadata__": meta} if meta else {}, b""
    for name in sorted(t, key=lambda name: (-t[name][1].itemsize, name[::-1])):
        dtype, array = t[name]
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(body), len(body) + array.nbytes]}
        body += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + body)


if __name__ == "__main__":
    with open(sys.argv[2], "rb") as source:
        read = kvread.read(source)
    {"compare": compare, "write": write}[sys.argv[1]](read, *sys.argv[3:])
