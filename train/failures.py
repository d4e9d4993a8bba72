"""How the programs of train/ fail: with a message, and a status that says whose fault it is."""

import sys


class Refused(Exception):
    """What was asked for cannot be done: bad options, another model's file. Exit status 2."""


class BrokenFile(Exception):
    """A file is not what it should be, or cannot be read or written. Exit status 1."""


def exit_status(program, work, *arguments):
    """Calls work(*arguments), which returns a status or None; a failure becomes a message."""
    try:
        return work(*arguments) or 0
    except (Refused, BrokenFile, OSError) as problem:
        print(f"{program}: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, Refused) else 1
