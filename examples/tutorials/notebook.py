#!/usr/bin/env python3
"""own-method.md as a notebook: text as it is, commands as cells of %%bash.

    notebook.py              writes own-method.ipynb, executed
    notebook.py --check      whether the notebook has the text and the commands of the page

To execute it takes nbclient, nbformat, ipykernel and what the page needs (NumPy, xxhash); K is the
folder of kvpipe, as in the page. Times, versions and names of machines are not in the notebook.
"""

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAGE, NOTEBOOK = HERE / "own-method.md", HERE / "own-method.ipynb"
# instead of the block that sets variables of a shell, which cells do not share
BEGIN = """import os

K = os.environ["K"]      # the folder of kvpipe
os.environ["PYTHONPATH"] = K + "/python\""""
PICTURE = """from IPython.display import SVG

SVG("plot.svg")"""


def cells(text):
    """Pairs of the kind of a cell and its source."""
    found = []
    for i, part in enumerate(re.split(r"```console\n(.*?)```\n", text, flags=re.DOTALL)):
        if i % 2 == 0:
            source = re.sub(r"\n*\(\[The same as a notebook\].*\)\n", "\n", part).strip()
            found.append(("markdown", source))
        elif ":?" in part:
            found.append(("code", BEGIN))
        elif "plot.svg;" in part:
            found.append(("code", PICTURE))
        else:
            lines = [line[2:] for line in part.splitlines() if line[:1] in "$>"]
            found.append(("code", "\n".join(["%%bash", *lines])))
    return found


def execute(found):
    import nbclient
    import nbformat.v4

    make = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook(
        cells=[make[kind](source, id=f"cell-{i}") for i, (kind, source) in enumerate(found)],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3",
                                 "language": "python"}})
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, kernel_name="python3", coalesce_streams=True,
                                resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
    return notebook


def main():
    p = argparse.ArgumentParser(prog="notebook.py")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    found = cells(PAGE.read_text())
    if args.check:
        there = [(cell["cell_type"], "".join(cell["source"]))
                 for cell in json.loads(NOTEBOOK.read_text())["cells"]]
        sys.exit(None if there == found else "own-method.ipynb is not of own-method.md: make it "
                 "again with notebook.py")
    if "K" not in os.environ:
        sys.exit("K is not set: the folder of kvpipe")
    NOTEBOOK.write_text(json.dumps(execute(found), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
