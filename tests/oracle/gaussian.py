"""gaussian - the numbers of kv-score's random generators, computed again from their definitions"""

import math


def mix(state, word):
    """The finaliser of SplitMix64 after its increment."""
    z = ((state ^ word) + 0x9e3779b97f4a7c15) % 2**64
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    z = (z ^ z >> 27) * 0x94d049bb133111eb % 2**64
    return z ^ z >> 31


def mixed(*words):
    state = 0
    for word in words:
        state = mix(state, word)
    return state


def sketch(seed, l, g, E, K):
    """[E][K] of KV head g in layer l: normal numbers, by Box and Muller, over sqrt(K)"""
    state, unit = mixed(seed, l, g), 2.0 ** -53

    def normal(i):
        radius = math.sqrt(-2 * math.log(((mix(state, 2 * i) >> 11) + 1) * unit))
        return radius * math.cos(2 * math.pi * (mix(state, 2 * i + 1) >> 11) * unit)

    return [[normal(e * K + k) / math.sqrt(K) for k in range(K)] for e in range(E)]
