"""From scores to a table: means with 95 % intervals, and methods against one of them."""

import csv
import string

from intervals import by_fields, compare, read_graded, summarize
from task_records import TaskError

GROUP = ("model", "length", "task")
RUN = ("method", "rate")
SHARES = ("kept", "footprint", "memory", "peak", "read")
SECONDS = ("keep_seconds", "answer_seconds")
LIKELY = ("nll", "nll_low", "nll_high", "top1")
COLUMNS = (*GROUP, *RUN, "n", "score", "low", "high", *SHARES, "compute", *LIKELY, *SECONDS,
           "asked", "bytes")
OPTIONAL = (*LIKELY, "compute", "asked", "bytes")        # that a table need not have
EXCEEDING = "more rows than were asked for: some are kept in any case"


def ranked(values):
    """Value -> its place, in the order in which they came first."""
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def read_all(paths):
    """Rows of all files, in the order of the configuration. Ids are unique within a cell only."""
    rows = []
    for path in paths:
        for row in read_graded(path).values():
            row["length"] = "own" if "/own/" in path else row["length"]
            question = tuple(row[name] for name in ("model", "task", "length", "seed", "id"))
            rows.append({**row, "question": question})
    return rows


def groups(rows):
    """(model, length, task) and rows: each task, and all of them where there are several."""
    for fields, group in by_fields(rows, ("model", "length")):
        tasks = ranked(row["task"] for row in group)
        for task in tasks:
            yield {**fields, "task": task}, [row for row in group if row["task"] == task]
        if len(tasks) > 1:
            yield {**fields, "task": "all"}, group


def runs(rows):
    """(method, rate) -> rows"""
    found = {}
    for row in rows:
        found.setdefault((row["method"], row["rate"]), []).append(row)
    return found


def mean(rows, name):
    return sum(row[name] for row in rows) / len(rows)


def values(rows, name):
    """Of the rows that have one: questions that are only forced have no score."""
    return [row[name] for row in rows if row.get(name) is not None]


def score_of(run):
    """The columns of the score, None where there is none."""
    scores = values(run, "score")
    if not scores:
        return {"score": None, "low": None, "high": None}
    summary = summarize(scores)
    low, high = (summary.get(f"wilson_{end}", summary[end]) for end in ("low", "high"))
    return {"score": 100 * summary["mean"], "low": 100 * low, "high": 100 * high}


def likelihood_of(run):
    """The columns of the right answer's likelihood, None where it was not forced."""
    nll = values(run, "nll")
    if not nll:
        return dict.fromkeys(LIKELY)
    summary, top = summarize(nll), values(run, "top1")
    return {"nll": summary["mean"], "nll_low": summary["low"], "nll_high": summary["high"],
            "top1": 100 * sum(top) / len(top)}


def compute_of(run, full):
    """Operations until the answer begins in % of those of the full cache, question by question."""
    shares = [100 * row["keep_flops"] / full[row["question"]]
              for row in run if row.get("keep_flops") and full.get(row["question"])]
    return sum(shares) / len(shares) if shares else None


def asked_of(run):
    """The rows that were asked for in %, the mean over questions, None where that is not known."""
    rate = run[0]["rate"]
    if rate == "all":
        return 100.0
    if not rate.endswith("rows"):
        return 100 * float(rate)
    tokens = values(run, "tokens")
    budget = float(rate.removesuffix("rows"))
    return sum(100 * min(1, budget / n) for n in tokens) / len(tokens) if tokens else None


def bytes_of(run):
    """The bytes of the kept rows in %, None where that is not known (older answers)."""
    shares = values(run, "bytes")
    return sum(shares) / len(shares) if shares else None


def stored(row):
    """The bytes of the kept rows of a line of the table in %; less than `kept` where they are
    quantised."""
    return row["kept"] if row["bytes"] is None else row["bytes"]


def exceeds(row):
    """Whether a line of the table keeps more than a twentieth above what was asked for: a window,
    sinks or heads that are kept in any case. Methods that keep all rows and read some do not."""
    return row["asked"] is not None and row["read"] > stored(row) - 0.01 \
        and row["kept"] > 1.05 * row["asked"]


def table_rows(rows):
    full = {row["question"]: row.get("keep_flops") for row in rows if row["method"] == "full"}
    for fields, group in groups(rows):
        for (method, rate), run in runs(group).items():
            yield {**fields, "method": method, "rate": rate, "n": len(run), **score_of(run),
                   "compute": compute_of(run, full), **likelihood_of(run),
                   **{name: mean(run, name) for name in SHARES + SECONDS}, "asked": asked_of(run),
                   "bytes": bytes_of(run)}


