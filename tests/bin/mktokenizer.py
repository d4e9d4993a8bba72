#!/usr/bin/python3
"""mktokenizer.py - write a tokenizer.json with a made-up vocabulary, as large as a real one

usage: mktokenizer.py FILE [--vocab N] [--seed N]

Byte-level BPE: the 256 bytes, then tokens that join two earlier ones, mostly short ones, each with
its merge, and at the end Llama 3's count of special tokens. The same options give the same bytes.
For the time that loading takes; its tokens mean nothing.
"""

import argparse
import json
import pathlib
import random

SPECIAL = 256
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}


def alphabet():
    """The characters that stand for bytes 0 to 255 (GPT-2)"""
    shown = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b if b in shown else 256 + hidden.index(b)) for b in range(256)]


def main():
    p = argparse.ArgumentParser(prog="mktokenizer.py")
    p.add_argument("file", type=pathlib.Path)
    p.add_argument("--vocab", type=int, default=128256)
    p.add_argument("--seed", type=int, default=0)
    o = p.parse_args()
    rng, tokens, merges = random.Random(o.seed), alphabet(), []
    vocab = {token: i for i, token in enumerate(tokens)}
    while (n := len(tokens)) < o.vocab - SPECIAL:
        left, right = (tokens[min(rng.randrange(n), rng.randrange(n))] for _ in range(2))
        if left + right not in vocab and len(left + right) <= 16:
            vocab[left + right] = n
            tokens.append(left + right)
            merges.append([left, right])
    added = [{"id": len(tokens) + i, "content": f"<|reserved_{i}|>", "single_word": False,
              "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i in range(SPECIAL)]
    o.file.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": BYTE_LEVEL, "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "byte_fallback": False, "vocab": vocab, "merges": merges},
    }, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
