"""A stage of a pipe that scores rows: a snapshot comes in, and goes out again with other scores.

One layer is in memory at a time. All but the scores and the line of provenance is copied byte by
byte, after it has been checked."""

from __future__ import annotations

import copy
import json
import os
import struct
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Sequence

import numpy as np

from . import container, content
from .arrays import Layer
from .content import (END_MAGIC, LABEL, MIB, NONE, Bad, Snapshot, counted, index_of, logical_digest,
                      stream_digest)
from .hashing import xxh3
from .given import checked

if TYPE_CHECKING:
    import numpy.typing as npt
    Score = Callable[[Layer], Sequence[npt.ArrayLike]]

ALIGNED_FROM = 1 << 16          # bytes of content from which on a payload begins on a page (3.4)


def filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def make_section(kind: str, layer: int, element: int,
                 content: bytes) -> tuple[container.Section, bytes]:
    """A section that is not compressed (3.2, 3.3), and its bytes."""
    blocks = [content[i:i + MIB] for i in range(0, len(content), MIB)]
    table = b''.join(struct.pack('<IB3xQQ', len(b), 0, xxh3(b), xxh3(b)) for b in blocks)
    front = struct.pack('<4s4sIB3xQQQ16x', container.MARK, kind.encode(), layer, element,
                        len(content), len(content), xxh3(table))
    section = container.Section(0, front + struct.pack('<Q', xxh3(front)))
    section.blocks = [container.Block(len(b), 0, xxh3(b), xxh3(b)) for b in blocks]
    return section, front + struct.pack('<Q', section.hash) + filled(table) + filled(content)


class Writer:
    """Writes a snapshot section by section."""

    def __init__(self, file: BinaryIO, preamble: bytes) -> None:
        self.file, self.size = file, 0
        self.sections: list[container.Section] = []
        self.write(preamble)

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.size += len(data)

    def put(self, section: container.Section, data: bytes) -> None:
        """data: all bytes of the section, which need not know where they stand."""
        if section.raw_size >= ALIGNED_FROM and section.type != 'HEAD':
            before = 64 + 24 * len(section.blocks)
            padding = make_section('pADD', NONE, 1, b'')[1]
            while (self.size + before + -before % 64) % 4096:
                self.write(padding)
        section = copy.copy(section)        # its reader needs to know where it stood
        section.offset = self.size
        self.sections.append(section)
        self.write(data)

    def end(self) -> None:
        count = len(counted(self.sections))
        self.put(*make_section('iNDX', NONE, 1, index_of(self.sections)))
        at_index = self.sections[-1].offset
        end = struct.pack('<8sQQII', END_MAGIC, self.size + 192, at_index, count, 0)
        self.put(*make_section('ENDS', NONE, 1, end + stream_digest(self.sections) +
                               logical_digest(self.sections)))
        self.file.flush()


def label_bytes(label: str) -> bytes:
    data = label.encode()
    if not 0 < len(data) < LABEL or b'\0' in data:
        raise ValueError(f'label {label!r}: want 1 to {LABEL - 1} bytes')
    return data.ljust(LABEL, b'\0')


def provenance_line(options: dict[str, Any]) -> bytes:
    from . import __version__
    line = {'options': options, 'tool': 'kvsnapshot', 'version': __version__}
    return (json.dumps(line, sort_keys=True, separators=(',', ':'), ensure_ascii=False) +
            '\n').encode()


def release(snapshot: Snapshot, index: int) -> None:
    """Forgets the rows of a layer. Sections that nobody knows may still follow them."""
    snapshot.layers[index] = content.Layer([], [], True)


def write_layer(writer: Writer, waiting: list[tuple[container.Section, bytes]], snapshot: Snapshot,
                index: int, score: Score, label: str) -> None:
    """The sections of a layer up to VALS, with new scores before the keys (3.5)."""
    layer = Layer(snapshot, index)
    heads = checked(score(layer), [len(p) for p in layer.positions], f'layer {index}')
    for section, data in waiting:
        if section.type == 'KEYS':
            scored = label_bytes(label) + np.concatenate(heads).astype('<f4').tobytes()
            writer.put(*make_section('sCOR', index, 4, scored))
        writer.put(section, data)
    waiting.clear()
    release(snapshot, index)


class Signature:
    """A line of provenance, added to the section, or in one of its own before the end."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.line, self.written = provenance_line(options), False

    def takes(self, writer: Writer, section: container.Section, snapshot: Snapshot) -> bool:
        """Writes pROv, or ENDS with what is before it; False: it is another section."""
        if section.type == 'pROv':
            writer.put(*make_section('pROv', NONE, 1, bytes(snapshot.provenance_text) + self.line))
            self.written = True
            return True
        if section.type != 'ENDS':
            return False
        if not self.written:
            writer.put(*make_section('pROv', NONE, 1, self.line))
        writer.end()
        return True


def score_stream(score: Score, source: BinaryIO, target: BinaryIO,
                 label: str = 'external') -> None:
    """Copies a snapshot from one binary file object to another with the scores that score(layer)
    returns for each layer (a Layer): for each KV head an array [S]; greater is kept first, +inf
    always. Raises Bad for what is read, ValueError for what score() returns; then the output has no
    end."""
    snapshot = Snapshot()
    tape: list[bytes] = []
    waiting: list[tuple[container.Section, bytes]] = []
    writer: Any = None              # from the preamble on
    label_bytes(label)
    signature = Signature({'method': label})
    for section in container.sections(source, snapshot, tape):
        if section is None:
            writer = Writer(target, b''.join(tape))
        elif section.type in ('pADD', 'iNDX', 'sCOR'):
            pass                    # made anew
        elif signature.takes(writer, section, snapshot):
            pass
        elif section.type == 'POSN' or waiting:
            waiting.append((section, b''.join(tape)))
            if section.type == 'VALS':
                write_layer(writer, waiting, snapshot, section.layer, score, label)
        else:
            writer.put(section, b''.join(tape))


def stage(score: Score, label: str = 'external') -> None:
    """The whole of a program that is a stage of a pipe: score_stream() from standard input to
    standard output, and the messages and exit codes of kvpipe(7)."""
    run_stage(lambda source, target: score_stream(score, source, target, label))


def run_stage(work: Callable[[BinaryIO, BinaryIO], list[str] | None]) -> None:
    """work(source, target), of standard input and output. What it returns, types of sections, it
    has dropped."""
    name = os.path.basename(sys.argv[0])
    if sys.stdin.isatty() or sys.stdout.isatty():
        sys.exit(f'{name}: a snapshot comes through a pipe, and goes into one')
    try:
        dropped = work(sys.stdin.buffer, sys.stdout.buffer)
        if dropped:
            print(f'{name}: dropped {", ".join(dropped)}: not of these rows', file=sys.stderr)
        return
    except Bad as error:
        status, text = error.status, f'stdin: {error}'
    except (OSError, ValueError) as failure:
        status, text = 1, str(failure)
    print(f'{name}: {text}', file=sys.stderr)
    os._exit(status)        # what is buffered would be written, or fail, at the end
