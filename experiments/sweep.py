"""What a configuration asks for: models, tasks, methods and rates, and the commands that make them.

The Snakefile reads one with `Sweep(config)`; a mistake ends with a SweepError that names the place.
A *cell* is the questions of one task, length and seed for one model; a *part* is every n-th of its
questions, and what one job works on.
"""

import os
import re
import shlex

from task_records import UNGRADED

HERE = os.path.dirname(os.path.abspath(__file__))
METHODS = os.path.join(HERE, "..", "examples", "methods")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
KEYS = {
    "": {"budgets", "chat", "lengths", "methods", "models", "nll", "parts", "products", "question",
         "rates", "reference", "results", "seeds", "tasks", "threads"},
    "model": {"conf", "folder"},
    "task": {"count", "file", "lengths", "make", "metric", "middle_cut", "options", "stop"},
    "method": {"budgets", "decode", "keep", "name", "prefill", "rates", "script", "settings"},
}


class SweepError(Exception):
    """A mistake in the configuration."""


def as_list(value):
    return value if isinstance(value, list) else [value]


def check_keys(where, given, kind):
    if not isinstance(given, dict):
        raise SweepError(f"{where}: not a table of names and values")
    unknown = sorted(str(key) for key in given.keys() - KEYS[kind])
    if unknown:
        raise SweepError(f"{where}: {unknown[0]} is none of {', '.join(sorted(KEYS[kind]))}")


def check_name(where, name):
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise SweepError(f"{where}: a name has letters, digits, dots, - and _, not {name!r}")


def check_path(where, path):
    """A file or folder, not what a program takes for an option; Snakemake reads braces."""
    if not isinstance(path, str) or not path or re.search(r"[\n{}]", path):
        raise SweepError(f"{where}: {path!r} is no name without braces and line breaks")
    return f"./{path}" if path.startswith("-") else path


