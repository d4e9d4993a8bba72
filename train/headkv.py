#!/usr/bin/env python3
"""Budgets of HeadKV, for kv-evict --budgets FILE, from the scores of its authors.

    train/headkv.py SCORES.json --budget C [--beta 1.01] [--window 32] [--temperature 1] >FILE

SCORES.json has a list of scores for each query head, under its layer and number: {"12-3": [...]}.
A head's share is the mean of its list to the power of 1 / temperature, over the sum of all. Of the
C - W rows that a KV head has on average besides the window, every one keeps C - W less (C - W) //
beta, and what is left is given out by the shares; a KV head gets the mean of its query heads', and
the W rows of the window. Standard output has a line for each layer, with the rows of its KV heads.
The number of KV heads is --kv-heads; without it there are as many as query heads.
"""

import argparse
import json
import sys

import numpy


def shares_of(scores, temperature):
    """[layers][query heads], with a sum of 1"""
    places = [tuple(map(int, name.split("-"))) for name in scores]
    layers, heads = (1 + max(place[i] for place in places) for i in (0, 1))
    shares = numpy.full((layers, heads), numpy.nan)
    for place, name in zip(places, scores):
        shares[place] = numpy.mean(scores[name]) ** (1 / temperature)
    if numpy.isnan(shares).any():
        layer, head = numpy.argwhere(numpy.isnan(shares))[0]
        sys.exit(f"headkv.py: no score of layer {layer}, query head {head}")
    return shares / shares.sum()


def budgets_of(shares, rows, beta, window, kv_heads):
    """[layers][KV heads]"""
    layers, heads = shares.shape
    rest = rows - window
    given = int(rest // beta)
    each = numpy.array([[round(share * given * layers * heads + rest - given) for share in layer]
                        for layer in shares])
    group = each.reshape(layers, kv_heads, heads // kv_heads)
    return [[round(mean) + window for mean in layer] for layer in group.mean(axis=2).tolist()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scores", help="JSON file")
    parser.add_argument("--budget", type=int, required=True, help="rows of a KV head on average")
    parser.add_argument("--beta", type=float, default=1.01,
                        help="1: all rows besides the window are given out by the shares (1.01)")
    parser.add_argument("--window", type=int, default=32, help="rows of the window (32)")
    parser.add_argument("--temperature", type=float, default=1)
    parser.add_argument("--kv-heads", type=int, help="KV heads of a layer")
    options = parser.parse_args()
    try:
        with open(options.scores, encoding="utf-8") as file:
            shares = shares_of(json.load(file), options.temperature)
    except (OSError, ValueError, AttributeError) as problem:
        sys.exit(f"headkv.py: {options.scores}: {problem}")
    kv_heads = options.kv_heads or shares.shape[1]
    if options.beta < 1 or options.budget <= options.window or shares.shape[1] % kv_heads != 0:
        sys.exit("headkv.py: want --beta of 1 or more, a budget above the window, and KV heads "
                 "that divide the query heads")
    for layer in budgets_of(shares, options.budget, options.beta, options.window, kv_heads):
        print(*layer, sep="\t")


if __name__ == "__main__":
    main()
