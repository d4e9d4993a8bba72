#!/usr/bin/env python3
"""Q-Filters of a model (Godey et al. 2025), for kv-score --method qfilter --filters FILE.

    train/q_filters.py -m MODEL -o FILE.safetensors [--queries 256] TEXT ...

Each text runs through the model, and its last queries are read, as attention has them (after rotary
embedding). Of the queries of a query head over all texts v is the first right singular vector, with
the sign with which most queries project on it positively; the filter of a KV head is the mean of -v
over its query heads. The authors take 3,000 queries of each head from 20 texts of 2,048 tokens.
Needs NumPy; the programs are found by PATH, the package kvsnapshot in python/.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kvsnapshot  # noqa: E402

import tensor_file  # noqa: E402


def queries_of(options, text, path):
    """[layers][query heads][queries][head width] of a text"""
    subprocess.run(["kv-prefill", "-q", "-m", options.model, "--no-template", "--observe",
                    str(options.queries), "-o", path, text], check=True)
    return numpy.array([layer.queries for layer in kvsnapshot.read(path).layers])


def direction(queries):
    """[width] <- of [n][width]: the first right singular vector, with its sign"""
    queries = queries.astype("f8")
    first = numpy.linalg.eigh(queries.T @ queries)[1][:, -1]
    return first if 2 * (queries @ first > 0).sum() > len(queries) else -first


def filters_of(queries, kv_heads):
    """[layers][KV heads][width] of [layers][query heads][n][width]"""
    each = numpy.array([[direction(head) for head in layer] for layer in queries])
    layers, heads, width = each.shape
    return -each.reshape(layers, kv_heads, heads // kv_heads, width).mean(axis=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("-o", "--output", required=True, help="file to write")
    parser.add_argument("--queries", type=int, default=256,
                        help="of each query head, the last ones of each text (256)")
    parser.add_argument("text", nargs="+", help="files with plain text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="q_filters.") as folder:
        found = []
        for text in options.text:
            found.append(queries_of(options, text, os.path.join(folder, "text.kv")))
        with open(os.path.join(options.model, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    kv_heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    filters = filters_of(numpy.concatenate(found, axis=2), kv_heads)
    tensor_file.save(options.output, {"q_filters": filters})


if __name__ == "__main__":
    main()