def allowed(conf):
    """What a file of settings lets the programs pass over (examples/methods/common.sh), behind what
    the environment does: variable -> names with blanks between."""
    names = {}
    try:
        with open(conf or os.devnull, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, name = line.strip().partition("=")
                if key in ("allow-config", "allow-tensor"):
                    variable = f"KV_{key.upper().replace('-', '_')}"
                    before = names.get(variable, os.environ.get(variable, ""))
                    names[variable] = f"{before} {name}".strip()
    except OSError as error:
        raise SweepError(f"models: {conf}: {error.strerror}") from None
    return names


def read_rates(where, entry):
    """The rates of a table as texts, and behind them its budgets as NUMBERrows."""
    rates = [str(rate) for rate in as_list(entry.get("rates", []))]
    for rate in rates:
        if not re.fullmatch(r"0?\.[0-9]*[1-9][0-9]*|1(\.0*)?", rate):
            raise SweepError(f"{where}rates: {rate} is no rate between 0 and 1")
    for budget in as_list(entry.get("budgets", [])):
        if not isinstance(budget, int) or isinstance(budget, bool) or budget < 1:
            raise SweepError(f"{where}budgets: {budget} is no whole number of rows above 0")
        rates.append(f"{budget}rows")
    if len(set(rates)) != len(rates):
        raise SweepError(f"{where}{max(rates, key=rates.count)} is there twice")
    return rates


class Method:
    """One way to make the snapshot that an answer begins with."""

    def __init__(self, entry, rates):
        entry = {"name": entry} if isinstance(entry, str) else entry
        check_keys("methods", entry, "method")
        if "name" not in entry:
            raise SweepError(f"methods: {entry} has no name")
        self.name = entry["name"]
        where = f"methods: {self.name}"
        check_name(where, self.name)
        self.settings = entry.get("settings", {})
        if not isinstance(self.settings, dict):
            raise SweepError(f"{where}: settings is not a table")
        self.inline = {key: entry[key] for key in ("prefill", "keep", "decode") if key in entry}
        if self.inline and "script" in entry:
            raise SweepError(f"{where}: a script, or prefill, keep and decode")
        if self.inline and self.settings:
            raise SweepError(f"{where}: settings are those of a script")
        self.script = os.path.join(HERE, "inline.sh") if self.inline else self.find(where, entry)
        self.rates = read_rates(f"{where}: ", entry) or rates
        if self.name == "full":
            self.rates = ["all"]

    def find(self, where, entry):
        script = entry.get("script", self.name)
        path = script if "/" in script else os.path.join(METHODS, f"{script}.sh")
        if not os.path.exists(path) or os.path.basename(path) == "common.sh":
            raise SweepError(f"{where}: there is no {os.path.normpath(path)}")
        return os.path.abspath(path)

    def words(self, rate):
        """Arguments of its script, without those of the prompt."""
        words = ["-r", "1"] if rate == "all" else ["-r", rate]
        if rate.endswith("rows"):
            words = ["-b", rate.removesuffix("rows")]
        for name, value in self.settings.items():
            words += ["-s", f"{name}={value}"]
        return words

    def environment(self):
        keep = self.inline.get("keep", "cat")
        return {"PREFILL": self.inline.get("prefill", ""), "KEEP": keep,
                "DECODE": self.inline.get("decode", "")} if self.inline else {}

    def identity(self):
        """What must be the same for earlier results to stand."""
        return [os.path.basename(self.script), self.settings, self.inline]


class Sweep:
    """A configuration that has been looked at."""

    def __init__(self, config):
        check_keys("the configuration", config, "")
        for key in ("models", "tasks", "methods"):
            if not config.get(key):
                raise SweepError(f"the configuration has no {key} (--configfile names its file)")
        self.results = check_path("results", config.get("results", "results"))
        self.parts = self.whole(config, "parts", 2)
        self.threads = self.whole(config, "threads", 1)
        self.chat = config.get("chat")
        self.question = config.get("question", "inside")
        if self.question not in ("inside", "after", "aware"):
            raise SweepError(f"question: {self.question} is none of inside, after and aware")
        self.nll = config.get("nll", False)
        if not isinstance(self.nll, bool):
            raise SweepError(f"nll: {self.nll} is neither true nor false")
        self.products = config.get("products", "f32")
        if self.products not in ("f32", "bf16"):
            raise SweepError(f"products: {self.products} is neither f32 nor bf16")
        self.models, self.tasks = config["models"], config["tasks"]
        for kind, table in (("model", self.models), ("task", self.tasks)):
            for name, entry in table.items():
                check_name(f"{kind}s", name)
                check_keys(f"{kind}s: {name}", entry, kind)
        for name, model in self.models.items():
            if "folder" not in model:
                raise SweepError(f"models: {name} has no folder")
            for key in model:
                model[key] = check_path(f"models: {name}: {key}", model[key])
        for name, task in self.tasks.items():
            if ("make" in task) == ("file" in task):
                raise SweepError(f"tasks: {name} needs make, the name of a task, or file")
            if "file" in task:
                task["file"] = check_path(f"tasks: {name}: file", task["file"])
            forced = task.get("make") == "continuation" or task.get("metric") == UNGRADED
            if forced and not self.nll:
                raise SweepError(f"tasks: {name} asks how likely its answer is: it needs nll: true")
        self.lengths = [str(n) for n in as_list(config.get("lengths", []))]
        self.seeds = [str(n) for n in as_list(config.get("seeds", 1))]
        rates = read_rates("", config) or ["0.1"]
        methods = [Method(entry, rates) for entry in as_list(config["methods"])]
        self.methods = {method.name: method for method in methods}
        if len(self.methods) != len(methods):
            raise SweepError("methods: two have the same name")
        first = "full" if "full" in self.methods else methods[0].name
        self.reference = config.get("reference", first)
        if self.reference not in self.methods:
            raise SweepError(f"reference: {self.reference} is none of the methods")
        if self.question == "after" and any(m.script.endswith("/oracle.sh") for m in methods):
            raise SweepError("methods: oracle needs the answer to a question that it would not "
                             "have seen (question: after)")

    @staticmethod
    def whole(config, key, default):
        value = config.get(key, default)
        if not isinstance(value, int) or value < 1:
            raise SweepError(f"{key}: {value} is no whole number above 0")
        return value

    def environment(self, model):
        """Variables of the programs in jobs, as words of a shell."""
        names = allowed(self.models[model].get("conf"))
        return " ".join([f"KV_PRODUCTS={self.products}",
                         *(f"{name}={shlex.quote(text)}" for name, text in names.items())])

    def cells(self):
        """MODEL/TASK/LENGTH/SEED; questions from a file have their own lengths and no seed."""
        for model in self.models:
            for name, task in self.tasks.items():
                if "file" in task:
                    yield f"{model}/{name}/own/0"
                    continue
                lengths = [str(n) for n in as_list(task.get("lengths", self.lengths))]
                if not lengths:
                    raise SweepError(f"tasks: {name} has no lengths")
                yield from (f"{model}/{name}/{n}/{seed}" for n in lengths for seed in self.seeds)

    def runs(self):
        """METHOD/RATE"""
        for method in self.methods.values():
            yield from (f"{method.name}/{rate}" for rate in method.rates)

    def graded(self):
        return [f"{self.results}/graded/{cell}/{run}.jsonl"
                for cell in self.cells() for run in self.runs()]

    def model_words(self, model):
        entry = self.models[model]
        return ["-m", entry["folder"], *(["-C", entry["conf"]] if "conf" in entry else [])]

    def task_command(self, model, name, length, seed):
        """The program that writes the questions of a cell."""
        task = self.tasks[name]
        words = ["-m", self.models[model]["folder"]]
        if self.chat:
            words += ["--chat", self.chat]
        if "file" in task:
            for key in ("metric", "middle_cut"):
                if key in task:
                    words += [f"--{key.replace('_', '-')}", str(task[key])]
            words = ["read_benchmark.py", *words, "--task", name, task["file"]]
        else:
            words = ["make_task.py", task["make"], *words, "--name", name,
                     "-n", str(task.get("count", 20)), "--tokens", length, "--seed", seed]
        for key, value in task.get("options", {}).items():
            option = f"--{str(key).replace('_', '-')}"
            words += [option] if value is True else [option, *(str(v) for v in as_list(value))]
        return shlex.join(["python3", os.path.join(HERE, words[0]), *words[1:]])
