"""Means of measures over questions with their intervals, as .tsv and .md. The statistics are those
of intervals.py."""

from intervals import compare, summarize
from picture import write_whole
from task_records import TaskError

FORMS = (".md", ".tsv")
COLUMNS = ("n", "mean", "low", "high", "difference", "difference_low", "difference_high", "p")


def check_table(path):
    if not path.endswith(FORMS):
        raise TaskError(f"{path}: the name of a table ends in .md or .tsv")


def with_all(lines):
    """The same, and once more as a task `all` where there are several."""
    tasks = list(dict.fromkeys(line["task"] for line in lines))
    return lines + [{**line, "task": "all"} for line in lines if len(tasks) > 1]


def summaries(rows, fields, reference=None):
    """(values of the fields) -> {measure: summary}, in the order in which they come. rows: dicts
    with the fields, `question` and `measures`. `against` is compare() of intervals.py with the row
    whose last field is the reference, over the same questions; None where there are none."""
    groups = {}
    for row in rows:
        values = groups.setdefault(tuple(row[field] for field in fields), {})
        for measure, value in row["measures"].items():
            if value is not None:
                values.setdefault(measure, {})[row["question"]] = value
    found = {}
    for key, measures in groups.items():
        other = groups.get((*key[:-1], reference), {})
        found[key] = {measure: {**summarize(list(values.values())),
                                "against": differences(values, other.get(measure, {}))}
                      for measure, values in measures.items()}
    return found


def differences(values, other):
    both = [question for question in values if question in other]
    if not both or values == other:
        return None
    return compare([values[question] for question in both], [other[question] for question in both])


def tsv_lines(found, fields):
    yield (*fields, "measure", *COLUMNS)
    for key, measures in found.items():
        for measure, one in measures.items():
            against = one["against"] or {}
            numbers = [one["mean"], one["low"], one["high"],
                       *(against.get(name) for name in ("difference", "low", "high", "p"))]
            yield (*key, measure, one["n"],
                   *("" if number is None else f"{number:.6g}" for number in numbers))


def cell(summary, percent):
    """A mean with its interval; `-` where no question has it."""
    if summary is None:
        return "-"
    scale, digits = (100, 1) if percent else (1, 2)
    mean, low, high = (f"{scale * summary[name]:.{digits}f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]" if summary["n"] > 1 else mean


def md_table(heads, rows):
    yield "| " + " | ".join(heads) + " |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def write_lines(path, lines):
    data = ("\n".join(lines).rstrip("\n") + "\n").encode("utf-8", "surrogateescape")
    write_whole(path, lambda file: file.write(data))


def write_tables(paths, md, found, fields):
    """Each file of --table: the lines of md() where its name ends in .md, else all measures."""
    for path in paths:
        write_lines(path, md() if path.endswith(".md") else
                    ("\t".join(map(str, line)) for line in tsv_lines(found, fields)))


def write_or_print_tables(paths, md, found, fields):
    """As write_tables(); without a file, prints the lines of md()."""
    write_tables(paths, md, found, fields)
    if not paths:
        print("\n".join(md()))
