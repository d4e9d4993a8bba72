"""Tasks where one thing leads to the next: RULER's variable tracking, and facts over several hops.

See task_needles.py for what the functions get and return.
"""

import string

from task_haystacks import insert
from task_words import COMPANIES, COUNTIES, PEOPLE, RIVERS, TOWNS, enumerate_words, letters, number

EXAMPLE_WORDS = 105     # of the text around the worked example: five lines of noise
MOST_FACTS = len(COUNTIES)


def draw_chains(rng, chains, hops, length):
    """Chains of names, and the value that the first name of each is given."""
    names, values = [], []
    while len(names) < chains * (hops + 1):
        name = letters(rng, length, string.ascii_uppercase)
        if name not in names:
            names.append(name)
    while len(values) < chains:
        value = number(rng, 5)
        if value not in values:
            values.append(value)
    return [names[i:i + hops + 1] for i in range(0, len(names), hops + 1)], values


def track(rng, options, size, length):
    """(context, question, answer prefix, answers) of variable tracking."""
    chains, values = draw_chains(rng, options.chains, options.hops, length)
    places = []
    for names, value in zip(chains, values):
        depths = sorted(rng.random() for _ in names)
        given = [value] + [f"VAR {name}" for name in names]
        places += [(depth, f"VAR {name} = {what}.")
                   for depth, name, what in zip(depths, names, given)]
    start = options.haystack.start(rng)
    text = options.haystack.joint.join(insert(options.haystack.pieces(start, size), places))
    count = "variable has" if len(chains[0]) == 1 else f"{len(chains[0])} variables have"
    return ("Variables are given values in the text below, some of them from other variables. "
            f"Keep track of them.\n\n{text}\n\n",
            f"Question: which variables have the value {values[0]} in the end?",
            f"Answer: these {count} the value {values[0]}:",
            chains[0])


def make_vt(rng, options, size, _):
    """RULER's variable tracking: `chains` chains of `hops` assignments that copy a variable.

    All names of the first chain are asked for. Differs from RULER: our wording, and the worked
    example is in five lines of text (RULER: up to 500 tokens).
    """
    context, question, prefix, answers = track(rng, options, size, 5)
    for _ in range(options.examples):
        example = track(rng, options, EXAMPLE_WORDS, 3)
        worked = f"{example[2]} {enumerate_words(example[3])}"
        context = f"{example[0]}{example[1]}\n{worked}\n\n{context}"
    return {"context": context, "question": question, "answer_prefix": prefix, "answers": answers,
            "depth": None}


# What a fact says, what is asked, and how the answer begins, for so many hops
FACTS = (
    ("{0} works for {1}.", "Which company does {} work for?", "{} works for"),
    ("{0} has its office in {1}.",
     "In which town is the office of the company that {} works for?",
     "The company that {} works for has its office in"),
    ("{0} lies on the river {1}.",
     "On which river lies the town with the office of the company that {} works for?",
     "The town with the office of the company that {} works for lies on the river"),
    ("The river {0} flows through {1}.",
     "{} works for a company with an office in a town on a river. "
     "Which county does the river flow through?",
     "The river flows through"),
)


def make_multihop(rng, options, size, depth):
    """Facts in a text; the answer takes `hops` of them, and as many about others lead elsewhere.

    A person works for a company, that has its office in a town, that lies on a river, that flows
    through a county. `depth` is that of the fact with the answer; the others are anywhere.
    """
    lists = (PEOPLE, COMPANIES, TOWNS, RIVERS, COUNTIES)[:options.hops + 1]
    chains = list(zip(*(rng.sample(names, options.chains) for names in lists)))
    last = rng.random()
    last = last if depth is None else depth
    places = [(rng.random(), FACTS[hop][0].format(chain[hop], chain[hop + 1]))
              for chain in chains for hop in range(options.hops)]
    places[options.hops - 1] = (last, places[options.hops - 1][1])
    rng.shuffle(places)
    start = options.haystack.start(rng)
    text = options.haystack.joint.join(insert(options.haystack.pieces(start, size), places))
    person, (_, question, prefix) = chains[0][0], FACTS[options.hops - 1]
    return {
        "context": "Some facts about people stand in the text below. Remember them.\n\n" + text
                   + "\n\n",
        "question": question.format(person),
        "answer_prefix": prefix.format(person),
        "answers": [chains[0][-1]],
        "depth": last,
    }