def pair_rows(rows, reference, name="score"):
    """Each method against the reference at the same rate, or at its only one, over all tasks.

    Less is better for nll."""
    for fields, group in by_fields(rows, ("model", "length")):
        found = runs([row for row in group if row.get(name) is not None])
        own = [rate for method, rate in found if method == reference]
        for (method, rate), run in found.items():
            other = found.get((reference, rate if rate in own or len(own) > 1 else own[0]))
            if method == reference or other is None:
                continue
            theirs = {row["question"]: row[name] for row in other}
            pair = compare([row[name] for row in run], [theirs[row["question"]] for row in run])
            if name == "nll":
                pair["better"], pair["worse"] = pair["worse"], pair["better"]
            yield {**fields, "method": method, "rate": rate, **pair}


class Cell(string.Formatter):
    """A form that is - where its values are None."""

    def format_field(self, value, spec):
        return "-" if value is None else super().format_field(value, spec)


def markdown(rows, columns):
    """Rows as a table; columns are (heading, form)."""
    yield "| " + " | ".join(heading for heading, _ in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        cells = (Cell().format(form, **row) for _, form in columns)
        yield "| " + " | ".join("-" if cell == "---" else cell for cell in cells) + " |"


def tsv_field(value):
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def table_lines(table):
    """The table in Markdown. Columns that nobody asked for are left out."""
    counted = any(row["compute"] is not None for row in table)
    quantised = any(abs(stored(row) - row["kept"]) > 0.01 for row in table)
    forced = any(row["nll"] is not None for row in table)
    table = [{**row, "mark": " \\*" * exceeds(row)} for row in table]
    return markdown(table, (
        *((name, f"{{{name}}}") for name in (*GROUP, *RUN, "n")), ("score %", "{score:.1f}"),
        ("95 % interval", "{low:.0f}-{high:.0f}"),
        *((("nll", "{nll:.3f}"), ("95 % interval", "{nll_low:.3f}-{nll_high:.3f}"),
           ("top-1 %", "{top1:.1f}")) if forced else ()),
        ("kept %", "{kept:.1f}{mark}"), *([("bytes %", "{bytes:.1f}")] if quantised else ()),
        *((f"{name} %", f"{{{name}:.1f}}") for name in SHARES if name != "kept"),
        *([("compute %", "{compute:.1f}")] if counted else ()),
        ("keep s", "{keep_seconds:.2f}"), ("answer s", "{answer_seconds:.2f}")))


def pair_lines(rows, reference):
    """What methods differ by from the reference."""
    columns = (*((name, f"{{{name}}}") for name in ("model", "length", "method", "rate", "n")),
               ("difference", "{difference:+.3f}"),
               ("95 % interval", "{low:+.3f} to {high:+.3f}"), ("better", "{better}"),
               ("worse", "{worse}"), ("p", "{p:.2g}"))
    for name, what in (("score", ""), ("nll", ", nll of the right answer (less is better)")):
        pairs = list(pair_rows(rows, reference, name))
        if pairs:
            yield from ("", f"Against {reference}, question by question, all tasks{what}:", "",
                        *markdown(pairs, columns))


def write(paths, reference, tsv, md):
    """The files TSV and MD from graded files."""
    rows = read_all(paths)
    table = list(table_rows(rows))
    with open(tsv, "w", encoding="utf-8") as file:
        file.write("\t".join(COLUMNS) + "\n")
        for row in table:
            file.write("\t".join(tsv_field(row[name]) for name in COLUMNS) + "\n")
    builds = sorted({row["build"] for row in rows})
    marked = ["", f"\\* {EXCEEDING}."] if any(exceeds(row) for row in table) else []
    lines = [*table_lines(table), *marked, *pair_lines(rows, reference),
        "", "Intervals of scores that are 0 or 1 are Wilson's, others and those of differences the "
        "percentile bootstrap; p is the sign test. Seconds of `keep` are those of its "
        "programs, also of a prefill that was there already.",
        f"Programs: {', '.join(builds)}."
        + (" **They are not of one build.**" if builds[1:] else "")]
    with open(md, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def number(where, name, text):
    """A field of the table, None where it is empty and may be so."""
    try:
        value = float(text) if text else None
    except (TypeError, ValueError):
        value = float("nan")
    if value is None and name in SHARES or value is not None and value - value != 0:
        raise TaskError(f"{where}: {name}: {text or 'nothing'} is not a number")
    return value


def read_table(path):
    """The rows of a file TSV, with numbers where there are some."""
    texts = (*GROUP, *RUN)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            missing = [name for name in COLUMNS if name not in OPTIONAL
                       and name not in (lines.fieldnames or ())]
            if missing:
                raise TaskError(f"{path}:1: there is no column {missing[0]}")
            rows = [{name: line[name] if name in texts
                     else number(f"{path}:{lines.line_num}", name, line.get(name))
                     for name in COLUMNS} for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: {getattr(error, 'strerror', 'not UTF-8')}") from None
    if not rows:
        raise TaskError(f"{path}: there is no row in it")
    return rows
