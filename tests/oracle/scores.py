#!/usr/bin/env python3
"""scores - the scores of a snapshot, computed again from the papers' formulas in double precision.

	scores.py LIMIT BEFORE.kv AFTER.kv METHOD [option=value ...]
	scores.py <LINES                    each line like the arguments above

Reads keys, positions and observation queries of BEFORE, computes what METHOD must give, and
compares with the scores in AFTER. Exits with 1 when an error, relative to the largest finite score
of the KV head, is above LIMIT, or a row is +inf on one side only. Shares no code with kv-score.
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'format'))
sys.dont_write_bytecode = True

import gaussian
import kvread
import renumber
import sine_filters


def sight(snapshot, l, h=None):
    """What limits the queries of a layer: how many positions they see (0: all), the softcap of
    logits, and the logit of the learned sink of query head h, if there is one (-inf)."""
    model, sinks = snapshot.model, snapshot.layers[l].sinks
    sees = 0 if l in model.get('whole_layers', ()) else model.get('window', 0)
    return (sees, model.get('attention_softcap', 0),
            -np.inf if h is None or sinks is None else sinks[h])


def unseen(positions, at, sees):
    """[W][S]: rows that a query at this position does not see."""
    positions, at = np.asarray(positions)[None, :], np.asarray(at)[:, None]
    return (positions > at) | (positions <= at - sees if sees else False)


def capped(logits, cap):
    return cap * np.tanh(logits / cap) if cap else logits


def attention(keys, positions, queries, at, limits, own=None, own_at=()):
    """[W][S]: softmax of q.k / sqrt(E) over the rows that each query sees. limits: sight()

    own: keys of tokens that are not stored, at positions own_at: in the softmax, not in the result.
    """
    rows = len(keys)
    if own is not None:
        keys, positions = np.concatenate([keys, own]), np.concatenate([positions, own_at])
    sees, cap, sink = limits
    logits = capped(queries @ keys.T / np.sqrt(keys.shape[1]), cap)
    logits[unseen(positions, at, sees)] = -np.inf
    most = np.maximum(logits.max(axis=1, keepdims=True), sink)
    most[most == -np.inf] = 0                   # a query that sees no row
    weights = np.exp(logits - most)
    total = weights.sum(axis=1, keepdims=True) + np.exp(sink - most)
    return (weights / np.where(total > 0, total, 1))[:, :rows]


def pooled(x, kernel, how):
    """torch avg_pool1d (zeros count) or max_pool1d, stride 1, padding kernel // 2."""
    half = kernel // 2
    fill = 0 if how == 'avg' else -np.inf
    padded = np.concatenate([np.full(half, fill), x, np.full(half, fill)])
    windows = [padded[i:i + kernel] for i in range(len(x))]
    return np.array([w.mean() if how == 'avg' else w.max() for w in windows])


def reduced(lists, how):
    return {'mean': np.mean, 'max': np.max, 'sum': np.sum}[how](np.array(lists), axis=0)


