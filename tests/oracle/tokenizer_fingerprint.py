#!/usr/bin/python3
"""The `tokenizer` hash of tokenizer.json files, written from formats/kv-snapshot.md section 6
alone.

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


def text_of(pattern):
    if "Regex" in pattern:
        return pattern["Regex"]
    return "".join("\\" + c if c in string.punctuation else c for c in pattern["String"])


BEHAVIORS = {
    "Isolated": "isolated",
    "Removed": "removed",
    "Contiguous": "contiguous",
    "MergedWithPrevious": "merged-with-previous",
    "MergedWithNext": "merged-with-next",
}


def is_byte_level(doc):
    return any(p["type"] == "ByteLevel" for p in parts(doc["pre_tokenizer"], "pretokenizers"))


def scheme(p):
    return "never" if p.get("add_prefix_space") is False else p.get("prepend_scheme", "always")


def expressions(doc):
    steps = parts(doc["pre_tokenizer"], "pretokenizers")
    for p in steps:
        if p["type"] == "Split":
            if p["behavior"] != "Isolated":
                yield BEHAVIORS[p["behavior"]]
                yield "inverted" if p["invert"] else "matches"
            yield text_of(p["pattern"])
        elif p["type"] == "Digits":
            yield r"\p{N}" if p["individual_digits"] else r"\p{N}+"
        elif p["type"] == "Punctuation":
            yield from ("punctuation", BEHAVIORS[p.get("behavior", "Isolated")])
        elif p["type"] == "Whitespace":
            yield "whitespace"
        elif p["type"] == "WhitespaceSplit":
            yield "whitespace-split"
        elif p["type"] == "Metaspace":
            yield from ("metaspace", p["replacement"], scheme(p))
            yield "split" if p.get("split", True) else "whole"
        elif p["type"] == "ByteLevel":
            if p["add_prefix_space"]:
                yield "prefix-space"
            if p.get("use_regex", True):
                yield GPT2
            if p is not steps[-1]:
                yield "byte-level"


def normalizer(doc):
    steps = parts(doc["normalizer"], "normalizers")
    for n in steps:
        if n["type"] == "NFC":
            yield "nfc"
        elif n["type"] == "Prepend":
            yield from ("prepend", n["prepend"])
        elif n["type"] == "Replace" and "String" in n["pattern"]:
            yield from ("replace", n["pattern"]["String"], n["content"])
        elif n["type"] == "Replace":
            yield from ("replace-matches", n["pattern"]["Regex"], n["content"])
    if not steps:
        yield "none"


def put(h, *values):
    for v in values:
        h.update(struct.pack("<I", v) if isinstance(v, int) else v.encode() + b"\0")


def missing(doc, h):
    """What becomes of characters that have no token."""
    model = doc["model"]
    if model.get("byte_fallback") and any(f"<0x{b:02X}>" in model["vocab"] for b in range(256)):
        put(h, "byte-fallback")
    if model.get("unk_token") in model["vocab"]:
        put(h, "fused-unknown" if model.get("fuse_unk") else "unknown")
        put(h, model["vocab"][model["unk_token"]])


def decoder(doc, h):
    fused = is_byte_level(doc)
    if not fused:
        put(h, "characters")
    for d in parts(doc["decoder"], "decoders"):
        if d["type"] == "Fuse":
            fused = True
        elif d["type"] == "Strip" and fused:
            put(h, "strip-beginning", d["content"], d["start"])
        elif d["type"] == "Strip":
            put(h, "strip", d["content"], d["start"], d["stop"])
        elif d["type"] == "ByteLevel" and not fused:
            put(h, "byte-level")
            fused = True
        elif d["type"] == "ByteFallback":
            put(h, "byte-fallback")
        elif d["type"] == "Replace":
            put(h, "replace", d["pattern"]["String"], d["content"])
        elif d["type"] == "Metaspace":
            put(h, "metaspace", d["replacement"], "keeps" if scheme(d) == "never" else "drops")


def template(doc):
    """Ids before and after the text."""
    before, after = [], []
    for p in parts(doc["post_processor"], "processors"):
        if p["type"] in ("BertProcessing", "RobertaProcessing"):
            before, after = [p["cls"][1]] + before, after + [p["sep"][1]]
        elif p["type"] == "TemplateProcessing":
            at = next(i for i, piece in enumerate(p["single"]) if "Sequence" in piece)
            sides = [
                [
                    i
                    for piece in side
                    for i in p["special_tokens"][piece["SpecialToken"]["id"]]["ids"]
                ]
                for side in (p["single"][:at], p["single"][at + 1 :])
            ]
            before, after = sides[0] + before, after + sides[1]
    return before, after


def hash_tokens(doc, h):
    alphabet, tokens, byte_level = byte_alphabet(), {}, is_byte_level(doc)
    for key, i in doc["model"]["vocab"].items():
        known = byte_level and all(c in alphabet for c in key)
        tokens[i] = (bytes(alphabet[c] for c in key) if known else key.encode(), 0)
    for a in doc["added_tokens"]:
        data = tokens.get(a["id"], (a["content"].encode(), 0))[0]
        tokens[a["id"]] = (data, 1 + sum(v for k, v in FLAGS if a[k]))
    for i, (data, flags) in sorted(tokens.items()):
        h.update(struct.pack("<II", i, len(data)) + data + bytes([flags]))


def fingerprint(doc):
    model, h = doc["model"], xxhash.xxh3_128()
    hash_tokens(doc, h)
    for m in model["merges"]:
        left, right = m.split(" ") if isinstance(m, str) else m
        put(h, model["vocab"][left], model["vocab"][right])
    put(h, *normalizer(doc), *expressions(doc))
    put(h, "ignore_merges" if model.get("ignore_merges") else "merges")
    before, after = template(doc)
    put(h, *before)
    if after:
        put(h, "after", *after)
    missing(doc, h)
    decoder(doc, h)
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
