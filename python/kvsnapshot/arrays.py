"""A snapshot as NumPy arrays.

Letters: L layers, G KV heads, H query heads, R = H/G, E head width, T tokens, V vocabulary; S rows
of a KV head, W observation queries, K of these that are of tokens which are not stored. What
belongs to rows is a list with an array for each KV head, since KV heads may have different rows."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Sequence

import numpy as np

from . import container, content
from .rowstore import RowStore
from .rowtypes import widen

if TYPE_CHECKING:
    import numpy.typing as npt

    from . import querystats
    from .rowscores import Scores
    from .sequences import Numbers
    F32 = npt.NDArray[np.float32]
    F64 = npt.NDArray[np.float64]
    U8 = npt.NDArray[np.uint8]
    U32 = npt.NDArray[np.uint32]


def per_query_head(values: Sequence[Numbers[float]]) -> F32:
    """f32 [R][S]"""
    return np.stack([one.view for one in values])


def per_kv_head(scores: Scores | None) -> list[F32] | None:
    """[G] f32 [S]"""
    return None if scores is None else [np.array(one.view) for one in scores.values]


class QueryStats:
    """Sums over queries before rotary embedding, in f64, and what methods make of them (kv-snapshot
    (5), 4.22).

    first: queries at positions below it are left out; n: how many there are; with none mean,
    covariance and mean_modulus are None. mean: [H][E]. covariance: [H][E][E], of n and not n - 1.
    mean_modulus: [H][W/2], W channels are rotated in this layer, and pair i is channels i and
    i + W/2. sums, moduli, products: the same before they are divided, products [H][E][E] of both
    triangles."""

    def __init__(self, raw: querystats.QueryStats) -> None:
        self.first: int = raw.first
        self.n: int = raw.n
        self.sums: F64 = np.stack(raw.sums)
        self.moduli: F64 = np.stack(raw.moduli)
        heads, E = self.sums.shape
        lower = np.tril_indices(E)
        self.products: F64 = np.empty((heads, E, E))
        self.products[:, lower[0], lower[1]] = self.products[:, lower[1], lower[0]] = np.stack(
            raw.products)

    @property
    def mean(self) -> F64 | None:
        return self.sums / self.n if self.n else None

    @property
    def covariance(self) -> F64 | None:
        mean = self.mean
        if mean is None:
            return None
        return self.products / self.n - mean[:, :, None] * mean[:, None, :]

    @property
    def mean_modulus(self) -> F64 | None:
        return self.moduli / self.n if self.n else None


class Layer:
    """One layer. bf16 and f16 are widened to f32, quantised rows are their numbers in f32; what the
    snapshot does not have is None.

    key_type, value_type: how the rows are stored, 'bf16', 'q8_0-hadamard', ...: the dtype of the
    snapshot, or one of rowstore.TYPES (kv-snapshot(5), 4.20 and 4.21). key_store, value_store: the
    same, with all that the bytes of their rows depend on."""

    def __init__(self, snapshot: content.Snapshot, index: int) -> None:
        self.index = index
        self.head: dict[str, Any] = snapshot.head
        self.model: dict[str, Any] = snapshot.model
        self.key_store: RowStore = snapshot.store(index, 'keys')
        self.value_store: RowStore = snapshot.store(index, 'values')
        self.key_type: str = self.key_store.kind
        self.value_type: str = self.value_store.kind
        self._raw = snapshot.layers[index]

    @property
    def window(self) -> int:
        """How many positions a query sees, its own and those before it; 0: all."""
        whole = self.index in self.model.get('whole_layers', ())
        return 0 if whole else int(self.model.get('window', 0))

    @cached_property
    def positions(self) -> list[U32]:
        """[G] u32 [S]: which row stands where in the text, ascending"""
        return [np.array(p.view) for p in self._raw.positions]

    @cached_property
    def keys(self) -> list[F32]:
        """[G] f32 [S][E], after rotary embedding"""
        return self._numbers(self.stored_keys, self.key_store)

    @cached_property
    def values(self) -> list[F32]:
        """[G] f32 [S][E]; of a model with latent attention [S][latent_rank], channels of keys"""
        if 'latent_rank' in self.model:
            return [keys[:, :self.model['latent_rank']] for keys in self.keys]
        return self._numbers(self.stored_values, self.value_store)

    @property
    def stored_keys(self) -> list[U8]:
        """[G] u1 [S][bytes of a row]: the rows as they are stored. Those of some rows, by index,
        are these rows; nothing is quantised again. Where key_store.alike is false, since the last
        rows are full, [G] u1 [bytes]: what 4.20 and 4.21 say."""
        return self._rows(self._raw.keys, self.key_store)

    @property
    def stored_values(self) -> list[U8]:
        """[G] u1 [S][bytes of a row], or as in stored_keys; of channels of keys no bytes"""
        return self._rows(self._raw.values, self.value_store)

    def _rows(self, data: bytes, store: RowStore) -> list[U8]:
        whole, rows = np.frombuffer(memoryview(data).toreadonly(), np.uint8), self._raw.rows
        if store.alike and store.size(1) == 0:
            return [np.empty((n, 0), np.uint8) for n in rows]
        if store.alike:
            return np.split(whole.reshape(-1, store.size(1)), np.cumsum(list(rows))[:-1])
        return np.split(whole, np.cumsum(list(map(store.size, rows)))[:-1])

    def _numbers(self, heads: list[U8], store: RowStore) -> list[F32]:
        return [store.numbers(data, n) for data, n in zip(heads, self._raw.rows)]

    @cached_property
    def queries(self) -> F32 | None:
        """f32 [H][W][E], after rotary embedding: those that kv-prefill --observe keeps"""
        return self._per_head(self._raw.queries and self._raw.queries.data, 'query_heads')

    @cached_property
    def sinks(self) -> F32 | None:
        """f32 [H]: logits of the learned sinks of the softmax, or None"""
        return None if self._raw.sinks is None else np.array(self._raw.sinks, '<f4')

    @property
    def query_positions(self) -> U32 | None:
        """u32 [W], ascending; from next_position on those of tokens that are not stored"""
        q = self._raw.queries
        return None if q is None else np.array(q.positions.view)

    @cached_property
    def own_keys(self) -> F32 | None:
        """f32 [G][K][E]: keys of the last K observation queries, whose tokens are not stored"""
        return self._per_head(self._raw.queries and self._raw.queries.own, 'kv_heads')

    def _per_head(self, data: bytes | None, heads: str) -> F32 | None:
        if data is None:
            return None
        shape = self.model[heads], -1, self.model['head_width']
        if not data:
            shape = self.model[heads], 0, self.model['head_width']
        return widen(data, self.head['dtype']).reshape(shape)

    @cached_property
    def query_stats(self) -> QueryStats | None:
        """A QueryStats: of all queries that were run, where kv-prefill was asked for it"""
        q = self._raw.query_stats
        return None if q is None else QueryStats(q)

    @cached_property
    def mass(self) -> list[F32] | None:
        """[G] f32 [R][S]: the attention that rows have received (kv-prefill --mass)"""
        m = self._raw.mass
        return None if m is None else [per_query_head(one) for one in m]

    @cached_property
    def probe_mass(self) -> list[F32] | None:
        """[G] f32 [R][S]: the same from tokens that were not stored (kv-observe)"""
        p = self._raw.paid
        return None if p is None else [per_query_head(one) for one in p.values]

    @property
    def probe_mass_label(self) -> str | None:
        """How the attention of probe tokens was accumulated"""
        return None if self._raw.paid is None else self._raw.paid.label

    @cached_property
    def value_norms(self) -> list[F32] | None:
        """[G] f32 [R][S]: norms of what the values of rows add to the residual stream, of value
        times output projection (kv-snapshot(5), 4.23); value_norms_label says which norm"""
        v = self._raw.value_norms
        return None if v is None else [per_query_head(one) for one in v.values]

    @property
    def value_norms_label(self) -> str | None:
        """'l1' or 'l2'"""
        return None if self._raw.value_norms is None else self._raw.value_norms.label

    @cached_property
    def gate_scores(self) -> list[F32] | None:
        """[G] f32 [S]: how much rows matter, as a gate said when their tokens ran (kv-snapshot(5),
        4.24); gate_scores_label says which one"""
        return per_kv_head(self._raw.gate_scores)

    @property
    def gate_scores_label(self) -> str | None:
        return None if self._raw.gate_scores is None else self._raw.gate_scores.label

    @cached_property
    def noncausal(self) -> list[F32] | None:
        """[G] f32 [S]: attention that rows have received where every query sees every key of its
        chunk (kv-snapshot(5), 4.25); noncausal_label says how the text was cut into chunks"""
        return per_kv_head(self._raw.noncausal)

    @property
    def noncausal_label(self) -> str | None:
        return None if self._raw.noncausal is None else self._raw.noncausal.label

    @cached_property
    def scores(self) -> list[F32] | None:
        """[G] f32 [S]; score_label says how they were made"""
        return per_kv_head(self._raw.scores)

    @property
    def score_label(self) -> str | None:
        return None if self._raw.scores is None else self._raw.scores.label

    def attention(self, g: int) -> F32:
        """f32 [R][W][S]: the attention that the observation queries of the query heads of KV head g
        pay to its rows: a softmax for each query over the rows that it sees, and the own keys that
        it sees; and a learned sink where the model has them."""
        R, keys = self.model['query_heads'] // self.model['kv_heads'], self.keys[g]
        if self.queries is None or self.query_positions is None or self.own_keys is None:
            raise ValueError('no observation queries: make the snapshot with kv-prefill --observe')
        queries, at = self.queries[g * R:(g + 1) * R], self.query_positions.astype(np.int64)
        rows, own = len(keys), self.own_keys[g]
        keys = np.concatenate([keys, own])
        positions = np.concatenate([self.positions[g], at[len(at) - len(own):]]).astype(np.int64)
        logits = queries @ keys.T / np.float32(self.model['head_width'] ** 0.5)
        cap = self.model.get('attention_softcap', 0)
        if cap:
            logits = np.float32(cap) * np.tanh(logits / np.float32(cap))
        seen = positions <= at[:, None]
        if self.window:
            seen &= positions > at[:, None] - self.window
        logits = np.where(seen, logits, -np.inf)
        top = logits.max(axis=2, keepdims=True, initial=np.float32(-1e30))
        sinks: F32 | int = 0
        if self.sinks is not None:
            sinks = self.sinks[g * R:(g + 1) * R, None, None]
            top = np.maximum(top, sinks)
            sinks = np.exp(sinks - top)
        weights = np.exp(logits - top)
        whole = weights.sum(axis=2, keepdims=True) + sinks
        paid: F32 = (weights / np.maximum(whole, 1e-30))[:, :, :rows]
        return paid


class Snapshot:
    """A whole snapshot. layers: [L] Layer; head, model: what HEAD says (kv-snapshot(5), 4.1)"""

    def __init__(self, snapshot: content.Snapshot) -> None:
        self.head: dict[str, Any] = snapshot.head
        self.model: dict[str, Any] = snapshot.model
        self.next_position: int = snapshot.head['next_position']
        self.tokens: U32 = np.asarray(snapshot.tokens.view)                             # [T] u32
        self.layers = [Layer(snapshot, i) for i in range(len(snapshot.layers))]
        # [V] f32
        self.logits: F32 | None = (None if snapshot.logits is None
                                   else np.asarray(snapshot.logits.view))
        # the log; None: there is none
        self.events: Sequence[content.Event] | None = snapshot.events
        # a dict for each program that wrote it, oldest first
        self.provenance: Sequence[dict[str, Any]] = snapshot.provenance


def read(file: str | os.PathLike[str] | BinaryIO) -> Snapshot:
    """Reads a snapshot: a path, '-' for standard input, or a binary file object. Bad: it is
    damaged, or no snapshot."""
    if not isinstance(file, (str, bytes, os.PathLike)):
        return Snapshot(container.read(file))
    if file == '-':
        return Snapshot(container.read(sys.stdin.buffer))
    with open(file, 'rb') as opened:
        return Snapshot(container.read(opened))
