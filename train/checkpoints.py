"""Checkpoints of a run that --resume goes on from, and signals that end it behind a step."""

import signal

import torch

from failures import BrokenFile

CHECKPOINT = "checkpoint.pt"


class Signals:
    """Remembers SIGINT or SIGTERM, so that the step is ended first."""

    def __init__(self):
        self.number = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.note)

    def note(self, number, _frame):
        self.number = number

    def __call__(self):
        return self.number


def load_checkpoint(path, device=None):
    """device: where its tensors come, in place of where they were"""
    try:
        return torch.load(path, device, weights_only=True)
    except FileNotFoundError as problem:
        raise BrokenFile(f"{path}: there is no checkpoint") from problem
    except Exception as problem:        # whatever a broken archive makes torch say
        raise BrokenFile(f"{path}: no checkpoint: {str(problem).splitlines()[0]}") from problem
