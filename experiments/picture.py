"""What pictures share: matplotlib without a screen, and files that appear when complete."""

import os
import tempfile

from kept_rows import RUN, need_package
from task_records import TaskError

FORMS = (".svg", ".png", ".pdf")


def check_name(path, others=()):
    """The form of a picture is that of its name."""
    form = os.path.splitext(path)[1].lower()
    if form not in (*FORMS, *others):
        raise TaskError(f"{path}: the name of a picture ends in {', '.join((*FORMS, *others))}")
    return form


def load_pyplot():
    """matplotlib.pyplot that draws into files, the same bytes each time."""
    need_package("matplotlib")
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "kvpipe"
    matplotlib.rcParams["text.parse_math"] = False      # file names may have dollars
    from matplotlib import pyplot
    return pyplot


def write_whole(path, write):
    """write(file) fills a temporary file, which then gets the name."""
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=".picture-", dir=os.path.dirname(path) or ".")
        with os.fdopen(handle, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}", RUN) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def save(figure, path):
    form = check_name(path)[1:]
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    write_whole(path, lambda file: figure.savefig(file, format=form, dpi=130, metadata=undated))
