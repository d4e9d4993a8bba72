#!/usr/bin/python3
"""fingerprint.py - the "weights" hash of a model folder, from formats/kv-snapshot.md section 6

usage: fingerprint.py [--samples] DIR

Reads the folder on its own and hashes with python3-xxhash. Prints 32 hexadecimal digits: of all
bytes (weights_rule 2), or with --samples as older programs did.
"""

import json
import pathlib
import struct
import sys

import xxhash


def tensors(path):
    """Yields (name, dtype, shape, bytes of the tensor) of one safetensors file."""
    with open(path, "rb") as f:
        length = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                f.seek(8 + length + begin)
                yield name, entry["dtype"], entry["shape"], f.read(end - begin)


def whole(data):
    pieces = (data[at:at + (1 << 20)] for at in range(0, len(data), 1 << 20))
    return struct.pack("<Q", len(data)) + b"".join(xxhash.xxh3_128_digest(p) for p in pieces)


def sample(data):
    if len(data) <= 65536:
        return data
    starts = (i * (len(data) - 4096) // 15 for i in range(16))
    return b"".join(data[s:s + 4096] for s in starts)


rule = sample if sys.argv[1] == "--samples" else whole
folder = pathlib.Path(sys.argv[-1])
found = {}
files = [folder / "model.safetensors"]
if not files[0].exists():
    files = sorted(folder.glob("model-*.safetensors"))
for file in files:
    for name, dtype, shape, data in tensors(file):
        piece = name.encode() + b"\0" + dtype.encode() + b"\0" + struct.pack("<I", len(shape))
        piece += struct.pack(f"<{len(shape)}Q", *shape) + rule(data)
        found[name.encode()] = piece
print(xxhash.xxh3_128_hexdigest(b"".join(found[name] for name in sorted(found))))
