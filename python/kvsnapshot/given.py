"""What kv-score --from and kv-evict --rows read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Sequence

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def checked(scores: Sequence[npt.ArrayLike], rows: Sequence[int],
            where: str) -> list[npt.NDArray[np.float32]]:
    """The scores of a layer as [G] f32 [S]; rows: [G]. ValueError names the KV head and the row."""
    if len(scores) != len(rows):
        raise ValueError(f'{where}: scores of {len(scores)} KV heads, and there are {len(rows)}')
    heads = []
    for g, (given, n) in enumerate(zip(scores, rows)):
        head = np.asarray(given, np.float64)
        if head.shape != (n,):
            raise ValueError(f'{where} KV head {g}: scores of shape {head.shape} for {n} rows')
        # +inf: a row that is always kept
        too_large = np.isfinite(head) & (abs(head) > np.finfo('f4').max)
        bad = np.isnan(head) | (head == -np.inf) | too_large
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(f'{where} KV head {g} row {row}: {head[row]} is no score')
        heads.append(head.astype(np.float32))
    return heads


def save_scores(path: str | os.PathLike[str],
                scores: Sequence[Sequence[npt.NDArray[np.floating[Any]]]]) -> None:
    """Writes scores, [L][G] arrays [S], as a .npy file f32 [L][G][S]: S is the most rows that a KV
    head has, and NaN stands behind the rows of the others."""
    layers = [checked(layer, [len(head) for head in layer], f'layer {i}')
              for i, layer in enumerate(scores)]
    most = max(len(head) for layer in layers for head in layer)
    array = np.full((len(layers), len(layers[0]), most), np.nan, '<f4')
    for own, out in zip(layers, array):
        for head, line in zip(own, out):
            line[:len(head)] = head
    with open(path, 'wb') as file:
        np.save(file, array)


def save_rows(path: str | os.PathLike[str],
              positions: Sequence[Sequence[Iterable[int]]]) -> None:
    """Writes positions, [L][G] of the rows that stay, as kv-info --positions prints them."""
    with open(path, 'w') as file:
        for i, layer in enumerate(positions):
            for g, head in enumerate(layer):
                file.write(f'{i} {g}')
                for p in np.sort(np.fromiter(head, np.int64)):
                    file.write(f' {p}')
                file.write('\n')
