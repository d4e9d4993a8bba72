"""RULER's tasks of aggregation: common words and frequent words.

See task_needles.py for what the functions get and return.
"""

from task_records import TaskError
from task_words import PAIRS, WORDS, letters

LONG = 4096     # tokens from which on RULER repeats words more often


def numbered(words):
    return " ".join(f"{i}. {word}" for i, word in enumerate(words, 1))


def list_words(rng, common, uncommon, common_freq, uncommon_freq):
    """(list as text, the common words): every word as often as its kind is repeated, shuffled."""
    pool = WORDS if common + uncommon <= len(WORDS) else PAIRS
    if common + uncommon > len(pool):
        raise TaskError(f"cwe: there are no more than {len(pool)} words for the list")
    words = rng.sample(pool, common + uncommon)
    listed = words[:common] * common_freq + words[common:] * uncommon_freq
    rng.shuffle(listed)
    return numbered(listed), words[:common]


def make_cwe(rng, options, size, _):
    """RULER's common words: `common` words often in a numbered list, `size` other words seldom.

    They are there 30 and 3 times, below 4096 tokens 6 and 1 times, as with RULER. Differs: our
    wording and words; pairs of words where single ones do not suffice.
    """
    often, seldom = (6, 1) if options.tokens < LONG else (30, 3)
    often, seldom = options.common_freq or often, options.uncommon_freq or seldom
    if seldom >= often:
        raise TaskError(f"cwe: common words are there {often} times, the others {seldom} times")
    intro = "Some words appear more often than others in the numbered list below.\n\n"
    question = f"Question: which {options.common} words appear most often in the list?"
    prefix = f"Answer: the {options.common} words that appear most often are:"
    context = ""
    for _ in range(options.examples):
        shape = (options.common, 3, 1) if options.tokens < LONG else (3 * options.common, 10, 3)
        text, common = list_words(rng, options.common, *shape)
        context += f"{intro}{text}\n\n{question}\n{prefix} {numbered(common)}\n\n"
    text, common = list_words(rng, options.common, size, often, seldom)
    return {"context": f"{context}{intro}{text}\n\n", "question": question, "answer_prefix": prefix,
            "answers": common, "depth": None}


def zeta(s, terms=64):
    """Riemann's zeta function for s > 1: a sum, and Euler and Maclaurin's rest."""
    total = sum(k ** -s for k in range(1, terms))
    return total + terms ** (1 - s) / (s - 1) + terms ** -s / 2 + s * terms ** (-s - 1) / 12


def frequencies(options, size):
    """How often each coded word is there: size / (rank^alpha zeta(alpha)), cut off."""
    vocabulary = options.coded_words or max(options.tokens // 50, 8)
    scale = size / zeta(options.alpha)
    return [int(scale * rank ** -options.alpha) for rank in range(1, vocabulary + 1)]


def make_fwe(rng, options, size, _):
    """RULER's frequent words: coded words of six letters, as frequent as Zipf's law has it.

    The first rank is noise, `...`; the next three are asked for. Differs: our wording; the list is
    shuffled otherwise for each question.
    """
    counts = frequencies(options, size)
    words = []
    while len(words) < len(counts):
        word = letters(rng, 6)
        if word not in words:
            words.append(word)
    words[0] = "..."
    if len(counts) < 4 or counts[3] < 1 or (len(counts) > 4 and counts[3] == counts[4]):
        raise TaskError("fwe: the third and the fourth word are equally frequent: "
                        "more --tokens or another --alpha are needed")
    coded = [word for word, count in zip(words, counts) for _ in range(count)]
    rng.shuffle(coded)
    return {
        "context": "The text below is in a code. Watch how often each coded word is there; "
                   "dots are nothing.\n\n" + " ".join(coded) + "\n\n",
        "question": "Question: which three coded words are the most frequent ones? "
                    "Give the words only.",
        "answer_prefix": "Answer: the three most frequent coded words are:",
        "answers": words[1:4],
        "depth": None,
    }
