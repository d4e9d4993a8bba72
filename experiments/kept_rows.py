"""Which rows of a snapshot are left, for pictures. One layer is in memory at a time."""

import os
import sys

from task_records import TaskError

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

RUN, DAMAGED, UNSUPPORTED = 1, 3, 5     # kvpipe(7), EXIT STATUS


def need_package(name):
    """Imports a package that a picture cannot be made without."""
    try:
        return __import__(name)
    except ImportError as error:
        raise TaskError(f"the Python package {name} is needed ({error})", RUN) from None


class Kept:
    """What is left of one text. tokens: [T] ids; rows: how many are left; layers: what fold() gave
    for each; heads: KV heads of a layer."""

    def __init__(self, path):
        self.path, self.layers = path, []
        self.tokens = self.heads = self.rows = self.provenance = None

    @property
    def share(self):
        return self.rows / (len(self.tokens) * len(self.layers) * self.heads)


def read_kept(path, fold):
    """Reads a snapshot. fold(positions, T): what is to be remembered of a layer, from its
    [G] u32 [S] and the number of tokens."""
    need_package("numpy")
    try:
        import kvsnapshot
        from kvsnapshot import container, content
    except ImportError as error:
        raise TaskError(f"{error} (kvsnapshot)", RUN) from None
    try:
        with open(path, "rb") as file:
            snapshot = content.Snapshot()
            kept = gather(path, snapshot, container.sections(file, snapshot), fold)
    except kvsnapshot.Bad as error:
        raise TaskError(f"{path}: {error}", error.status) from None
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}", RUN) from None
    kept.tokens = snapshot.tokens
    kept.heads, kept.provenance = snapshot.model["kv_heads"], snapshot.provenance
    if kept.rows == len(kept.tokens) * len(kept.layers) * kept.heads:
        raise TaskError(f"{path}: no row is missing: there is nothing to see before kv-evict")
    return kept


def gather(path, snapshot, sections, fold):
    kept = Kept(path)
    kept.rows = 0
    for section in sections:
        if section is None or section.type != "VALS":
            continue
        check_positions(path, snapshot)
        layer = snapshot.layers[section.layer]
        kept.rows += sum(layer.rows)
        kept.layers.append(fold(layer.positions, len(snapshot.tokens)))
        layer.keys = layer.values = layer.positions = None      # the next layer needs the room
    if any("compact" == line["options"].get("positions") for line in snapshot.provenance
           if isinstance(line.get("options"), dict)):
        refuse_positions(path)
    return kept


def check_positions(path, snapshot):
    if snapshot.head["next_position"] != len(snapshot.tokens):
        refuse_positions(path)


def refuse_positions(path):
    raise TaskError(f"{path}: its positions are not those of the text (kv-evict --positions "
                    "compact, or GemFilter): it is not known which tokens its rows are",
                    UNSUPPORTED)


def edges(tokens, bins):
    """[bins + 1] where bins of positions begin, and the end; none is empty."""
    bins = min(tokens, bins)
    return [tokens * i // bins for i in range(bins + 1)]


def labels(paths):
    """Names of files without folders and .kv, where these are different."""
    short = [os.path.basename(path).removesuffix(".kv") for path in paths]
    return short if len(set(short)) == len(short) else list(paths)
