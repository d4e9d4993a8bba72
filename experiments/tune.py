#!/usr/bin/env python3
"""From a limit to a pipeline: the one whose text is nearest to the full cache's.

    experiments/tune.py -m MODEL --limit bytes=10% --runs runs.jsonl --table tuned.md PROMPTS.jsonl

The full cache goes on behind each prompt, greedily; each pipeline is forced through the same text,
and the mean divergence KL(full || pipeline) of its tokens is what counts. No answer has to be
right, so any prompts will do. Successive halving (Jamieson and Talwalkar 2016): all pipelines run
on the first prompts, the better half of them on twice as many, until few have run on all.
tuning.md says what is tried, and what it found for SmolLM2.

bytes: those that are held when the text begins, read: those that a step reads, footprint and peak:
as kv-footprint measures them; flops: operations that the programs have counted (REPORTS in
kvpipe(7)), seconds: their own; all as a share of the full cache's. The best pipeline is printed as
a command. Exit status 1: none keeps to the limits; the nearest one is printed.
"""

import argparse
import os
import shlex
import statistics
import sys

from answer_pipes import HERE, Pipes, add_arguments, measure, questions
from measure_table import cell, check_table, md_table, summaries, write_or_print_tables
from picture import check_name, load_pyplot, save
from score_agreement import method_settings
from task_prompts import read_number
from task_records import NAME, TaskError, run
from tune_space import Candidate, space

sys.path.append(os.path.join(HERE, "..", "examples"))

from report import own_seconds, total      # noqa: E402

FIELDS = ("task", "pipeline")
WORK = ("flops", "seconds")     # measured where one of them is a limit
LIMITS = ("bytes", "read", "footprint", "peak", *WORK)
MEASURING = ("kv-footprint", "kv-info")     # programs that are no part of a pipeline
KEPT = 4        # pipelines that run on all prompts, at least
# ask SNAPSHOT: the question comes behind it, if the pipelines do not see it
ASK = """ask() {
	[ -z "$QUESTION" ] || {
		kv-prefill -q -m "$model" --ids -r "$1" -o "$work/asked.kv" "$QUESTION"
		mv "$work/asked.kv" "$1"
	}
}
# worked NAME: what the programs have reported since the last time, as a list
worked() {
	sed '1s/^/[/; $!s/$/,/; $s/$/]/' "$work/report.jsonl" >"$FOUND/$1.work"
	: >"$work/report.jsonl"
}"""


def limit(text):
    name, _, value = text.partition("=")
    share = float(value[:-1]) / 100 if value.endswith("%") else float(value)
    if name not in LIMITS or not 0 < share <= (1 if name in LIMITS[:2] else 1000):
        raise ValueError
    return name, share


def shell_text(candidates, names, tokens, working):
    """What is run for a prompt. working: what programs report is kept."""
    report = 'KV_REPORT="$work/report.jsonl"; export KV_REPORT' if working else "unset KV_REPORT"
    yield ASK
    yield report
    yield 'shared prefill >"$work/full.kv"'
    yield 'kv-info --json "$work/full.kv" >"$FOUND"/full'
    yield 'ask "$work/full.kv"'
    yield 'KV_REPORT= kv-decode -q -m "$model" --ids --ignore-eos ' \
          f'-n {tokens} "$work/full.kv" >"$work/ids"'
    yield 'kv-decode -q -m "$model" --ids --json --force "$work/ids" --logits "$work/full.npy" ' \
          '"$work/full.kv" >/dev/null'
    if working:
        yield "worked full"
    for name in names:
        one, key = candidates[name], shlex.quote(name.replace("/", "@"))
        prefill, filters = one.filled(model='"$model"', adapter='"$adapter"', gate='"$gate"')
        found = f'"$FOUND"/{key}'
        yield f'{" | ".join([f"shared prefill {prefill}".rstrip(), *filters])} >"$work/kept.kv"'
        yield f'kv-info --json "$work/kept.kv" >{found}.info'
        yield f'kv-footprint -q --json "$work/kept.kv" >{found}.footprint'
        yield 'ask "$work/kept.kv"'
        retrieve = ""
        if one.retrieve:
            yield f'budget=$(wc -l <"$prompt" | awk \'{{ n = $1; b = {one.budget}; ' \
                  'print b < 1 ? 1 : b }\')'
            words = one.retrieve.format(budget='$budget')
            retrieve = f'--retrieve "{words}" --stats {found}.stats'
        yield f'kv-decode -q -m "$model" --ids --json --force "$work/ids" --against ' \
              f'"$work/full.npy" {retrieve} "$work/kept.kv" >{found}.forced'
        if working:
            yield f"worked {key}"


def work_of(records):
    """What the programs of a pipeline have done: operations, and seconds without those in which
    they waited for each other."""
    records = [one for one in records if one["program"] not in MEASURING]
    return {"flops": sum(total(one, "flops") for one in records),
            "seconds": sum(own_seconds(one) for one in records)}


