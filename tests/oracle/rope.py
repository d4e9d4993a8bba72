#!/usr/bin/env python3
"""rope.py - expected rotary frequencies, for tests/unit/model_rope.c

usage: rope.py

Written from the descriptions of Llama 3.1's frequency scaling and of YaRN (Peng et al. 2023), in
60-digit decimal arithmetic: each frequency is classified by how many turns it makes within the
original context, not by wavelength. Prints C initialisers with 17 significant digits.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal as D, getcontext

getcontext().prec = 60
PI = D("3.14159265358979323846264338327950288419716939937510582097494459")

CASES = (
    # name, E, theta, None or (factor, low, high, original)
    ("plain_64_10000", 64, 10000, None),
    ("plain_32_500000", 32, 500000, None),
    ("llama31_128", 128, 500000, (8, 1, 4, 8192)),
    ("llama32_64", 64, 500000, (32, 1, 4, 8192)),
    ("odd_scaling_16", 16, "1234.5", ("2.5", "0.75", "3.5", 300)),
    ("linear_16", 16, 10000, "4"),
    # YaRN: factor, fast, slow, original, rounded to whole pairs
    ("yarn_128", 128, 1000000, (4, 32, 1, 32768, True)),
    ("yarn_unrounded_24", 24, 10000, ("2.5", 8, "0.5", 64, False)),
    ("yarn_short_8", 8, 10000, (16, 32, 1, 16, True)),
)


def yarn(i, width, theta, scaling):
    """The share of the stretched frequency grows linearly between two pairs: those that would make
    `fast` and `slow` turns within the original context, if pairs could be fractions."""
    factor, fast, slow, original = (D(v) for v in scaling[:4])
    freq = (-(D(2 * i) / D(width)) * D(theta).ln()).exp()

    def pair(turns):          # original * theta^(-2 pair / width) = 2 pi turns
        return D(width) / 2 * (original / (2 * PI * turns)).ln() / D(theta).ln()

    low, high = pair(fast), pair(slow)
    if scaling[4]:
        low = low.to_integral_value(ROUND_FLOOR)
        high = high.to_integral_value(ROUND_CEILING)
    low, high = max(low, D(0)), min(high, D(width - 1))
    if low == high:
        high += D("0.001")
    share = min(max((i - low) / (high - low), D(0)), D(1))
    return freq / factor * share + freq * (1 - share)


def frequency(i, width, theta, scaling):
    freq = (-(D(2 * i) / D(width)) * D(theta).ln()).exp()
    if scaling is None:
        return freq
    if isinstance(scaling, str):
        return freq / D(scaling)
    if len(scaling) == 5:
        return yarn(i, width, theta, scaling)
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
