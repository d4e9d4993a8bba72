"""How the programs of train/ fail: with a message, and a status that says whose fault it is."""


class Refused(Exception):
    """What was asked for cannot be done: bad options, another model's file. Exit status 2."""


class BrokenFile(Exception):
    """A file is not what it should be, or cannot be read or written. Exit status 1."""
