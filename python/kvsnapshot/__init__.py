"""kvsnapshot - KV snapshots as NumPy arrays; scores and rows for kv-score(1) and kv-evict(1)

	import kvsnapshot
	snapshot = kvsnapshot.read('full.kv')
	snapshot.layers[3].keys[0]              f32 [rows][head width] of KV head 0
	snapshot.layers[3].key_type             how they are stored: 'bf16', 'q8_0-hadamard', ...
	snapshot.layers[3].stored_keys[0]       u1 [rows][bytes of a row], as they are
	snapshot.layers[3].query_stats.mean     f64 [query heads][head width], before rotation

	kvsnapshot.save_scores('x.npy', scores)    for kv-score --from
	kvsnapshot.save_rows('x.rows', positions)  for kv-evict --rows
	kvsnapshot.stage(score, 'mine')            a program for a pipe, as kv-score is
	kvsnapshot.row_stage(keep, label='mine')   another, which drops rows
	kvsnapshot.row_stage(keys='q8_0')          and one that quantises keys
	kvsnapshot.rowtypes                        numbers() of stored rows, and stored() of numbers
	kvsnapshot.kivi                            the same of blocks of kivi2 and kivi4
	snapshot.layers[3].key_store               the same of a KV head, full rows with the others

kvpipe(7), "A method in another language", has an example. Needs NumPy and nothing else. It reads
and checks every rule of kv-snapshot(5) without libkvfile."""

from __future__ import annotations

import importlib

from . import container, kivi, rowstore, rowtypes  # noqa: F401
from .content import Bad, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .arrays import Layer, Snapshot, read
    from .given import save_rows, save_scores
    from .pipe import score_stream, stage
    from .rowstage import change_rows, row_stage

__all__ = ['Bad', 'Layer', 'Snapshot', 'Unsupported', 'change_rows', 'read', 'row_stage',
           'save_rows', 'save_scores', 'score_stream', 'stage']
__version__ = '0.2.0'

# Names of the modules that need NumPy, which takes longer to load than a small snapshot to be read
# and checked: it is loaded when one of them is first asked for.
_WITH_NUMPY = {'arrays': ('Layer', 'Snapshot', 'read'), 'given': ('save_rows', 'save_scores'),
               'pipe': ('score_stream', 'stage'), 'rowstage': ('change_rows', 'row_stage')}


if not TYPE_CHECKING:       # a checker has them above
    def __getattr__(name: str) -> object:
        for module, names in _WITH_NUMPY.items():
            if name in names:
                return getattr(importlib.import_module('.' + module, __name__), name)
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
