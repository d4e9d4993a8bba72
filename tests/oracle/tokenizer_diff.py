#!/usr/bin/env python3
"""Random strings through src/tokenizer/tokenizer.c and through Hugging Face `tokenizers`:
every difference is printed.

  tokenizer_diff.py LIBRARY COUNT SEED FOLDER...

LIBRARY is a shared object of the tokenizer, made by `make O=DIR DIR/tests/libtokenizer.so`; each
FOLDER holds a tokenizer.json. Run by hand (it needs `pip install tokenizers`); exits 1 when there
was a difference.
"""

import ctypes
import os
import random
import sys
import unicodedata

from tokenizers import Tokenizer


class Ids(ctypes.Structure):
    _fields_ = [
        ("ids", ctypes.POINTER(ctypes.c_uint32)),
        ("n", ctypes.c_size_t),
        ("cap", ctypes.c_size_t),
    ]


class TextStart(ctypes.Structure):
    _fields_ = [("begun", ctypes.c_int), ("stripped", ctypes.c_size_t)]


class Ours:
    def __init__(self, library, folder):
        self.lib, self.handle, self.err = (
            library,
            ctypes.c_void_p(),
            ctypes.create_string_buffer(500),
        )
        if (
            self.lib.tokenizer_open(
                folder.encode(), ctypes.byref(self.handle), self.err, ctypes.c_size_t(500)
            )
            != 0
        ):
            sys.exit(self.err.value.decode())

    def encode(self, text, flags):
        data, ids = text.encode(), Ids()
        rc = self.lib.tokenizer_encode(
            self.handle,
            data,
            ctypes.c_size_t(len(data)),
            flags,
            ctypes.byref(ids),
            self.err,
            ctypes.c_size_t(500),
        )
        out = ids.ids[: ids.n] if rc == 0 else self.err.value.decode()
        ctypes.CDLL(None).free(ids.ids)
        return out

    def decode(self, ids):
        self.lib.tokenizer_bytes.restype = ctypes.c_void_p
        self.lib.tokenizer_begin.restype = ctypes.c_size_t
        start, out = TextStart(), b""
        for i in ids:
            n = ctypes.c_size_t()
            self.lib.tokenizer_bytes(self.handle, ctypes.c_uint32(i), ctypes.byref(n), None)
            room = ctypes.create_string_buffer(n.value + 1)
            got = self.lib.tokenizer_begin(
                self.handle, ctypes.byref(start), ctypes.c_uint32(i), room
            )
            out += room.raw[:got]
        return out


ASSIGNED = [
    chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")
]
ALPHABETS = [
    "ab ",
    "a \n\r\t",
    "aA'sStTrRvVeEmMlLdD \u017f\u212a",
    "0123456789 a,.",
    " \t\n\r\x0b\x0c\x85\u00a0\u1680\u180e\u2003\u2028\u202f\u3000\u200bx",
    "e\u0301\u0323\u0308a\u030a\u0327\u0344\u212b\u00e9\u1e69 \u1100\u1161\u11a8\uac00",
    "!?.,'\"-_/ \n\r a1",
    "the quick brown fox ",
    "\u4f60\u597d\u4e16\u754c\uff0c\u3002 a1\n",
    "\u0928\u092e\u0938\u094d\u0924\u0947\u0966\u0967 "
    "\u0e2a\u0e27\u0e31\u0e14\u0e35 \u0645\u0631\u062d\u0628\u0627",
    "\U0001f468\u200d\U0001f469\U0001f3fd\ufe0f\U0001f1e9\U0001f1ea \u2603a",
    "\u0000\u0001\u007f\u0080\u009f\u00ad\ufeff\ufffd\uffff\ue000 a",
    "1\u0661\u00bd\u2167\u2460\u00b2\u0967 x",
    "\u0345\u0301\u0316\u0327\u0f71\u0f72\u0f74\u3099\u309a\u304b\u0958\u0fb2",
]


def strings(tokenizer, count, seed):
    rng = random.Random(seed)
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    words = list(tokenizer.get_vocab())
    for k in range(count):
        kind, n = rng.randrange(4), int(rng.expovariate(1 / 12)) + 1
        if kind == 0:  # one nasty alphabet
            letters = rng.choice(ALPHABETS)
            yield "".join(rng.choice(letters) for _ in range(n))
        elif kind == 1:  # any character at all
            yield "".join(rng.choice(ASSIGNED) for _ in range(n))
        elif kind == 2:  # runs, so that words get long
            yield "".join(
                rng.choice(rng.choice(ALPHABETS)) * int(rng.expovariate(1 / 4) + 1)
                for _ in range(n)
            )
        else:  # added tokens, whole, cut and adjacent, in between
            parts = []
            for _ in range(n):
                a = rng.choice(added or ["<s>"])
                parts.append(
                    rng.choice(
                        [
                            a,
                            a[: rng.randrange(len(a)) + 1],
                            a[rng.randrange(len(a)) :],
                            rng.choice(words),
                            "".join(rng.choice(rng.choice(ALPHABETS)) for _ in range(3)),
                        ]
                    )
                )
            yield "".join(parts)


def compare(ours, theirs, text):
    want = theirs.encode(text, add_special_tokens=False).ids
    theirs.encode_special_tokens = True
    plain = theirs.encode(text, add_special_tokens=False).ids
    theirs.encode_special_tokens = False
    checks = [
        ("ids", ours.encode(text, 0), want),
        ("template", ours.encode(text, 1), theirs.encode(text).ids),
        ("plain", ours.encode(text, 2), plain),
    ]
    # theirs takes the text of an added token for the byte alphabet,
    # so that an e with an acute comes out broken
    nfc = unicodedata.normalize("NFC", text)
    broken = any(
        unicodedata.normalize("NFC", t.content) in nfc and not t.content.isascii()
        for t in theirs.get_added_tokens_decoder().values()
    )
    if not isinstance(checks[0][1], str) and not broken:
        checks.append(
            (
                "text",
                ours.decode(want).decode(errors="replace"),
                theirs.decode(want, skip_special_tokens=False),
            )
        )
    return [(name, a, b) for name, a, b in checks if a != b]


def main(argv):
    if len(argv) < 5:
        sys.exit(__doc__)
    library, bad, total = ctypes.CDLL(os.path.abspath(argv[1])), 0, 0
    for folder in argv[4:]:
        ours, theirs = Ours(library, folder), Tokenizer.from_file(
            os.path.join(folder, "tokenizer.json")
        )
        for text in strings(theirs, int(argv[2]), argv[3] + os.path.basename(folder)):
            total += 1
            for name, a, b in compare(ours, theirs, text):
                bad += 1
                print(f"{folder}: {name} of {text!a}\n  ours   {a!a}\n  theirs {b!a}")
    print(f"{total} strings, {bad} differences")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
