#!/usr/bin/python3
"""The `tokenizer` hash of tokenizer.json files, written from formats/kv-snapshot.md section 6 alone.

  tokenizer_fingerprint.py NAME=FILE...       prints lines "NAME hash"

Written for tests/fixtures/tokenizers/fingerprints.txt.
"""

import json
import string
import struct
import sys

import xxhash

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
FLAGS = [("special", 2), ("normalized", 4), ("lstrip", 8), ("rstrip", 16), ("single_word", 32)]


def byte_alphabet():
    """GPT-2's bytes_to_unicode, turned round: character -> byte."""
    kept = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    rest = [b for b in range(256) if b not in kept]
    return {**{chr(b): b for b in kept}, **{chr(256 + i): b for i, b in enumerate(rest)}}


def parts(component, kind):
    if component is None:
        return []
    return component[kind] if component["type"] == "Sequence" else [component]


def expressions(doc):
    for p in parts(doc["pre_tokenizer"], "pretokenizers"):
        if p["type"] == "Split" and "Regex" in p["pattern"]:
            yield p["pattern"]["Regex"]
        elif p["type"] == "Split":
            yield "".join(
                "\\" + c if c in string.punctuation else c for c in p["pattern"]["String"]
            )
        elif p["type"] == "Digits":
            yield r"\p{N}" if p["individual_digits"] else r"\p{N}+"
        elif p["type"] == "ByteLevel" and p.get("use_regex", True):
            yield GPT2


def template(doc):
    for p in parts(doc["post_processor"], "processors"):
        if p["type"] == "TemplateProcessing":
            for piece in p["single"]:
                if "SpecialToken" in piece:
                    yield from p["special_tokens"][piece["SpecialToken"]["id"]]["ids"]


def fingerprint(doc):
    alphabet, model, tokens = byte_alphabet(), doc["model"], {}
    for key, i in model["vocab"].items():
        known = all(c in alphabet for c in key)
        tokens[i] = (bytes(alphabet[c] for c in key) if known else key.encode(), 0)
    for a in doc["added_tokens"]:
        data = tokens.get(a["id"], (a["content"].encode(), 0))[0]
        tokens[a["id"]] = (data, 1 + sum(v for k, v in FLAGS if a[k]))
    h = xxhash.xxh3_128()
    for i, (data, flags) in sorted(tokens.items()):
        h.update(struct.pack("<II", i, len(data)) + data + bytes([flags]))
    for m in model["merges"]:
        left, right = m.split(" ") if isinstance(m, str) else m
        h.update(struct.pack("<II", model["vocab"][left], model["vocab"][right]))
    nfc = [n for n in parts(doc["normalizer"], "normalizers") if n["type"] == "NFC"]
    for text in [
        "nfc" if nfc else "none",
        *expressions(doc),
        "ignore_merges" if model.get("ignore_merges") else "merges",
    ]:
        h.update(text.encode() + b"\0")
    for i in template(doc):
        h.update(struct.pack("<I", i))
    return h.hexdigest()


def main(argv):
    if len(argv) < 2:
        sys.exit(__doc__)
    for argument in argv[1:]:
        name, _, path = argument.partition("=")
        with open(path, encoding="utf-8") as f:
            print(name, fingerprint(json.load(f)))


if __name__ == "__main__":
    main(sys.argv)
