#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_table.h: the general category of every code point,
as Hugging Face `tokenizers` sees it.

  tokenizer_unicode.py >src/tokenizer/unicode_table.h

Measured, not copied: every category is an expression that runs over all code points. Run with
tokenizers 0.22.2 (Oniguruma 6.9.10, Unicode 16.0) under Python 3.11, whose unicodedata is Unicode
14.0: what that has otherwise, or not at all, is marked as young. Needs `pip install tokenizers`.
Run by hand, not by make.
"""

import sys
import textwrap
import unicodedata

import tokenizers
from tokenizers import Regex, pre_tokenizers

CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn Cs"
)
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, POINTS))
BASE = "14.0.0"
EVEN_UPPER, ODD_UPPER = 30, 31


def kept(pre_tokenizer):
    """The code points that are in no piece: what was removed."""
    gone = set(POINTS)
    for _, (start, end) in pre_tokenizer.pre_tokenize_str(TEXT):
        gone.difference_update(POINTS[start:end])
    return gone


def categories():
    names = CATEGORIES.split()
    found = {c: names.index("Cs") for c in range(0xD800, 0xE000)}
    for number, name in enumerate(names):
        if name == "Cs":
            continue
        for c in kept(pre_tokenizers.Split(Regex(r"\p{%s}+" % name), "removed")):
            if c in found:
                sys.exit(f"U+{c:04X} has two categories")
            found[c] = number
    return [found[c] for c in range(0x110000)]


def young(c, category):
    name = unicodedata.category(chr(c))
    return name == "Cn" or name != CATEGORIES.split()[category]


def ranges(values):
    out = []
    for c, value in enumerate(values):
        if not out or out[-1][1] != value:
            out.append([c, value])
    return out


def alternate(values):
    """Runs of upper and lower case in turn get a value of their own."""
    upper, lower = 0, 1
    out, c = list(values), 0
    while c < 0x110000:
        end = c
        while end + 1 < 0x110000 and {values[end], values[end + 1]} == {upper, lower}:
            end += 1
        if end - c >= 3:
            first = EVEN_UPPER if (values[c] == upper) == (c % 2 == 0) else ODD_UPPER
            out[c : end + 1] = [first] * (end + 1 - c)
        c = end + 1
    return out


def stand_ins(values, old):
    """For each category the first assigned code point of 3 and of 4 bytes that is not young,
    or 0."""
    out = []
    for category in range(len(CATEGORIES.split())):
        for low, high in ((0x800, 0x10000), (0x10000, 0x110000)):
            out.append(next((c for c in range(low, high) if values[c] == category and old[c]), 0))
    return out


def numbers(name, list_):
    print(f"static const uint32_t {name}[{len(list_)}] = {{")
    for line in textwrap.wrap(" ".join(f"0x{n:x}," for n in list_), 92):
        print("\t" + line)
    print("};\n")


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    if unicodedata.unidata_version != BASE:
        sys.exit(f"unicodedata is {unicodedata.unidata_version}, wanted {BASE}")
    values = categories()
    old = [not young(c, values[c]) or 0xD800 <= c < 0xE000 for c in range(0x110000)]
    packed = alternate(values)
    table = [
        (c << 6) | (v[0] << 1) | v[1] for c, v in ranges([(p, not o) for p, o in zip(packed, old)])
    ]
    blocks = [0] * (0x1100 // 32)
    for c in range(0x110000):
        if not old[c]:
            blocks[c >> 13] |= 1 << (c >> 8 & 31)
    punctuation = kept(pre_tokenizers.Punctuation("removed"))
    marks = [c << 1 | on for c, on in ranges([c in punctuation for c in range(0x110000)])]
    print("/* unicode_table.h - written by tests/oracle/tokenizer_unicode.py, do not edit")
    print(" *")
    print(
        f" * As tokenizers {tokenizers.__version__} has them (Unicode 16.0). "
        "Only unicode.c includes this. */\n"
    )
    print(
        "/* First code point << 6 | category << 1 | 1 when Unicode 14.0 has it otherwise or not "
        "at\n * all. Categories 30 and 31: even or odd code points are Lu, the others Ll. */"
    )
    numbers("category_table", table)
    print("/* A bit for each 256 code points: are there young ones among them? */")
    numbers("young_blocks", blocks)
    print(
        "/* Of each category the first code point of 3 and of 4 bytes that Unicode 14.0 has too. */"
    )
    numbers("stand_ins", stand_ins(values, old))
    print(
        "/* First code point << 1 | is it punctuation to pre-tokeniser Punctuation, which has\n"
        " * Unicode 9? */"
    )
    numbers("punctuation_table", marks)


if __name__ == "__main__":
    main()
