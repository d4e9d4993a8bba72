#!/usr/bin/python3
"""addexperts.py - a model folder of Llama's kind as one of Mixtral's kind, with random experts

usage: addexperts.py FOLDER EXPERTS CHOSEN WIDTH

The folder is changed in place: its networks go, and weights of f32 with a standard deviation of
0.1 are drawn for routers and experts, the same for the same arguments.
"""

import json
import pathlib
import sys

import numpy as np

from stackexperts import read, write


def main(folder, experts, chosen, width):
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    c.update(model_type="mixtral", architectures=["MixtralForCausalLM"], sliding_window=None,
             num_local_experts=experts, num_experts_per_tok=chosen, intermediate_size=width)
    (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    path, r, D = folder / "model.safetensors", np.random.default_rng(11), c["hidden_size"]
    tensors = [t for t in read(path) if ".mlp." not in t[0]]

    def draw(name, rows, columns):
        x = (0.1 * r.standard_normal((rows, columns))).astype("<f4")
        tensors.append((f"model.layers.{n}.block_sparse_moe.{name}.weight", "F32",
                        [rows, columns], x.tobytes()))

    for n in range(c["num_hidden_layers"]):
        draw("gate", experts, D)
        for e in range(experts):
            draw(f"experts.{e}.w1", width, D)
            draw(f"experts.{e}.w3", width, D)
            draw(f"experts.{e}.w2", D, width)
    write(path, tensors)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
