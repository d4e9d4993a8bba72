"""kvpipe - where pip has put the programs kv-*, and what they come with

	kvpipe.program('kv-score')      the path of a program
	kvpipe.share()                  the folder with the demo model, prompts and scripts
	python -m kvpipe score ...      runs kv-score, as the program kvpipe does
	python -m kvpipe.demo           a prompt, and an answer from a tenth of its cache

The Python package for snapshots is kvsnapshot."""

import importlib.metadata
import os
from pathlib import Path

__all__ = ['library', 'program', 'share']
__version__ = importlib.metadata.version('kvpipe')


def _installed(*end: str) -> Path:
    """The file of the distribution whose path ends in these names."""
    for file in importlib.metadata.files('kvpipe') or ():
        path = Path(os.path.normpath(str(file.locate()))) if file.name == end[-1] else Path()
        if path.parts[-len(end):] == end and path.exists():
            return path
    # pip install --target leaves other paths in its record
    path = Path(__file__).parents[1].joinpath(*end)
    if path.exists():
        return path
    raise FileNotFoundError(f'{"/".join(end)}: not among the files of kvpipe')


def program(name: str) -> Path:
    """The path of the program kvpipe, or of one of kv-*."""
    return _installed('bin', name)


def library(name: str) -> Path:
    """The path of a library that the programs load: 'libxxhash.so.0'."""
    return _installed('libexec', 'kvpipe', name)


def share() -> Path:
    """The folder that has examples/, experiments/ and train/."""
    return _installed('share', 'kvpipe', 'deps.sh').parent
