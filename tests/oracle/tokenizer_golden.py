#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers: small tokenizers and the ids
that Hugging Face `tokenizers` gives hard strings.

  tokenizer_golden.py train             NAME/tokenizer.json for the names of STYLES
  tokenizer_golden.py golden            NAME/golden.json for those
  tokenizer_golden.py golden NAME PATH  NAME/golden.json for the tokenizer at PATH

Needs `pip install tokenizers`; each golden.json names the version that wrote it. Run by hand,
not by make test.
"""

import json
import os
import sys

import tokenizers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "tokenizers")

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SENTENCES = """\
The quick brown fox jumps over the lazy dog, and the dog doesn't mind; it's 12,345 days old.
We'll see what they've done: I'd say you're right, I'm not. HELLO'S WORLD isn't the world's hello.
Question: what is the access code of Marlow? Answer: K742. The secret word of Calton is falcon.
for (i = 0; i < n; i++) {\n\tsum += x[i] * 0x1f;\n}\nreturn sum == 1000000 ? -1 : 2024;
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Ärger, Öl, Übel, Straße.
Portez ce vieux whisky au juge blond qui fume; l'été, le café, où, ça, naïve, cœur.
Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир!
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Καλημέρα κόσμε.
天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。你好，世界！今天天气很好。
いろはにほへと ちりぬるを わかよたれそ つねならむ。東京都に住んでいます。
다람쥐 헌 쳇바퀴에 타고파. 안녕하세요 세계!
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. مرحبا بالعالم
दिल्ली भारत की राजधानी है। नमस्ते दुनिया, आप कैसे हैं?
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า สวัสดีชาวโลก
שלום עולם, מה שלומך היום? Tiếng Việt có dấu: Hà Nội, phở, được, người.
👍🏽 👨‍👩‍👧‍👦 🇩🇪 🎉🎉 ☃️ — “quotes” … €100 ½ x² ≠ ∞
""".split(
    "\n"
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"

# What tokenizers get wrong: where words end, what a space, a digit, a letter is,
# what is normalised, what added tokens swallow.
HARD = [
    "",
    " ",
    "  ",
    "   a",
    "a   ",
    "a   b",
    "\n",
    "\n\n",
    " \n",
    "\n ",
    " \n \n  x",
    "\r\n",
    "a\r\nb\r\n\r\nc",
    "\t\tx\t",
    "Hello, world!",
    "don't DON'T Don'T we'll we'LL I'd'd 's's 'S'T'RE'VE'M'LL'D",
    "it\u2019s",
    "'\u017f 'K \u212aelvin '\u017fx",
    "1",
    "12",
    "123",
    "1234",
    "1234567890",
    "1,234.56",
    "x1y22z333",
    "\u0661\u0662\u0663\u0664 \u0967\u0968\u0969 \u00bd\u2167\u2460\u00b2",
    "a1234 56789\t7",
    "...",
    "?!?!?! ...\n\n\n...",
    "!\n\n x",
    " ,\r\n",
    "a/b_c-d+e=f#g@h",
    "$1,000 \u20ac5",
    "for (i = 0; i < n; i++) {\n\tsum += x[i];\n    }\n",
    "http://example.com/a?b=c&d=%20",
    "caf\u00e9 cafe\u0301 \u00c5\u212bA\u030a \u1e69 s\u0323\u0307 s\u0307\u0323",
    "\u0301\u0323 \u0344 \u0958 \u2126 \uf900 \u1100\u1161\u11a8 \uac01",
    "Stra\u00dfe \ufb01n \ufb00 \u0130\u0131 \u01c5",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u4eca\u5929",
    "\u6771\u4eac\u3000\u90fd\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "ng\u01b0\u01a1\u0300i ng\u01b0\u1eddi",
    "\U0001f44d\U0001f3fd "
    + FAMILY
    + FAMILY
    + " \U0001f1e9\U0001f1ea \u2603\ufe0f \U0001f600\U0001f600",
    "a\U0001d538b \U00020000\U0010ffff",
    "a\u00a0b\u00a0 c \u00a0d",
    "a\u200bb \u200b c\ufeffd",
    "\u2003x \u2028y\u2029z\u0085w\u000b\u000c",
    "a\u180eb \u180e c",
    "\u180eworld x\u180eworld #\u180eworld #worl\u180eld",
    "\u1680x\u202f\u205f",
    "\u0000\u0001\u001f \u007f\u0080\u009f\u00ad",
    "\u200c\u200d\u2060",
    "a" * 300,
    "abc" * 60 + "!" * 80,
    " " * 100 + "x" + " " * 50,
    "the the the" * 20,
    "The secret word of Calton is falcon.\nQuestion:",
    "\ue000\uffff\ufffd",
    "naïve—co\u2010op‘x’“y”",
    # added tokens
    "<|begin_of_text|>",
    "<|begin_of_text|><|end_of_text|>",
    "a<|end_of_text|>b",
    "x <|end_of_text|> y",
    "<|end_of_text|",
    "<<|end_of_text|>>",
    "<|endoftext|>\n<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_startx|im_start|>",
    "a <mask> b<mask>c  <mask>  ",
    "<mask><mask>\t<mask>\u2003",
    "<tool> <tool_call></tool_call> <tool_call>x",
    "hello word wordy sword word-word _word \u24b6word word\u0301",
    "see cafe\u0301 and caf\u00e9 and cafe",
    "<lr>  <lr>x <lr>\n",
    "\u00e9<|im_end|>\u0301 e<|im_end|>\u0301",
    "<sp ace> <sp  ace>",
    "A\u030angstr\u00f6m \u00c5ng \u00c4\u00c4rger A\u0308 \u0104 the->The->-> theAB",
    # younger than Unicode 14.0: letters of both cases, marks, digits, numbers, symbols,
    # punctuation; and unassigned
    "a\U00010d50b \U00010d50\U00010d70 A\U00010d4a\u1c89\u1c8a \U0001e030\U0001e031x",
    "x\u0cf3y \U00011f00\U00011f02\U00011f36 e\U00010efd\U00011241",
    "1\U00010d40\U00010d42 \U00011f50\U00011f51\U0001e4f0 12\U0001ccf0 \U0001d2c0",
    "\u2ffc\U0001f6dc \U0001cc00! \U0001fae9\u31ef \U00011b00\U00011f43 #\U00010d6e",
    "\U00031350\U000323af\U0002ebf0 \u4f60\U0002ebf1",
    "\u0378a\u2fe0 1\U0003fffd2 \U000e01f0\u0e3a\u0e3b",
    "\U00011de0\U00011de1 1\U00016ff4 a\U00016ff52",
    "word\u200d x\u200cword word\u2060 \U0001f130word",
]


def split(expr):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(expr), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
        ]
    )


def template(bos, bos_id):
    return processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, bos_id)]
            ),
        ]
    )


def special(text, **options):
    return AddedToken(text, special=True, normalized=options.pop("normalized", False), **options)


def plain(text, **options):
    return AddedToken(text, special=False, normalized=options.pop("normalized", True), **options)


STYLES = {
    "llama3": dict(
        pre=split(LLAMA3),
        norm=None,
        merges=700,
        added=[
            special("<|begin_of_text|>"),
            special("<|end_of_text|>"),
            special("<|eot_id|>"),
            special("<|eot_id|>x"),
        ],
    ),
    "qwen2": dict(
        pre=split(QWEN2),
        norm=normalizers.NFC(),
        merges=600,
        added=[
            special("<|endoftext|>"),
            special("<|im_start|>"),
            special("<|im_end|>"),
            plain("<tool_call>", normalized=False),
            plain("</tool_call>", normalized=False),
            plain("<tool", normalized=False),
            plain("cafe\u0301", single_word=True),
        ],
    ),
    "gpt2": dict(
        pre=pre_tokenizers.ByteLevel(add_prefix_space=False),
        norm=None,
        merges=400,
        added=[
            special("<|endoftext|>"),
            special("<mask>", lstrip=True),
            plain("word", single_word=True),
            special("<lr>", lstrip=True, rstrip=True),
            plain("<sp ace>", rstrip=True),
        ],
    ),
    "smollm": dict(
        pre=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
        norm=None,
        merges=400,
        added=[special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")],
    ),
    # Falcon's: what comes behind ByteLevel sees bytes as they are spelled,
    # some of which are numbers
    "falcon": dict(
        pre=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
        norm=None,
        merges=300,
        added=[special("<|endoftext|>"), special(">>TITLE<<", normalized=True)],
    ),
    # no model's: every behaviour, anchors, word boundaries, a space before every piece
    "behaviors": dict(
        pre=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"^.|\z|\w+$"), "isolated"),
                pre_tokenizers.Split(Regex(r"\b[a-f]\h*\b"), "removed"),
                pre_tokenizers.Split(Regex(r"[\d,.]"), "contiguous", invert=True),
                pre_tokenizers.Split("-", "merged_with_previous"),
                pre_tokenizers.Split(Regex(r"[A-Z]|\W\B"), "merged_with_next"),
                pre_tokenizers.Split(Regex(r"'\w"), "merged_with_next", invert=True),
                pre_tokenizers.Punctuation("merged_with_previous"),
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.Split(Regex(r"\s"), "merged_with_previous", invert=True),
                pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False),
            ]
        ),
        norm=normalizers.Sequence(
            [
                normalizers.NFC(),
                normalizers.Replace(Regex(r"[\t\v]+"), " "),
                normalizers.Prepend("_"),
            ]
        ),
        merges=300,
        added=[special("<|endoftext|>"), plain("word", single_word=True), plain("<tool>")],
    ),
    "whitespace": dict(
        pre=pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Whitespace(),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
        norm=None,
        merges=300,
        added=[special("<|endoftext|>")],
    ),
    # no model's: a String, an expression that matches nothing (before capitals), \\S in a class,
    # runs of digits, all in a row
    "mixed": dict(
        pre=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split("->", behavior="isolated", invert=True),
                pre_tokenizers.Split(Regex(r"(?=[A-Z])"), behavior="isolated"),
                pre_tokenizers.Split(Regex(r"#[^\s\n]{2}"), behavior="isolated"),
                pre_tokenizers.Split(Regex(r"[^\S\r\n]\S?|[\S\n]{2,3}"), behavior="isolated"),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        ),
        norm=normalizers.Sequence([normalizers.NFC()]),
        merges=300,
        added=[
            special("<|endoftext|>"),
            plain("the", normalized=False),
            plain("\u00c5ng"),
            plain("\u00c4", normalized=False),
        ],
    ),
}


META = "\u2581"
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def replaced(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def metaspace(scheme, splits):
    return {"type": "Metaspace", "replacement": META, "prepend_scheme": scheme, "split": splits}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def splitting(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def around(before, after):
    piece = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in before + after}
    return {
        "type": "TemplateProcessing",
        "single": [piece[n] for n in before]
        + [{"Sequence": {"id": "A", "type_id": 0}}]
        + [piece[n] for n in after],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {n: {"id": n, "ids": [SPECIALS.index(n)], "tokens": [n]} for n in piece},
    }


SPECIALS = ["<unk>", "<s>", "</s>"]
FUSED = [{"type": "ByteFallback"}, {"type": "Fuse"}]

# Vocabularies of characters, as files made of SentencePiece models have them: what differs between
# them is how spaces become U+2581, whether words are cut there, and what becomes of characters that
# are missing.
CHARACTERS = {
    # Llama 2's own file
    "llama2": dict(
        normalizer=sequence(
            "normalizers", {"type": "Prepend", "prepend": META}, replaced(" ", META)
        ),
        pre_tokenizer=None,
        decoder=sequence(
            "decoders",
            replaced(META, " "),
            *FUSED,
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ),
        post_processor=around(["<s>"], []),
        model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        bytes=BYTES,
    ),
    # half of the bytes are missing, so that unknown tokens and bytes come in one word
    "metaspace": dict(
        normalizer=None,
        pre_tokenizer=metaspace("always", True),
        decoder=sequence("decoders", metaspace("always", True), {"type": "ByteFallback"}),
        post_processor=around(["<s>"], ["</s>"]),
        model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        bytes=BYTES[0x80:0xC0] + BYTES[0xE0:0xE4],
    ),
    "first": dict(
        normalizer=None,
        pre_tokenizer=metaspace("first", False),
        decoder=metaspace("first", False),
        post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]},
        model=dict(unk_token="<unk>", fuse_unk=False, ignore_merges=True),
        bytes=[],
    ),
    # merges over the spaces: a text is one word and cannot be cut
    "gemma": dict(
        normalizer=replaced(" ", META),
        pre_tokenizer=splitting({"String": " "}, "MergedWithPrevious"),
        decoder=sequence("decoders", replaced(META, " "), *FUSED),
        post_processor=around(["<s>", "</s>", "<s>"], []),
        model=dict(byte_fallback=True),
        bytes=BYTES,
        phrases=True,
    ),
}


def train_characters(name):
    style = dict(CHARACTERS[name])
    own, model, spans = style.pop("bytes"), style.pop("model"), style.pop("phrases", False)
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", META)
    t.pre_tokenizer = (
        pre_tokenizers.Split(Regex(r"[.,:;]"), "removed")
        if spans
        else pre_tokenizers.Split(META, "merged_with_next")
    )
    trainer = trainers.BpeTrainer(
        vocab_size=3 + len(own) + 500,
        special_tokens=SPECIALS + own,
        limit_alphabet=120,
        show_progress=False,
    )
    t.train_from_iterator([" " + s for s in SENTENCES * 3], trainer)
    doc = json.loads(t.to_str())
    tokens = [special(x) for x in SPECIALS]
    tokens += [
        special("<mask>", lstrip=True),
        special("<|im_end|>", rstrip=True),
        plain("word", single_word=True),
        plain("<lr>", lstrip=True, rstrip=True),
        plain("<sp ace>"),
    ]
    doc["added_tokens"] = []
    doc["model"].update(model)
    doc["model"]["merges"] = [" ".join(m) for m in doc["model"]["merges"]]
    doc.update(style)
    done = Tokenizer.from_str(json.dumps(doc))
    done.add_tokens(tokens)
    write(os.path.join(ROOT, name, "tokenizer.json"), json.loads(done.to_str()))


def train(name):
    if name in CHARACTERS:
        train_characters(name)
        return
    style = STYLES[name]
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = style["pre"]
    if style["norm"] is not None:
        t.normalizer = style["norm"]
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + style["merges"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    t.train_from_iterator(SENTENCES * 3, trainer)
    t.add_tokens(style["added"])
    t.post_processor = (
        template("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))
        if name == "llama3"
        else processors.ByteLevel(trim_offsets=False)
    )
    doc = json.loads(t.to_str())
    model = doc["model"]
    pairs = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    if name == "llama3":
        # Tokens that only ignore_merges reaches, and second ways to make a token:
        # the real file has both.
        pairs = [p for i, p in enumerate(pairs) if i % 50 != 49]
        have = {tuple(p) for p in pairs}
        more = [
            [w[:k], w[k:]]
            for w in model["vocab"]
            for k in range(1, len(w))
            if w[:k] in model["vocab"]
            and w[k:] in model["vocab"]
            and (w[:k], w[k:]) not in have
            and len(w) > 2
        ]
        pairs += more[::7]
        used = {a + b for a, b in pairs}
        pairs = [p for p in pairs if all(len(x) == 1 or x in used for x in p)]
        model["ignore_merges"] = True
    model["merges"] = pairs if name in ("qwen2", "smollm") else [" ".join(p) for p in pairs]
    if name == "gpt2":
        # as in the file of 2019: no type, empty strings for nothing
        for key in ("type", "byte_fallback", "ignore_merges"):
            model.pop(key, None)
        model["continuing_subword_prefix"] = model["end_of_word_suffix"] = ""
    write(os.path.join(ROOT, name, "tokenizer.json"), doc)


def words(t):
    """Some tokens as texts of their own. Of llama3 the tokens 5, 55, 105 ... have no merge."""
    texts = [t.decode([i]) for i in range(255, t.get_vocab_size(), 50)]
    return [text for text in texts if len(text) > 1 and "\ufffd" not in text]


def golden(name, path):
    t = Tokenizer.from_file(path)
    cases = []
    for text in HARD + words(t):
        case = {
            "text": text,
            "ids": t.encode(text, add_special_tokens=False).ids,
            "template": t.encode(text).ids,
        }
        t.encode_special_tokens = True
        case["plain"] = t.encode(text, add_special_tokens=False).ids
        t.encode_special_tokens = False
        if name in CHARACTERS:
            case["decoded"] = t.decode(case["ids"], skip_special_tokens=False)
            case["shown"] = t.decode(case["template"], skip_special_tokens=True)
        cases.append(case)
    write(
        os.path.join(ROOT, name, "golden.json"),
        {
            "written_by": "Hugging Face tokenizers " + tokenizers.__version__,
            "size": max(t.get_vocab().values()) + 1,
            "cases": cases,
        },
    )


def write(path, doc):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        if "cases" in doc:  # one case a line: a change shows as a change of its line
            cases = doc.pop("cases")
            head = json.dumps(doc)[:-1]
            f.write(head + ', "cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}\n")
        else:
            json.dump(doc, f, ensure_ascii=False)
            f.write("\n")


def main(argv):
    if argv[1:] == ["train"]:
        for name in [*STYLES, *CHARACTERS]:
            train(name)
    elif argv[1:] == ["golden"]:
        for name in [*STYLES, *CHARACTERS]:
            golden(name, os.path.join(ROOT, name, "tokenizer.json"))
    elif len(argv) == 4 and argv[1] == "golden":
        golden(argv[2], argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
