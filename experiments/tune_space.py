"""The pipelines that tune.py chooses from: a scoring method, a policy, a type of rows and token
selection; or an index that retrieves.

A pipeline keeps a share of the bytes of the full cache: fewer rows in bf16, or more in fewer bits.
"""

import dataclasses
import itertools

# bytes of a row, in those of bf16 (kv-quantize(1), TYPES); what kv-quantize is told
TYPES = {"bf16": (1.0, ""), "q8_0": (34 / 64, "--keys q8_0 --values q8_0"),
         "q4_0": (18 / 64, "--keys q4_0 --values q4_0 --rotate")}
POLICIES = {"uniform": "", "ada": "--policy ada", "global": "--policy global"}


@dataclasses.dataclass(frozen=True)
class Scorer:
    """prefill: what the snapshot must have for kv-score; observe: kv-observe behind it."""

    prefill: str
    score: str
    observe: str = ""
    policies: tuple = tuple(POLICIES)
    selects: bool = True        # also behind token selection


SNAPKV = "--method snapkv --kernel 7 --pool max"
SCORERS = {
    **{f"snapkv-{n}": Scorer(f"--observe {n}", SNAPKV) for n in (8, 16, 32, 64)},
    "keydiff": Scorer("", "--method keydiff"),
    "streamingllm": Scorer("", "--method recent", policies=("uniform",)),
    "lagkv": Scorer("", "--method lagkv"),
    "h2o": Scorer("--mass", "--method h2o", selects=False),
    "expectedattention": Scorer("--query-stats", "--method expected --epsilon 0.01",
                                selects=False),
    "compactor": Scorer("--noncausal 8", "--method compactor", selects=False),
    "kvzip": Scorer("", "--method kvzip", "kv-observe -q -m {model} --repeat-context",
                    selects=False),
}
ADAPTER = Scorer("", "--method lookahead --kernel 7 --pool max",
                 "kv-observe -q -m {model} --lookahead {adapter}")
GATE = Scorer("--gate {gate}", "--method kvzap", selects=False)
DENSE = 2                   # layers that read all rows (kv-decode(1), RETRIEVAL)


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """index: what makes it; read: bytes of it that a step reads, in those of bf16 rows; whole: rows
    are read by so many; group: rows of an entry, the last of which are scored by their keys."""

    index: str
    read: float
    whole: int = 1
    group: int = 0


# one bit, and two numbers of 16 bits for 32 rows; two keys for 16 rows
RETRIEVALS = {
    "fier": Retrieval("kv-quantize1b -q", (1 + 32 / 32) / 16 / 2, group=32),
    "quest": Retrieval("kv-index -q --pages", 2 / 16 / 2, whole=16),
}


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One pipeline: the shell text of its parts, with {model}, {adapter} and {gate} in it."""

    name: str
    prefill: str
    filters: tuple
    retrieve: str = ""          # words of kv-decode --retrieve, with {budget} rows
    budget: str = ""            # of n rows, in awk

    def what(self):
        """What its results depend on."""
        return [self.prefill, self.filters, f"{self.retrieve} {self.budget}".strip()]

    def filled(self, **names):
        """(options of kv-prefill, filters) as a shell reads them"""
        return (self.prefill.format(**names), [one.format(**names) for one in self.filters])


def evicting(share, scorers, layers):
    """Those that keep a share of the bytes. layers: of the model."""
    for (name, scorer), policy, (kind, (size, quantise)) in itertools.product(
            scorers.items(), POLICIES, TYPES.items()):
        if policy not in scorer.policies or share / size >= 1:
            continue
        rate = f"{share / size:.6g}"
        filters = [scorer.observe] * bool(scorer.observe) + [
            f"kv-score -q {scorer.score}",
            f"kv-evict -q --rate {rate} {POLICIES[policy]}".rstrip()]
        filters += [f"kv-quantize -q {quantise}"] * bool(quantise)
        yield Candidate(f"{name}/{policy}/{kind}", scorer.prefill, tuple(filters))
        if policy != "uniform" or kind == "q4_0" or not scorer.selects:
            continue
        # the queries that score must be of tokens that are selected
        queries = scorer.prefill.partition("--observe ")[2]
        window = f" window={queries}" if queries else ""
        for layer in (layers // 2, 2 * layers // 3):
            filters[-2 if quantise else -1] = f"kv-evict -q --of tokens --rate {rate}"
            select = f"--select 'tsp layer={layer} rate=0.3{window}'"
            yield Candidate(f"{name}/tsp-{layer}/{kind}", f"{scorer.prefill} {select}".strip(),
                            tuple(filters))


def quantised(share):
    """All rows, in a type that fits"""
    for kind, (size, quantise) in TYPES.items():
        if size <= share and quantise:
            yield Candidate(f"all/{kind}", "", (f"kv-quantize -q {quantise}",))


def budget_of(share, size, dense, one):
    """The rows of n whose bytes are, with those of the index, the dense layers and on average half
    of a group of keys without an entry, this share of the full cache's."""
    rows = ((share - size * dense) / (1 - dense) - one.read) / size
    return f"int(({rows:.6g} * n - {one.group / 4:g}) / {one.whole}) * {one.whole}"


def retrieving(share, layers):
    """Those that keep all rows and read some: with the first layers dense, as in kv-decode, or
    none"""
    for (name, one), kind, dense in itertools.product(
            RETRIEVALS.items(), ("bf16", "q4_0"), (DENSE, 0)):
        size, quantise = TYPES[kind]
        if size <= share:       # all rows may be read
            continue
        filters = [f"kv-quantize -q {quantise}"] * bool(quantise) + [one.index]
        title = f"{name}/{kind}" if dense else f"{name}/no-dense/{kind}"
        words = f"{name} budget={{budget}}" + " dense=0" * (not dense)
        yield Candidate(title, "", tuple(filters), words,
                        budget_of(share, size, dense / layers, one))


def space(limit, share, layers, adapter, gate):
    """All candidates for a limit of bytes held, or of bytes read."""
    scorers = {**SCORERS, **({"lookaheadkv": ADAPTER} if adapter else {}),
               **({"kvzap": GATE} if gate else {})}
    found = [*evicting(share, scorers, layers), *quantised(share)]
    if limit == "read":
        found += retrieving(share, layers)
    return {one.name: one for one in found}
