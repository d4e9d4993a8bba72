#!/usr/bin/env python3
"""footprint - KV footprints counted by other code, and snapshots with a log made by hand.

	footprint.py log FILE [stored]     what its log says, token after token, as JSON; or what it
	                                   says of tokens that were stored
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


def found(event, rows, new):
    """The rows that each token of the event finds in a KV head that had so many before it, where so
    many of the tokens get a row; all of them together."""
    total = 0
    for _ in range(event.n):
        total += rows
    for earlier in range(new):
        total += earlier + 1
    return total


def count(path, stored=False):
    with open(path, 'rb') as file:
        s = kvread.read(file)
    heads = [(n, g) for n in range(s.model['layers']) for g in range(s.model['kv_heads'])]
    rows, entries, memory, head_peak = (dict.fromkeys(heads, 0) for _ in range(4))
    peak, layer_peak = 0, dict.fromkeys(range(s.model['layers']), 0)
    for event in s.events:
        if stored and event.run:
            continue
        part = Fraction(event.l1 - event.l0, s.model['layers'])      # of the time of a token
        there = {}
        for h in heads:
            here = event.l0 <= h[0] < event.l1
            new = event.n if here and event.run else max(changed(event, *h), 0)
            memory[h] += found(event, rows[h], new) * part
            if here:
                entries[h] += found(event, rows[h], new)
            there[h] = rows[h] + new
            rows[h] += changed(event, *h)
            head_peak[h] = max(head_peak[h], there[h] if event.n else 0)
        for n in layer_peak:
            layer_peak[n] = max(layer_peak[n], sum(there[h] for h in heads if h[0] == n)
                                if event.n else 0)
        peak = max(peak, sum(there.values()) if event.n else 0)
    assert rows == {(n, g): s.layers[n].rows[g] for n, g in heads}
    tokens = len(s.tokens)
    full = sum(range(tokens + 1))
    return {
        'tokens': tokens, 'rows': sum(rows.values()),
        'footprint': sum(entries.values()) / full / len(heads),
        'memory': float(sum(memory.values()) / full / len(heads)),
        'peak': peak / tokens / len(heads), 'kept': sum(rows.values()) / tokens / len(heads),
        'layer_peaks': [n / s.model['kv_heads'] / tokens for n in layer_peak.values()],
        'heads': {f'{n} {g}': [entries[n, g] / full, float(memory[n, g] / full),
                               head_peak[n, g] / tokens, rows[n, g] / tokens]
                  for n, g in heads}}


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
        print(json.dumps(count(arguments[0], 'stored' in arguments[1:])))
    elif what == 'prulong':
        print(json.dumps(prulong(*map(int, arguments[:5]), *map(float, arguments[5:]))))
    elif what == 'write':
        with open(arguments[0], 'wb') as file:
            file.write(written(*map(json.loads, arguments[1:])))


if __name__ == '__main__':
    main(*sys.argv[1:])