def read_found(found, name):
    key = name.replace("/", "@")
    forced, info, footprint = (found[f"{key}.{end}"] for end in ("forced", "info", "footprint"))
    held = info["kv_bytes"] / found["full"]["kv_bytes"]
    stats = found.get(f"{key}.stats")
    work = {}
    if f"{key}.work" in found:
        whole = work_of(found["full.work"])
        work = {what: value / whole[what] for what, value in work_of(found[f"{key}.work"]).items()}
    if stats:
        work["budget"] = stats["budget"]
    return {"kl": forced["kl"], "agreement": forced["agreement"], "bytes": held,
            "read": stats["all"]["share"] * held if stats else held,
            "footprint": footprint["footprint"], "peak": footprint["peak"], **work}


def mean(lines, name, measure_name):
    """Of a pipeline over prompts; of seconds the median, since other work of the machine is in
    some of them."""
    values = [line["all"][measure_name] for line in lines if line["name"] == name]
    return statistics.median(values) if measure_name == "seconds" else sum(values) / len(values)


def over(lines, name, limits):
    """By how much a pipeline is over its limits: the greatest ratio; at most 1: it keeps to them.
    Rows and blocks are rounded, so a hundredth is allowed."""
    return max(mean(lines, name, what) / (share * 1.01) for what, share in limits)


def halve(options, candidates, measure_prompts):
    """The pipelines that ran on all prompts, best first; none if none keeps to the limits."""
    names, count = list(candidates), options.first
    total = len(list(questions(options)))
    while True:
        count = min(count, total)
        options.count = count
        lines = measure_prompts(names)
        fits = [name for name in names if over(lines, name, options.limit) <= 1]
        order = sorted(fits, key=lambda name: mean(lines, name, "kl"))
        told = f"{len(names)} pipelines on {count} prompts"
        if not order:
            print(f"tune.py: {told}: none keeps to the limits", file=sys.stderr)
            return []
        print(f"tune.py: {told}: {len(names) - len(fits)} beyond the limits, least KL "
              f"{mean(lines, order[0], 'kl'):.4f}: {order[0]}", file=sys.stderr)
        if count == total:
            return order
        names = order[:max(KEPT, (len(order) + 1) // 2)]
        count *= 2


def command_of(one, options, lines):
    """A pipeline as it is typed; a budget of rows is the mean over prompts."""
    words = {"model": shlex.quote(options.model), "adapter": shlex.quote(options.adapter or ""),
             "gate": shlex.quote(options.gate or "")}
    prefill, filters = one.filled(**words)
    retrieve = ""
    if one.retrieve:
        budget = round(mean(lines, one.name, "budget"))
        retrieve = f" --retrieve '{one.retrieve.format(budget=budget)}'"
    ask = [f"kv-prefill -m {words['model']} -r - QUESTION"] * (options.question == "after")
    parts = [f"kv-prefill -m {words['model']} {prefill}".rstrip() + " PROMPT", *filters, *ask,
             f"kv-decode -m {words['model']}{retrieve}"]
    return " | ".join(parts).replace(" -q ", " ")


def pareto(found):
    """The keys on the Pareto line: no other has less KL for as small a footprint."""
    best, front = float("inf"), []
    for key, of in sorted(found.items(), key=lambda item: (item[1]["footprint"]["mean"],
                                                           item[1]["kl"]["mean"])):
        if of["kl"]["mean"] < best:
            best = of["kl"]["mean"]
            front.append(key)
    return front


def md_lines(found, options, lines):
    shares = [what for what in LIMITS if any(what in of for of in found.values())]
    median = " (of seconds the median)" * ("seconds" in shares)
    yield f"KL and agreement with the full cache's likeliest token, mean [95 % interval] over " \
          f"prompts; n: prompts that ran; p: of the difference in KL from the best; shares of " \
          f"the full cache in %{median}. Limits: " + ", ".join(
              f"{name} {100 * share:g} %" for name, share in options.limit) + "."
    yield ""
    ordered = sorted(found.items(), key=lambda item: (-item[1]["kl"]["n"],
                                                      item[1]["kl"]["mean"]))
    yield from md_table(
        ["pipeline", "n", "KL", "agreement", "p", *shares],
        ([key[1], str(of["kl"]["n"]), cell(of["kl"], False), cell(of["agreement"], True),
          f"{of['kl']['against']['p']:.2g}" if of["kl"]["against"] else "-",
          *(f"{100 * mean(lines, key[1], name):.1f}" for name in shares)] for key, of in ordered))


def draw(path, found):
    """KL against footprint; a filled mark ran on all prompts, and these have the Pareto line."""
    pyplot = load_pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 5), layout="constrained")
    most = max(of["kl"]["n"] for of in found.values())
    whole = {key: of for key, of in found.items() if of["kl"]["n"] == most}
    for key, of in found.items():
        axes.plot(100 * of["footprint"]["mean"], of["kl"]["mean"], "o", color="#1f77b4", ms=4,
                  mfc="#1f77b4" if key in whole else "none", alpha=1 if key in whole else 0.3)
    front = pareto(whole)
    axes.plot([100 * found[key]["footprint"]["mean"] for key in front],
              [found[key]["kl"]["mean"] for key in front], color="#d62728", lw=1)
    for key in front:
        axes.annotate(key[1], (100 * found[key]["footprint"]["mean"], found[key]["kl"]["mean"]),
                      fontsize=7, xytext=(4, -8), textcoords="offset points")
    axes.set_xlabel("KV footprint of the whole run, % of the full cache's")
    axes.set_ylabel("KL(full || pipeline), nats a token")
    axes.set_xscale("log")
    axes.set_yscale("log")
    least, most = axes.get_xlim()
    axes.set_xticks([tick for tick in (25, 50, 75, 100, 200, 400) if least <= tick <= most])
    for axis in axes.xaxis, axes.yaxis:
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    save(figure, path)
    pyplot.close(figure)


