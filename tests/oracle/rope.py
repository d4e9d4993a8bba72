#!/usr/bin/env python3
"""rope.py - expected rotary frequencies, for tests/unit/model_rope.c

usage: rope.py

Written from the description of Llama 3.1's frequency scaling, in 60-digit decimal arithmetic: each
frequency is classified by how many turns it makes within the original context, not by wavelength.
Prints C initialisers with 17 significant digits.
"""

from decimal import Decimal as D, getcontext

getcontext().prec = 60
PI = D("3.14159265358979323846264338327950288419716939937510582097494459")

CASES = (
    # name, E, theta, None or (factor, low, high, original)
    ("plain_64_10000", 64, 10000, None),
    ("plain_32_500000", 32, 500000, None),
    ("llama31_128", 128, 500000, (8, 1, 4, 8192)),
    ("llama32_64", 64, 500000, (32, 1, 4, 8192)),
    ("odd_scaling_16", 16, "1234.5", ("2.5", "0.75", "3.5", 300)),
)


def frequency(i, width, theta, scaling):
    freq = (-(D(2 * i) / D(width)) * D(theta).ln()).exp()
    if scaling is None:
        return freq
    factor, low, high, original = (D(v) for v in scaling)
    turns = original * freq / (2 * PI)
    if turns > high:
        return freq
    if turns < low:
        return freq / factor
    share = (turns - low) / (high - low)
    return freq * (share + (1 - share) / factor)


for name, width, theta, scaling in CASES:
    print(f"static const double {name}[{width // 2}] = {{")
    for i in range(width // 2):
        print(f"\t{float(frequency(i, width, theta, scaling)):.17g},")
    print("};")
