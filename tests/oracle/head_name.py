#!/usr/bin/python3
"""head_name.py - what snapshots call a retrieval head, from formats/kv-snapshot.md section 6

usage: head_name.py [--samples] HEAD        prints the 32 digits; --samples: those of older programs
       head_name.py --rename HEAD IN OUT    copies a snapshot whose rHDk has the first name, with
                                            the second

For a head with features and feature_layers in its configuration, without RoPE scaling.
"""

import json
import pathlib
import struct
import subprocess
import sys

import xxhash

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bin"))
import sections                                                             # noqa: E402


def name(folder, *rule):
    c = json.loads((pathlib.Path(folder) / "config.json").read_text())
    digits = subprocess.run([sys.executable, HERE / "fingerprint.py", *rule, folder], check=True,
                            stdout=subprocess.PIPE).stdout.strip()
    width = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    layers = c["kvpipe_retrieval_head"]["feature_layers"]
    turned = [c["rope_theta"] ** (-2 * i / width) for i in range(width // 2)]
    return xxhash.xxh3_128_hexdigest(
        digits + struct.pack("<8I", c["hidden_size"], c["num_attention_heads"],
                             c["num_key_value_heads"], width, 1, *layers) +
        struct.pack("<2f", c["rms_norm_eps"], 1) + struct.pack(f"<{width // 2}d", *turned))


def rename(folder, path, out):
    new, old = name(folder).encode(), name(folder, "--samples").encode()

    def edited(section, content):
        if section.type == "rHDk" and content.count(new) != 1:
            sys.exit(f"{path}: not of the head {new.decode()}")
        return content.replace(new, old) if section.type == "rHDk" else content
    sections.write(out, [(s, edited(s, content)) for s, content in sections.read(path)])


if sys.argv[1] == "--rename":
    rename(*sys.argv[2:])
else:
    print(name(sys.argv[-1], *sys.argv[1:-1]))