def read_layers(model):
    """How many layers the model has, by the folder's config.json."""
    layers = read_number(model, "num_hidden_layers")
    if layers is None:
        raise TaskError(f"{model}: config.json does not say num_hidden_layers")
    return layers


def parse():
    parser = argparse.ArgumentParser(description="from a limit to a pipeline")
    add_arguments(parser)
    parser.add_argument("--limit", type=limit, action="append", required=True,
                        metavar="WHAT=SHARE", help=f"{', '.join(LIMITS)}, e.g. bytes=10%%; "
                        "bytes or read comes first; repeatable")
    parser.add_argument("--adapter", metavar="DIR", help="of LookaheadKV for this model")
    parser.add_argument("--gate", metavar="DIR", help="of KVzap for this model")
    parser.add_argument("--question", choices=("inside", "after"), default="inside",
                        help="the pipelines see the question, or it comes after them (inside)")
    parser.add_argument("--only", metavar="TEXT", action="append", default=[],
                        help="only pipelines whose names have it, such as snapkv; repeatable")
    parser.add_argument("--pipeline", metavar="NAME=SHELL", action="append", default=[],
                        help="one more: filters behind kv-prefill; repeatable")
    parser.add_argument("--tokens", type=int, default=32, metavar="N", help="of each text (32)")
    parser.add_argument("--first", type=int, default=2, metavar="N",
                        help="prompts on which all pipelines run (2)")
    parser.add_argument("--picture", metavar="FILE", help="KL against footprint")
    options = parser.parse_args()
    if options.limit[0][0] not in ("bytes", "read"):
        parser.error("--limit: bytes or read comes first")
    if options.tokens < 1 or options.first < 1:
        parser.error("--tokens and --first are at least 1")
    for path in options.table:
        check_table(path)
    if options.picture:
        check_name(options.picture)
    return options


def candidates_of(options):
    what, share = options.limit[0]
    found = space(what, share, read_layers(options.model), options.adapter, options.gate)
    found = {name: one for name, one in found.items()
             if not options.only or any(text in name for text in options.only)}
    for text in options.pipeline:
        name, _, shell = text.partition("=")
        if not NAME.fullmatch(name) or not shell.strip() or name in found:
            raise TaskError(f"--pipeline {text}: not NAME=SHELL, or a pipeline is called so")
        escaped = shell.replace("{", "{{").replace("}", "}}")
        found[name] = Candidate(name, "", (escaped,))
    if not found:
        raise TaskError("there is no pipeline to try: --only leaves none")
    return found


def main():
    options = parse()
    candidates, every = candidates_of(options), {}
    options.answer, options.stop, options.cache = "full", "", None
    pipes = Pipes(options, method_settings(options))
    share = dict(options.limit).get("read", options.limit[0][1])
    working = any(what in WORK for what, _ in options.limit)

    def measure_one(where, record, names):
        text = "\n".join(shell_text(candidates, names, options.tokens, working))
        found = pipes.run(where, record, text)
        return {name: {"all": read_found(found, name)} for name in names}

    def measure_prompts(names):
        whats = {name: [*candidates[name].what(), share, options.tokens, *["work"] * working]
                 for name in names}
        for line in measure(options, pipes, whats, measure_one):
            every[line["name"], line["of"]] = line
        return [line for line in every.values() if line["name"] in names]

    order = halve(options, candidates, measure_prompts)
    lines = list(every.values())
    best = order[0] if order else min(
        candidates, key=lambda name: over(lines, name, options.limit))
    found = summaries(({"task": "all", "pipeline": line["name"], "question": line["question"],
                        "measures": line["all"]} for line in lines), FIELDS, best)
    if options.table:
        write_or_print_tables(options.table, lambda: md_lines(found, options, lines), found, FIELDS)
    if options.picture:
        draw(options.picture, found)
    print(command_of(candidates[best], options, lines))
    if not order:
        raise TaskError(f"no pipeline keeps to the limits; the nearest is {best}, "
                        f"{over(lines, best, options.limit):.2f} times what it may be", 1)


if __name__ == "__main__":
    sys.exit(run(main))
