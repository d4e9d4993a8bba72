"""The sections of a snapshot, for tests that write it anew with a difference. With the independent
reader and writer."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "format"), str(ROOT / "formats" / "vectors")]
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
    pathlib.Path(path).write_bytes(kvwrite.stream(
        [kvwrite.Section(s.type, content, s.layer, s.element) for s, content in sections]))
