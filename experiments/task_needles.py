"""Tasks with something hidden in a text: needles (RULER's NIAH), a pass key, a JSON object.

Each function makes a question of a size: rng, options, size, depth (None: by chance) -> members of
a record. What does not depend on the size is drawn first, so that a question stays the same while
its length is found.
"""

import json

from task_haystacks import insert
from task_words import draw_new, enumerate_words, number

KINDS = {"numbers": ("number", "numbers"), "words": ("word", "words"), "uuids": ("code", "codes")}


def needle(options, key, value):
    one, many = KINDS[options.value_type]
    if options.values == 1:
        return f"The secret {one} of {key} is {value}."
    return f"One of the secret {many} of {key} is {value}."


def hide(rng, options, size, places):
    """Needles in a haystack of `size` words, or of `size` other needles."""
    if options.haystack is None:
        used = set()
        pieces = [needle(options, draw_new(rng, options.key_type, used),
                         draw_new(rng, options.value_type, used)) for _ in range(size)]
        return "\n".join(insert(pieces, places))
    start = options.haystack.start(rng)
    return options.haystack.joint.join(insert(options.haystack.pieces(start, size), places))


def make_niah(rng, options, size, depth):
    """RULER's needle in a haystack, all eight kinds of it: the options say which.

    `keys` keys have `values` needles each, and `queries` of the keys are asked for. Differs from
    RULER: our wording; depths are uniform, not 40 steps; `depth` sets that of the first needle that
    is asked for; no two values are the same.
    """
    used = set()
    keys = [draw_new(rng, options.key_type, used)
            for _ in range(max(options.keys, options.queries))]
    values = [[draw_new(rng, options.value_type, used) for _ in range(options.values)]
              for _ in keys]
    depths = [[rng.random() for _ in range(options.values)] for _ in keys]
    asked = rng.sample(range(len(keys)), options.queries)
    if depth is not None:
        depths[asked[0]][0] = depth
    places = [(depths[k][v], needle(options, keys[k], values[k][v]))
              for k in range(len(keys)) for v in range(options.values)]
    rng.shuffle(places)
    answers = [value for k in asked for value in values[k]]
    one, many = KINDS[options.value_type]
    which = f"secret {one if len(answers) == 1 else many} of " + \
        enumerate_words([keys[k] for k in asked])
    said = "is" if len(answers) == 1 else "are"
    hidden = f"A secret {one} stands" if len(answers) == 1 else f"Secret {many} stand"
    return {
        "context": f"{hidden} somewhere in the text below. You will be asked for it at the end.\n\n"
                   + hide(rng, options, size, places) + "\n\n",
        "question": f"What {said} the {which}? The text above says it.",
        "answer_prefix": f"The {which} {said}",
        "answers": answers,
        "depth": depths[asked[0]][0],
    }


def make_passkey(rng, options, size, depth):
    """A pass key of five digits in noise (Mohtashami and Jaggi, 2023, Landmark Attention)."""
    key = number(rng, 5)
    place = rng.random() if depth is None else depth
    said = f"Here is the pass key: {key}. Remember that {key} is the pass key."
    start = options.haystack.start(rng)
    pieces = insert(options.haystack.pieces(start, size), [(place, said)])
    return {
        "context": "There is a pass key in a text that says nothing else of interest. "
                   "Find the pass key and remember it.\n\n" + options.haystack.joint.join(pieces)
                   + "\n\n",
        "question": "What is the pass key?",
        "answer_prefix": "The pass key is",
        "answers": [key],
        "depth": place,
    }


def make_kv_recall(rng, options, size, depth):
    """The value of one key in a JSON object of UUIDs (Liu et al., 2023, Lost in the Middle).

    The size is the number of pairs; `depth` is the place of the pair that is asked for.
    """
    used = set()
    key, value = draw_new(rng, options.key_type, used), draw_new(rng, options.value_type, used)
    place = rng.random() if depth is None else depth
    pairs = [(draw_new(rng, options.key_type, used), draw_new(rng, options.value_type, used))
             for _ in range(size - 1)]
    pairs.insert(round(place * (size - 1)), (key, value))
    return {
        "context": "Below is a JSON object. Remember which value each key has.\n\n"
                   + json.dumps(dict(pairs), indent=0) + "\n\n",
        "question": f'Which value has the key "{key}" in the JSON object?',
        "answer_prefix": f'"{key}": "',
        "answers": [value],
        "depth": place,
    }
