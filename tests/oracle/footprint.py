#!/usr/bin/env python3
"""footprint - KV footprints counted by other code, and snapshots with a log made by hand.

	footprint.py log FILE              what its log says, token after token, as JSON
	footprint.py prulong P R C S W SPARSITY HEADS        the formulas of PruLong's script
	footprint.py write FILE POSITIONS TOKENS EVENTS      a snapshot of two layers with that log

POSITIONS (for layer 0 and 1: a list for each KV head) and EVENTS ([kind, position, n, l0, l1],
or with counts: pairs of rows before and after for each KV head, layer after layer) are JSON.
Reading is kvread's, writing kvwrite's: nothing here is ours in C.
"""

import json
import os
import sys
from fractions import Fraction

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, '..', 'format'),
             os.path.join(HERE, '..', '..', 'formats', 'vectors')]

import good
import kvread
import kvwrite


# ---- measured: one token after the other ----

def changed(event, layer, head):
    """By how many rows this KV head has grown, less than 0 when it has shrunk."""
    if not event.l0 <= layer < event.l1:
        return 0
    if event.counts is None:
        return event.n
    before, after = event.counts[layer - event.l0][head]
    return after - before


def count(path):
    with open(path, 'rb') as file:
        s = kvread.read(file)
    heads = [(n, g) for n in range(s.model['layers']) for g in range(s.model['kv_heads'])]
    rows, entries, head_peak = (dict.fromkeys(heads, 0) for _ in range(3))
    peak, layer_peak = 0, dict.fromkeys(range(s.model['layers']), 0)
    for event in s.events:
        part = Fraction(event.l1 - event.l0, s.model['layers'])      # of the time of a token
        for h in heads:
            change = changed(event, *h)
            for _ in range(event.n):
                entries[h] += rows[h] * part
            for new in range(max(change, 0)):
                entries[h] += (new + 1) * part
            rows[h] += change
            head_peak[h] = max(head_peak[h], rows[h])
        for n in layer_peak:
            layer_peak[n] = max(layer_peak[n], sum(rows[h] for h in heads if h[0] == n))
        peak = max(peak, sum(rows.values()))
    assert rows == {(n, g): s.layers[n].rows[g] for n, g in heads}
    tokens = len(s.tokens)
    full = sum(range(tokens + 1))
    return {
        'tokens': tokens, 'rows': sum(rows.values()),
        'footprint': float(sum(entries.values()) / full / len(heads)),
        'peak': peak / tokens / len(heads), 'kept': sum(rows.values()) / tokens / len(heads),
        'layer_peaks': [n / s.model['kv_heads'] / tokens for n in layer_peak.values()],
        'heads': {f'{n} {g}': [float(entries[n, g] / full), head_peak[n, g] / tokens,
                               rows[n, g] / tokens] for n, g in heads}}


# ---- computed: the counting rule of eval/viz/kv_footprint.py, derived anew ----

def triangle(n):
    return n * (n + 1) // 2


def chunks(P, C):
    bounds = [*range(0, P, C or P), P]
    return list(zip(bounds, bounds[1:]))


def streaming_head(P, R, C, S, W):
    entries, points = 0, []
    kept = lambda a: min(a, W) + min(a - min(a, W), S)
    for a, b in chunks(P, C):
        entries += triangle(b - a) + (b - a) * kept(a)
        points.append(b - a + kept(a))
    for a in range(P, P + R):
        entries += 1 + kept(a)
    return entries, points + [1 + kept(P + R - 1)]


def evicting_head(P, R, C, sparsity):
    entries, points, past = 0, [], 0
    for a, b in chunks(P, C):
        n = b - a
        entries += triangle(n) + past * n
        points.append(past + n)
        past += min(round((1 - sparsity) * n) + 64, n)
    return entries + triangle(R) + past * R, points + [past + R]


def prulong(P, R, C, S, W, sparsity, h):
    s_entries, s_points = streaming_head(P, R, C, S, W)
    e_entries, e_points = evicting_head(P, R, C, sparsity)
    peak = max(h * a + (1 - h) * b for a, b in zip(s_points, e_points))
    return {'footprint': (h * s_entries + (1 - h) * e_entries) / triangle(P + R),
            'peak': peak / (P + R), 'streaming_entries': s_entries,
            'evicting_entries': e_entries, 'full_entries': triangle(P + R)}


# ---- snapshots ----

def written(lists, tokens, events):
    h = good.head(2, len(lists[0]), len(lists[0]), 2, next_position=tokens)
    out = good.sections(h, lists, list(range(tokens)))
    log = b''.join(kvwrite.event(*event) for event in events)
    return kvwrite.stream(out + [kvwrite.Section('eVNt', log)])


def main(what, *arguments):
    if what == 'log':
        print(json.dumps(count(arguments[0])))
    elif what == 'prulong':
        print(json.dumps(prulong(*map(int, arguments[:5]), *map(float, arguments[5:]))))
    elif what == 'write':
        with open(arguments[0], 'wb') as file:
            file.write(written(*map(json.loads, arguments[1:])))


if __name__ == '__main__':
    main(*sys.argv[1:])
