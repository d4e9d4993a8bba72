"""From scores to a table: means with 95 % intervals, and methods against one of them."""

from intervals import by_fields, compare, read_graded, summarize

GROUP = ("model", "length", "task")
RUN = ("method", "rate")
SHARES = ("kept", "footprint", "memory", "peak", "read")
SECONDS = ("keep_seconds", "answer_seconds")
COLUMNS = (*GROUP, *RUN, "n", "score", "low", "high", *SHARES, *SECONDS)


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


def table_rows(rows):
    for fields, group in groups(rows):
        for (method, rate), run in runs(group).items():
            summary = summarize([row["score"] for row in run])
            low, high = (summary.get(f"wilson_{end}", summary[end]) for end in ("low", "high"))
            yield {**fields, "method": method, "rate": rate, "n": summary["n"],
                   "score": 100 * summary["mean"], "low": 100 * low, "high": 100 * high,
                   **{name: mean(run, name) for name in SHARES + SECONDS}}


def pair_rows(rows, reference):
    """Each method against the reference at the same rate, or at its only one, over all tasks."""
    for fields, group in by_fields(rows, ("model", "length")):
        found = runs(group)
        own = [rate for method, rate in found if method == reference]
        for (method, rate), run in found.items():
            other = found.get((reference, rate if rate in own or len(own) > 1 else own[0]))
            if method == reference or other is None:
                continue
            theirs = {row["question"]: row["score"] for row in other}
            yield {**fields, "method": method, "rate": rate,
                   **compare([row["score"] for row in run],
                             [theirs[row["question"]] for row in run])}


def markdown(rows, columns):
    """Rows as a table; columns are (heading, format)."""
    yield "| " + " | ".join(heading for heading, _ in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(form.format(**row) for _, form in columns) + " |"


def write(paths, reference, tsv, md):
    """The files TSV and MD from graded files."""
    rows = read_all(paths)
    table, pairs = list(table_rows(rows)), list(pair_rows(rows, reference))
    with open(tsv, "w", encoding="utf-8") as file:
        file.write("\t".join(COLUMNS) + "\n")
        for row in table:
            file.write("\t".join(f"{value:.4g}" if isinstance(value, float) else str(value)
                                 for value in map(row.get, COLUMNS)) + "\n")
    builds = sorted({row["build"] for row in rows})
    lines = [*markdown(table, (
        *((name, f"{{{name}}}") for name in (*GROUP, *RUN, "n")), ("score %", "{score:.1f}"),
        ("95 % interval", "{low:.0f}-{high:.0f}"),
        *((f"{name} %", f"{{{name}:.1f}}") for name in SHARES),
        ("keep s", "{keep_seconds:.2f}"), ("answer s", "{answer_seconds:.2f}"))),
        "", f"Against {reference}, question by question, all tasks:", "",
        *markdown(pairs, (
            *((name, f"{{{name}}}") for name in ("model", "length", "method", "rate", "n")),
            ("difference", "{difference:+.3f}"), ("95 % interval", "{low:+.3f} to {high:+.3f}"),
            ("better", "{better}"), ("worse", "{worse}"), ("p", "{p:.2g}"))),
        "", "Intervals of scores that are 0 or 1 are Wilson's, others and those of differences the "
        "percentile bootstrap; p is the sign test. Seconds of `keep` do not count a prefill that "
        "was there already.",
        f"Programs: {', '.join(builds)}."
        + (" **They are not of one build.**" if builds[1:] else "")]
    with open(md, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
