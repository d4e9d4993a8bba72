"""Byte-level BPE for the demo corpus: training, encoding,
and tokenizer.json as Hugging Face reads it.

The split expression is that of Llama-3. Python's `re` has no \\p{L} and \\p{N}, so SPLIT covers
ASCII letters and digits only, which is all this corpus has; tokenizer.json holds the full one.

Standard library only.

    bpe.py 1277     trains 1277 merges and writes tokenizer.json into the current folder
"""

import argparse
import json
import random
import re

from corpus import CODE_LETTERS, KINDS, NAMES, SECRET_WORDS, filler_sentence, needle, question

SPLIT = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\na-zA-Z0-9]?[a-zA-Z]+|[0-9]{1,3}"
    r"| ?[^\sa-zA-Z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BEGIN, END, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"

PRINTABLE_BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHER_BYTES = [byte for byte in range(256) if byte not in PRINTABLE_BYTES]


def byte_letters():
    """GPT-2's printable stand-in for each byte."""
    letters = {byte: chr(byte) for byte in PRINTABLE_BYTES}
    letters.update((byte, chr(256 + i)) for i, byte in enumerate(OTHER_BYTES))
    return letters


BYTE_TO_LETTER = byte_letters()
LETTER_TO_BYTE = {letter: byte for byte, letter in BYTE_TO_LETTER.items()}


def spell(text):
    """The stand-in letters of the text's UTF-8 bytes."""
    return "".join(BYTE_TO_LETTER[byte] for byte in text.encode())


class Tokenizer:
    """Encodes and decodes; `special` maps the added tokens to their ids."""

    def __init__(self, vocabulary, merges, special):
        self.vocabulary = vocabulary
        self.rank = {tuple(merge): i for i, merge in enumerate(merges)}
        self.special = special
        self.token = {i: token for token, i in {**vocabulary, **special}.items()}
        self.bos = special[BEGIN]
        self.eos = special[END]
        self.pad = special[PAD]
        self.known_words = {}

    def encode_word(self, word):
        """Ids of one piece of SPLIT: the merge of lowest rank first, the leftmost of equals."""
        if word not in self.known_words:
            parts = list(spell(word))
            while len(parts) > 1:
                ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(parts, parts[1:])]
                lowest = min(ranks)
                if lowest == len(self.rank):
                    break
                at = ranks.index(lowest)
                parts[at:at + 2] = [parts[at] + parts[at + 1]]
            self.known_words[word] = [self.vocabulary[part] for part in parts]
        return self.known_words[word]

    def encode(self, text):
        """Ids of the text, without the token that begins it."""
        return [i for match in SPLIT.finditer(text) for i in self.encode_word(match.group())]

    def decode(self, ids):
        """The text of the ids; special tokens are spelled out."""
        out = bytearray()
        for i in ids:
            token = self.token[i]
            if i >= self.bos:
                out += token.encode()
            else:
                out += bytes(LETTER_TO_BYTE[letter] for letter in token)
        return out.decode(errors="replace")


def load_tokenizer(path):
    """Reads tokenizer.json, with merges as pairs or as one string each."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    merges = [merge.split(" ") if isinstance(merge, str) else merge
              for merge in content["model"]["merges"]]
    special = {added["content"]: added["id"] for added in content["added_tokens"]}
    return Tokenizer(content["model"]["vocab"], merges, special)


# ---- training ----

def count_words(seed=0):
    """How often each piece occurs: filler as it comes, names, words and question forms by decree.

    Digits are left out, so that they stay single tokens.
    """
    counts = {}

    def add(text, times=1):
        for match in SPLIT.finditer(text):
            word = match.group()
            if not word.isdigit():
                counts[word] = counts.get(word, 0) + times

    rng = random.Random(seed)
    add(" ".join(filler_sentence(rng) for _ in range(6000)))
    for word in NAMES + SECRET_WORDS:
        add(" " + word, 150)
    for letter in CODE_LETTERS:
        add(" " + letter, 300)
    for kind in KINDS:
        add(" " + needle(kind, "Alice", "B1") + "\n" + question(kind, "Bruno") + " B1.\n", 300)
    add(". The.\nQuestion: what?\nAnswer: x\n", 300)
    return counts


def merge_pair(parts, pair):
    """Joins every occurrence of the pair in a list of parts, in place, from the left."""
    i = 0
    while i < len(parts) - 1:
        if (parts[i], parts[i + 1]) == pair:
            parts[i:i + 2] = [pair[0] + pair[1]]
        i += 1


def train(merge_count, seed=0):
    """Returns vocabulary and merges. Of equally frequent pairs the greatest is merged first."""
    words = [(list(spell(word)), times) for word, times in count_words(seed).items()]
    merges = []
    while len(merges) < merge_count:
        pairs = {}
        for parts, times in words:
            for pair in zip(parts, parts[1:]):
                pairs[pair] = pairs.get(pair, 0) + times
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for parts, _ in words:
            merge_pair(parts, best)

    vocabulary = {}
    letters = [BYTE_TO_LETTER[byte] for byte in PRINTABLE_BYTES + OTHER_BYTES]
    for token in letters + [left + right for left, right in merges]:
        vocabulary.setdefault(token, len(vocabulary))
    return vocabulary, merges


def template(begin_id):
    """The post-processor that puts the begin token before a text."""
    begin = {"SpecialToken": {"id": BEGIN, "type_id": 0}}
    text_a = {"Sequence": {"id": "A", "type_id": 0}}
    text_b = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "Sequence",
        "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False,
             "use_regex": True},
            {"type": "TemplateProcessing",
             "single": [begin, text_a],
             "pair": [begin, text_a, {"SpecialToken": {"id": BEGIN, "type_id": 1}}, text_b],
             "special_tokens": {BEGIN: {"id": BEGIN, "ids": [begin_id], "tokens": [BEGIN]}}},
        ],
    }


def save_tokenizer(path, vocabulary, merges):
    """Writes tokenizer.json."""
    special = {token: len(vocabulary) + i for i, token in enumerate((BEGIN, END, PAD))}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for token, i in special.items()],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": LLAMA3_SPLIT}, "behavior": "Isolated",
                 "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                 "use_regex": False},
            ],
        },
        "post_processor": template(special[BEGIN]),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary,
                  "merges": [left + " " + right for left, right in merges]},
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)


def main():
    parser = argparse.ArgumentParser(description="train the demo tokenizer")
    parser.add_argument("merges", type=int)
    parser.add_argument("-o", "--output", default="tokenizer.json")
    args = parser.parse_args()
    vocabulary, merges = train(args.merges)
    save_tokenizer(args.output, vocabulary, merges)
    tokenizer = load_tokenizer(args.output)
    split = [word for word in NAMES + SECRET_WORDS if len(tokenizer.encode_word(" " + word)) > 1]
    print(f"{len(vocabulary)} tokens, {len(merges)} merges;",
          "names and words of more than one token:", " ".join(split) or "none")


if __name__ == "__main__":
    main()