def snapkv(snapshot, l, g, o):
    layer, model = snapshot.layers[l], snapshot.model
    positions = np.array(layer.positions[g])
    keys = snapshot.array(l, 'keys', g).astype(np.float64)
    H, G = model['query_heads'], model['kv_heads']
    queries, stored = stored_queries(snapshot, l)
    W = int(o['window']) if 'window' in o else len(stored)
    at = stored[len(stored) - W:]
    queries = queries[:, len(stored) - W:]
    before = int((positions < at[0]).sum())
    heads = range(g * (H // G), (g + 1) * (H // G))
    over = np.max if o.get('over-queries', 'sum') == 'max' else np.sum
    own = own_keys(snapshot, l, g)
    mass = [attention(keys, positions, queries[h], at, sight(snapshot, l, h), *own)
            for h in heads]
    if o.get('weight', 'none') == 'visible':
        every = np.concatenate([positions, own[1]])
        seen = ~unseen(every, at, sight(snapshot, l)[0]) & (every < np.array(at)[:, None])
        mass = [paid * seen.sum(axis=1)[:, None] for paid in mass]
    mass = [over(paid, axis=0)[:before] for paid in mass]
    kernel, pool = int(o.get('kernel', 5)), o.get('pool', 'avg')
    if o.get('order', 'pool-first') == 'pool-first':
        score = reduced([pooled(m, kernel, pool) for m in mass], o.get('reduce', 'mean'))
    else:
        score = pooled(reduced(mass, o.get('reduce', 'mean')), kernel, pool)
    return np.concatenate([score, np.full(len(positions) - before, np.inf)])


def attention_in_front(snapshot, l, g, o):
    """[query head of the KV head][query of the window][row in front of it], and these rows"""
    positions = np.array(snapshot.layers[l].positions[g])
    keys = snapshot.array(l, 'keys', g).astype(np.float64)
    queries, stored = stored_queries(snapshot, l)
    W = int(o.get('window', len(stored)))
    at = stored[len(stored) - W:]
    before = int((positions < at[0]).sum())
    own = own_keys(snapshot, l, g)
    return [attention(keys, positions, queries[h, len(stored) - W:], at, sight(snapshot, l, h),
                      *own)[:, :before] for h in group(snapshot, g)], before


def cake(snapshot, l, g, o):
    paid, before = attention_in_front(snapshot, l, g, o)
    gamma, how = float(o.get('gamma', 200)), o.get('reduce', 'mean')
    kernel, pool = int(o.get('kernel', 5)), o.get('pool', 'avg')
    lists = [a.mean(0) + gamma * (a.var(0, ddof=1) if len(a) > 1 else 0) for a in paid]
    if o.get('order', 'pool-first') == 'pool-first':
        score = reduced([pooled(x, kernel, pool) for x in lists], how)
    else:
        score = pooled(reduced(lists, how), kernel, pool)
    rows = len(snapshot.layers[l].positions[g])
    return np.concatenate([score, np.full(rows - before, np.inf)])


def spread(snapshot, l, o):
    """Entropy and variance of a layer, which the label of cake's scores has"""
    entropy = variance = 0
    for g, positions in enumerate(snapshot.layers[l].positions):
        for a in attention_in_front(snapshot, l, g, o)[0] if positions else ():
            entropy -= (a * np.log(a + 1e-10)).sum()
            variance += a.var(0, ddof=1).sum() if len(a) > 1 else 0
    return entropy, variance


def lookahead(snapshot, l, g, o):
    """The mean over all queries, of learned tokens too, max-pooled; no row is kept by force."""
    layer, model = snapshot.layers[l], snapshot.model
    positions, R = np.array(layer.positions[g]), model['query_heads'] // model['kv_heads']
    keys = snapshot.array(l, 'keys', g).astype(np.float64)
    queries, at = stored_queries(snapshot, l)
    n = int(o.get('window', len(at)))
    own = own_keys(snapshot, l, g)
    mass = [attention(keys, positions, queries[h, -n:], at[-n:], sight(snapshot, l, h),
                      *own).mean(axis=0) for h in range(g * R, (g + 1) * R)]
    kernel, pool = int(o.get('kernel', 7)), o.get('pool', 'max')
    if o.get('order', 'pool-first') == 'reduce-first':
        return pooled(reduced(mass, o.get('reduce', 'mean')), kernel, pool)
    return reduced([pooled(m, kernel, pool) for m in mass], o.get('reduce', 'mean'))


def stored_queries(snapshot, l):
    """[H][W][E] and their positions."""
    layer, model = snapshot.layers[l], snapshot.model
    queries = kvread.widen(layer.queries.data, snapshot.head['dtype']).astype(np.float64)
    stored = layer.queries.positions
    return queries.reshape(model['query_heads'], len(stored), model['head_width']), stored


def own_keys(snapshot, l, g):
    """[K][E] of the last K queries, which are of tokens not stored, and their positions."""
    queries = snapshot.layers[l].queries
    own_at = [p for p in queries.positions if p >= snapshot.head['next_position']]
    own = kvread.widen(queries.own, snapshot.head['dtype']).astype(np.float64)
    shape = snapshot.model['kv_heads'], len(own_at), snapshot.model['head_width']
    return own.reshape(shape)[g], np.array(own_at, dtype=int)


def tova(snapshot, l, g, o):
    """The last query's attention, for each position the mean over the query heads that hold it."""
    layer, model = snapshot.layers[l], snapshot.model
    queries, stored = stored_queries(snapshot, l)
    paid = {}
    for h in range(model['query_heads']):
        own = h // (model['query_heads'] // model['kv_heads'])
        positions = layer.positions[own]
        if positions:
            keys = snapshot.array(l, 'keys', own).astype(np.float64)
            weights = attention(keys, np.array(positions), queries[h, -1:], stored[-1:],
                                sight(snapshot, l, h), *own_keys(snapshot, l, own))[0]
            for position, weight in zip(positions, weights):
                paid.setdefault(position, []).append(weight)
    safe = stored[-1] if int(o.get('keep-last', 0)) else stored[-1] + 1
    return np.array([np.inf if p >= safe else np.mean(paid[p]) for p in layer.positions[g]])


def h2o(snapshot, l, g, o):
    return reduced(snapshot.layers[l].mass[g], o.get('reduce', 'sum'))


def meanmass(snapshot, l, g, o):
    seen_by = snapshot.head['next_position'] - np.array(snapshot.layers[l].positions[g])
    if sight(snapshot, l)[0]:
        seen_by = np.minimum(seen_by, sight(snapshot, l)[0])
    return reduced(snapshot.layers[l].mass[g], o.get('reduce', 'mean')) / seen_by


def kvzip(snapshot, l, g, o):
    return reduced(snapshot.layers[l].paid.values[g], o.get('reduce', 'max'))


def kvcompose(snapshot, l, g, o):
    layer = snapshot.layers[l]
    heads = [dict(zip(positions, reduced(mass, o.get('reduce', 'mean'))))
             for positions, mass in zip(layer.positions, layer.paid.values)]
    return np.array([s + np.mean([head[p] for head in heads if p in head])
                     for p, s in heads[g].items()])


def knorm(snapshot, l, g, o):
    return -np.linalg.norm(snapshot.array(l, 'keys', g).astype(np.float64), axis=1)


def keydiff(snapshot, l, g, o):
    keys = snapshot.array(l, 'keys', g).astype(np.float64)
    lengths = np.linalg.norm(keys, axis=1, keepdims=True)
    directions = np.divide(keys, lengths, out=np.zeros_like(keys), where=lengths > 0)
    anchor = directions.mean(axis=0)
    return -directions @ (anchor / (np.linalg.norm(anchor) or 1))


def lagkv(snapshot, l, g, o):
    """Partitions behind the sinks, each on the scale of the next one; of equals the lower row has
    the higher rank."""
    keys, values = (snapshot.array(l, name, g).astype(np.float64) for name in ('keys', 'values'))
    positions, lag = np.array(snapshot.layers[l].positions[g]), int(o.get('lag', 128))
    sinks = int((positions < int(o.get('sink', 4))).sum())
    judged = len(positions) - sinks
    if judged < 2 * lag:
        return np.concatenate([np.ones(sinks), np.arange(judged) / max(judged, 1)])
    parts = judged // lag
    weights = []
    for x in (keys, values):
        x = x[sinks:sinks + parts * lag].reshape(parts, lag, -1)
        least, most = x[1:].min(axis=1, keepdims=True), x[1:].max(axis=1, keepdims=True)
        flat = (most == least).repeat(lag, axis=1)
        with np.errstate(invalid='ignore', divide='ignore'):
            scaled = np.ma.masked_array((x[:-1] - least) / (most - least), flat)
        few = scaled.count(axis=-1) < 2
        sigma = np.where(few, 0, scaled.std(axis=-1, ddof=1).filled(0))
        weight = np.exp(sigma - sigma.max(axis=1, keepdims=True))
        weights.append(weight / weight.sum(axis=1, keepdims=True))
    score = sum(weights) / 2
    if not int(o.get('cross', 0)):
        order = np.lexsort((-np.arange(lag)[None, :].repeat(parts - 1, 0), score), axis=-1)
        rank = np.empty_like(score)
        np.put_along_axis(rank, order, np.arange(lag)[None, :] / lag, axis=-1)
        score = rank
    out = np.ones(len(positions))
    out[sinks:sinks + (parts - 1) * lag] = score.ravel()
    return out


def cur(snapshot, l, g, o):
    local = int(o.get('local', 16))
    norms = []
    for name in ('keys', 'values'):
        norm = (snapshot.array(l, name, g).astype(np.float64) ** 2).sum(axis=1)
        for first in range(0, len(norm), local or len(norm) + 1) if local else ():
            window = norm[first:first + local]
            norm[first:first + local] = window / (window.sum() or 1)
        norms.append(norm)
    k, v = norms
    of_both = {'product': k * v, 'mean': (k + v) / 2, 'keys': k, 'values': v}
    score = of_both[o.get('norms', 'product')]
    score = score / (score.sum() or 1)
    score[np.array(snapshot.layers[l].positions[g]) < int(o.get('sink', 4))] = 1
    return score


def qfilter(snapshot, l, g, o):
    keys = snapshot.array(l, 'keys', g).astype(np.float64)
    f = [sine_filters.number(l, g, e) for e in range(keys.shape[1])]
    return -keys @ np.array(f, dtype=np.float32).astype(np.float64)


def moments(snapshot, l, h, o):
    """Mean and covariance of the queries of query head h before rotary embedding."""
    E = snapshot.model['head_width']
    if 'query-stats' in o:
        mean = [sine_filters.number(l, h, e) for e in range(E)]
        return tuple(np.array(x, np.float32).astype(np.float64) for x in (mean, [
            [sine_filters.covariance(l, h, i, j) for j in range(E)] for i in range(E)]))
    stats = snapshot.layers[l].query_stats
    mean = np.array(stats.sums[h]) / stats.n
    square = np.zeros((E, E))
    square[np.tril_indices(E)] = stats.products[h]
    square = square + np.tril(square, -1).T
    return mean, square / stats.n - np.outer(mean, mean)


def frequencies(snapshot, l):
    """Of rotary embedding in layer l, and the factor of what is rotated"""
    model = snapshot.model
    half = renumber.turned(model, l) // 2
    if 'window_theta' in model['rope'] and sight(snapshot, l)[0]:
        return model['rope']['window_theta'] ** (-np.arange(half) / half), 1
    return renumber.frequencies(model)[:half], model['rope'].get('attention_factor', 1)


def turned_from(snapshot):
    """The first channel that rotary embedding rotates: behind the latent vector"""
    return snapshot.model.get('latent_rank', 0)


def split(snapshot, x, half):
    """Rotated pairs as complex numbers, and the other channels"""
    first = turned_from(snapshot)
    x, rest = x[..., first:], x[..., :first]
    return (x[..., :half] + 1j * x[..., half:2 * half],
            np.concatenate([rest, x[..., 2 * half:]], axis=-1))


def mean_rotation(snapshot, l, future):
    """[E][E]: the mean of the rotations of the next positions"""
    freq, factor = frequencies(snapshot, l)
    half, M = len(freq), np.eye(snapshot.model['head_width'])
    at = snapshot.head['next_position'] + np.arange(future)
    m = np.exp(1j * np.outer(at, freq)).mean(axis=0) * factor
    i = turned_from(snapshot) + np.arange(half)
    M[i, i] = M[i + half, i + half] = m.real
    M[i, i + half], M[i + half, i] = -m.imag, m.imag
    return M


def leverage(snapshot, l, g, o, part=slice(None)):
    """The diagonal of X (X'X + ridge)^-1 X', X the centred keys before rotary embedding"""
    keys = snapshot.array(l, 'keys', g).astype(np.float64)[part]
    freq, factor = frequencies(snapshot, l)
    half, K = len(freq), int(o.get('sketch', 0))
    back = np.exp(-1j * np.outer(np.array(snapshot.layers[l].positions[g])[part], freq)) / factor
    pairs, rest = split(snapshot, keys, half)
    pairs = pairs * back
    x = np.hstack([pairs.real, pairs.imag, rest])
    x = x - x.mean(axis=0)
    if 0 < K < keys.shape[1]:
        x = x @ np.array(gaussian.sketch(int(o.get('seed', 0)), l, g, keys.shape[1], K))
    return np.einsum('si,ij,sj->s', x, np.linalg.inv(x.T @ x + 0.01 * np.eye(x.shape[1])), x)


def behind_sinks(snapshot, l, g, o):
    """Number of sinks; keys and values behind them"""
    sinks = int((np.array(snapshot.layers[l].positions[g]) < int(o.get('sink', 4))).sum())
    return (sinks,) + tuple(snapshot.array(l, name, g)[sinks:].astype(np.float64)
                            for name in ('keys', 'values'))


def group(snapshot, g):
    R = snapshot.model['query_heads'] // snapshot.model['kv_heads']
    return range(g * R, (g + 1) * R)


def expected(snapshot, l, g, o):
    sinks, keys, values = behind_sinks(snapshot, l, g, o)
    M, E, shares = mean_rotation(snapshot, l, int(o.get('future', 512))), keys.shape[1], []
    for h in group(snapshot, g):
        mean, cov = moments(snapshot, l, h, o)
        x = keys @ (M @ mean) / np.sqrt(E)
        if not int(o.get('no-covariance', 0)):
            x += np.einsum('si,ij,sj->s', keys, M @ cov @ M.T, keys) / (2 * E)
        x = np.exp(x - x.max(initial=-np.inf))
        shares.append(x / x.sum())
    score = np.mean(shares, axis=0) + float(o.get('epsilon', 0))
    if not int(o.get('no-value-norm', 0)):
        score = score * np.linalg.norm(values, axis=1)
    return np.concatenate([np.full(sinks, np.inf), score])


def capkv(snapshot, l, g, o):
    sinks, keys, values = behind_sinks(snapshot, l, g, o)
    M, shares = mean_rotation(snapshot, l, int(o.get('future', 512))), []
    lengths = np.linalg.norm(keys, axis=1)
    for h in group(snapshot, g):
        later = M @ moments(snapshot, l, h, o)[0]
        c = np.divide(keys @ later, lengths * np.linalg.norm(later), out=np.zeros(len(keys)),
                      where=lengths * np.linalg.norm(later) > 0)
        w = np.exp(5 * (c - c.max(initial=-np.inf)))
        A = np.eye(values.shape[1]) + (values * (w + 1e-6)[:, None]).T @ values
        shares.append(w * np.einsum('si,ij,sj->s', values, np.linalg.inv(A), values))
    return np.concatenate([np.full(sinks, np.inf), np.mean(shares, axis=0)])


def moduli(snapshot, l, h, half, o):
    """Mean moduli of the rotated pairs of the queries of query head h"""
    if 'query-stats' in o:
        return np.array([sine_filters.modulus(l, h, f) for f in range(half)],
                        np.float32).astype(np.float64)
    stats = snapshot.layers[l].query_stats
    return np.array(stats.moduli[h]) / stats.n


def triattention(snapshot, l, g, o):
    """By the formula, with the rotation of each key taken back"""
    keys, positions = (np.array(x, dtype=np.float64) for x in (
        snapshot.array(l, 'keys', g), snapshot.layers[l].positions[g]))
    freq, factor = frequencies(snapshot, l)
    half, lists = len(freq), []
    k, rest = split(snapshot, keys, half)
    k = k * np.exp(-1j * np.outer(positions, freq))
    away = snapshot.head['next_position'] - positions[:, None] + 2.0 ** np.arange(17)
    turns = np.exp(1j * away[:, :, None] * freq).mean(axis=1)
    for h in group(snapshot, g):
        q, mean = split(snapshot, moments(snapshot, l, h, o)[0], half)
        score = (q * k.conj() * turns).real.sum(axis=1) * factor
        score += np.abs(k) @ (moduli(snapshot, l, h, half, o) - np.abs(q)) * factor
        score += rest @ mean
        if int(o.get('z-score', 0)):
            score = (score - score.mean()) / score.std(ddof=1)
        lists.append(score)
    return {'max': np.max, 'mean': np.mean, 'sum': np.sum}[o.get('reduce', 'max')](lists, axis=0)


def rkv(snapshot, l, g, o):
    """By the formula, with all cosines in one matrix"""
    positions, W = np.array(snapshot.layers[l].positions[g]), int(o.get('window', 8))
    keys = snapshot.array(l, 'keys', g).astype(np.float64)
    queries, at = stored_queries(snapshot, l)
    at = np.array(at)
    front, width = int((positions < at[-W]).sum()), keys.shape[1]
    logits = np.max([queries[h][-W:] @ keys[:front].T for h in group(snapshot, g)], axis=0)
    logits = logits / np.sqrt(width)
    window, cap, _ = sight(snapshot, l)
    logits = cap * np.tanh(logits / cap) if cap else logits
    if window:
        logits[at[-W:, None] - positions[:front] >= window] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    a = (weights / weights.sum(axis=1, keepdims=True)).mean(axis=0)
    half = int(o.get('kernel', 7)) // 2
    a = [a[max(0, i - half):i + half + 1].max() for i in range(front)]
    u = keys / (np.linalg.norm(keys, axis=1, keepdims=True) + 1e-8)
    C = u @ u.T
    np.fill_diagonal(C, 0)
    for i in range(len(C)):
        like = np.flatnonzero(C[i] > 0.5)
        C[i, like[-1] if len(like) else 0] = 0
    red = np.exp(C.mean(axis=0))
    share = float(o.get('lambda', 0.07))
    score = share * np.array(a) - (1 - share) * (red / red.sum())[:front]
    return np.concatenate([score, np.full(len(keys) - front, np.inf)])


def simlayer(snapshot, l, g, o):
    """The whole layer is lazy, or not."""
    layer, model = snapshot.layers[l], snapshot.model
    sink, last, W = int(o.get('sink', 4)), int(o.get('recent', 1024)), int(o.get('window', 1))
    queries, at = stored_queries(snapshot, l)
    shares, short = [], False
    for h in range(model['query_heads']):
        kv = h // (model['query_heads'] // model['kv_heads'])
        positions = np.array(layer.positions[kv])
        front = positions < at[-W]
        short = short or len(positions) <= sink + last + W or front.sum() < last
        if short:
            break
        weights = attention(snapshot.array(l, 'keys', kv).astype(np.float64), positions,
                            queries[h][-W:], at[-W:], sight(snapshot, l, h)).mean(axis=0)
        end = int(front.sum())
        shares.append(weights[positions < sink].sum() + weights[max(end - last, 0):end].sum())
    positions = np.array(layer.positions[g])
    score = np.ones(len(positions))
    if not short and np.mean(shares) > float(o.get('lazy', 0.9)):
        score[:] = 0
        score[positions < sink] = 1
        score[len(positions) - (last - W):] = 1
    return score


def recent(snapshot, l, g, o):
    sink = int(o.get('sink', 4))
    return np.array([np.inf if p < sink else float(p) for p in snapshot.layers[l].positions[g]])


def random(snapshot, l, g, o):
    state = gaussian.mixed(int(o.get('seed', 0)), l, g)
    return np.array([(gaussian.mix(state, p) >> 40) / 2**24
                     for p in snapshot.layers[l].positions[g]])


def noncausal_part(snapshot, l, g, first, end):
    values = np.linalg.norm(snapshot.array(l, 'values', g).astype(np.float64), axis=1)
    received = np.array(snapshot.layers[l].noncausal.values[g], dtype=np.float64)
    padded = np.concatenate([[0], (received * values)[first:end], [0]])
    return (padded[:-2] + padded[1:-1] + padded[2:]) / 3


def noncausal(snapshot, l, g, o):
    return noncausal_part(snapshot, l, g, 0, len(snapshot.layers[l].positions[g]))


def compactor(snapshot, l, g, o):
    """Of the layer: all KV heads are standardised together."""
    sink, recent = int(o.get('sink', 8)), int(o.get('recent', 4))
    end = snapshot.head['next_position'] - recent
    lever, mass, middle = [], [], []
    for kv, positions in enumerate(snapshot.layers[l].positions):
        positions = np.array(positions)
        inside = np.flatnonzero((positions >= sink) & (positions < end))
        middle.append((inside[0], inside[-1] + 1) if len(inside) else (0, 0))
        mass.append(noncausal_part(snapshot, l, kv, *middle[-1]))
        lever.append(leverage(snapshot, l, kv, o, slice(*middle[-1])) if len(inside) else [])
    both = []
    for parts in (lever, mass):
        every = np.concatenate(parts)
        both.append((parts[g] - every.mean()) / max(every.std(ddof=1), 1e-6))
    score = np.full(len(snapshot.layers[l].positions[g]), np.inf)
    score[slice(*middle[g])] = float(o.get('blend', 0.35)) * both[0] + both[1]
    return score


def kvzap(snapshot, l, g, o):
    return np.array(snapshot.layers[l].gate_scores.values[g], dtype=np.float64)


def fastkvzip(snapshot, l, g, o):
    T, positions = snapshot.head['next_position'], np.array(snapshot.layers[l].positions[g])
    recent = o.get('recent', 4096 if T >= 32000 else max(1, int(T * 0.02)))
    ends = (positions < int(o.get('sink', 4))) | (positions >= T - int(recent))
    return np.where(ends, np.inf, kvzap(snapshot, l, g, o))


METHODS = {f.__name__: f for f in (snapkv, lookahead, cake, tova, h2o, meanmass, kvzip, kvcompose,
                                     knorm, keydiff, lagkv, cur, qfilter, expected, capkv,
                                     triattention, rkv, simlayer, leverage, noncausal, compactor,
                                     kvzap, fastkvzip, recent, random)}


def drop_before(snapshot, position):
    """Leaves only the rows at this position and later; returns how many went, [layer][KV head]."""
    gone = []
    for l, layer in enumerate(snapshot.layers):
        first = [sum(p < position for p in held) for held in layer.positions]
        for name in ('keys', 'values'):
            size = len(getattr(layer, name)) // max(sum(layer.rows), 1)
            layer.heads[name] = [snapshot.head_rows(l, name, g)[n * size:]
                                 for g, n in enumerate(first)]
            setattr(layer, name, b''.join(layer.heads[name]))
        layer.positions = [held[n:] for n, held in zip(first, layer.positions)]
        layer.rows = [len(held) for held in layer.positions]
        if layer.mass:
            layer.mass = [[paid[n:] for paid in lists] for n, lists in zip(first, layer.mass)]
        if layer.paid:
            layer.paid = layer.paid._replace(values=[
                [paid[n:] for paid in lists] for n, lists in zip(first, layer.paid.values)])
        for name in ('gate_scores', 'noncausal'):
            if (lists := getattr(layer, name)):
                setattr(layer, name, lists._replace(values=[
                    values[n:] for n, values in zip(first, lists.values)]))
        gone.append(first)
    return gone


def error(want, got):
    """Largest difference of finite scores, relative to the largest of them."""
    if not np.array_equal(np.isposinf(want), np.isposinf(got)):
        return np.inf
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0
    return np.abs(want - got)[finite].max() / max(np.abs(want[finite]).max(), 1e-30)


def check(limit, before, after, name, *options):
    """True when all scores agree."""
    before, after = (kvread.read(open(file, 'rb')) for file in (before, after))
    method = METHODS[name]
    options = dict(o.split('=') for o in options)
    gone = drop_before(before, int(options.get('since', 0)))
    good = True
    for l, layer in enumerate(before.layers):
        for g, positions in enumerate(layer.positions):
            got = np.array(after.layers[l].scores.values[g], dtype=np.float64)
            good = good and np.isposinf(got[:gone[l][g]]).all()
            got = got[gone[l][g]:]
            with np.errstate(invalid='ignore'):
                e = error(method(before, l, g, options), got) if positions else 0
            if not e <= float(limit):
                print(f'{name} {options} layer {l} head {g}: error {e:.3g}, limit {limit}')
                good = False
        if name == 'cake':
            words = dict(w.split('=') for w in after.layers[l].scores.label.split()[1:])
            got = float(words['entropy']), float(words['variance'])
            # the f32 of attention are exact to 1e-6 of each; small ones cancel in the variance
            if not np.allclose(got, spread(before, l, options), rtol=1e-4, atol=1e-9):
                print(f'{options} layer {l}: {got}, not {spread(before, l, options)}')
                good = False
    return good


def main(arguments):
    jobs = [arguments] if arguments else [line.split() for line in sys.stdin]
    return 0 if jobs and all([check(*job) for job in jobs]) else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
