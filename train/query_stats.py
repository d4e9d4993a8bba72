#!/usr/bin/env python3
"""Query statistics of a model, for kv-score --method expected --query-stats FILE.

    train/query_stats.py -m MODEL -o FILE.safetensors TEXT ...

Each text runs through the model, and the queries of all its tokens but the first four are counted,
before rotary embedding. The file has their mean and covariance over all texts, query_mean and
query_cov, as kvpress's ExpectedAttentionStats has them, whose authors take the first 1,000
characters of each of 100 books, and query_modulus, the mean modulus of each rotated pair, for
TriAttention. Needs NumPy; the programs are found by PATH, the package kvsnapshot
in python/.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kvsnapshot  # noqa: E402

import tensor_file  # noqa: E402


def sums_of(options, text, path):
    """Number of queries; sums [layers][query heads][width], of products [...][width][width], and
    of moduli [...][width / 2], which are 0 where nothing is rotated"""
    subprocess.run(["kv-prefill", "-q", "-m", options.model, "--query-stats", "-o", path, text],
                   check=True)
    stats = [layer.query_stats for layer in kvsnapshot.read(path).layers]
    sums, products = (numpy.array([getattr(s, name) for s in stats])
                      for name in ("sums", "products"))
    moduli = numpy.zeros((*sums.shape[:2], sums.shape[2] // 2))
    for to, s in zip(moduli, stats):
        to[:, :s.moduli.shape[1]] = s.moduli
    return stats[0].n, sums, products, moduli


def mean_and_covariance(n, sums, products):
    mean = sums / n
    return mean, (products - n * mean[..., None] * mean[..., None, :]) / (n - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("-o", "--output", required=True, help="file to write")
    parser.add_argument("text", nargs="+", help="files with plain text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="query_stats.") as folder:
        found = [sums_of(options, text, os.path.join(folder, "text.kv")) for text in options.text]
    n, sums, products, moduli = (sum(parts) for parts in zip(*found))
    if n < 2:
        sys.exit("query_stats.py: fewer than two tokens from position 4 on in these texts")
    mean, covariance = mean_and_covariance(n, sums, products)
    tensor_file.save(options.output, {"query_mean": mean, "query_cov": covariance,
                                      "query_modulus": moduli / n})


if __name__ == "__main__":
    main()
