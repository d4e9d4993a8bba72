"""The sections of a snapshot, for tests that write it anew with a difference. With the independent
reader and writer."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "format"), os.path.join(ROOT, "formats", "vectors")]
import kvread  # noqa: E402
import kvwrite  # noqa: E402


def read(path):
    """Each section with its content, but for those that the writer makes itself."""
    with open(path, "rb") as file:
        source = kvread.Source(file)
        kvread.read_preamble(source, kvread.Snapshot())
        while True:
            section = kvread.read_header(source)
            content = bytes(kvread.read_content(source, section))
            if section.type == "ENDS":
                return
            if section.type not in ("pADD", "iNDX"):
                yield section, content


def write(path, sections):
    """sections: each with its content, as read() has them."""
    stream = kvwrite.stream(
        [kvwrite.Section(s.type, content, s.layer, s.element) for s, content in sections])
    with open(path, "wb") as file:
        file.write(stream)
