"""kvsnapshot - KV snapshots as NumPy arrays; scores and rows for kv-score(1) and kv-evict(1)

	import kvsnapshot
	snapshot = kvsnapshot.read('full.kv')
	snapshot.layers[3].keys[0]              f32 [rows][head width] of KV head 0

	kvsnapshot.save_scores('x.npy', scores)    for kv-score --from
	kvsnapshot.save_rows('x.rows', positions)  for kv-evict --rows
	kvsnapshot.stage(score, 'mine')            a program that is a stage of a pipe, as kv-score is

kvpipe(7), "A method in another language", has an example. Needs NumPy and nothing else. It reads
and checks every rule of kv-snapshot(5) without libkvfile."""

from .arrays import Layer, Snapshot, read
from .content import Bad, Unsupported
from .given import save_rows, save_scores
from .stage import score_stream, stage

__all__ = ['Bad', 'Layer', 'Snapshot', 'Unsupported', 'read', 'save_rows', 'save_scores',
           'score_stream', 'stage']
__version__ = '0.1.0'
