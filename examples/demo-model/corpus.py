"""The language of the demo model: filler sentences, needles and questions.

Everything is drawn from a `random.Random` that the caller seeds, so a seed is a text. The order of
the draws is part of the contract: the training documents and the published figures depend on it.

Standard library only.
"""

import re

TOWN_STARTS = ("Mar Bren Cal Dun Elm Fair Glen Hart Iver Kel Lang Mill Nor Oak Pem Quin Ros Stan "
               "Thorn Ul Ver Wes Yar").split()
TOWN_ENDS = "low ford ton wick dale ham by field worth more".split()
FIRST_NAMES = """
    Alice Bruno Clara David Edith Felix Greta Henry Irene Jonas Karen Louis Maria Nadia Oscar
    Paula Quentin Ralph Sofia Thomas Ursula Victor Wanda Xavier Yvonne Arthur Bertha Conrad Doris
    Edgar Fiona George Helen Isaac Julia Kevin Laura Martin Nora Oliver Peter Rachel Simon Tessa
    Walter Agnes Boris Cecil Daphne Elias Flora Gavin Hilda Ingrid Jasper Kirsten Leonard Miriam
    Nigel Olga
    """.split()

# What a needle is about (290 names) and what it says. Each is a single token of the tokenizer.
NAMES = [start + end for start in TOWN_STARTS for end in TOWN_ENDS] + FIRST_NAMES
SECRET_WORDS = """
    falcon violet amber copper silver marble velvet cotton ginger pepper saffron walnut cherry
    lemon melon olive peach almond tiger otter badger rabbit heron magpie sparrow salmon lobster
    turtle spider beetle dragon unicorn phoenix comet planet meteor rocket anchor ladder hammer
    needle button basket candle lantern mirror pillow blanket ribbon trumpet violin guitar piano
    drum castle tower bridge tunnel temple palace island desert canyon glacier volcano thunder
    rainbow blizzard sunrise orchid tulip daisy clover maple willow cedar bamboo cactus mushroom
    pumpkin carrot radish spinach coffee cocoa biscuit muffin waffle pretzel
    """.split()
CODE_LETTERS = "ABCDEFGHJKLMNPRSTVWXYZ"

WORDS = {
    "adjective": """
        old quiet small young tired careful cheerful busy patient clever gentle proud nervous
        friendly polite curious honest lonely lazy famous tall thin grey green heavy broken dusty
        narrow wide warm cold bright dark wooden painted empty crowded
        """.split(),
    "person": """
        farmer teacher baker painter doctor sailor driver gardener writer singer merchant
        carpenter student neighbour librarian tailor nurse clerk fisherman shepherd postman
        engineer musician cook soldier captain traveller widow boy girl woman man
        """.split(),
    "object": """
        letter book table chair window garden boat wagon horse dog cat kettle lamp box coat hat map
        clock picture cake loaf basket rope bucket fence gate roof wall door road path bench stone
        plate cup bottle knife blanket newspaper parcel suitcase ticket
        """.split(),
    "place": """
        market river harbour station village church school bakery mill forest meadow hill lake
        bridge square library hospital inn factory museum theatre barn cellar kitchen attic
        courtyard orchard beach valley park
        """.split(),
    "did": """
        carried repaired painted bought sold found lost borrowed cleaned moved watched remembered
        described ignored admired measured washed opened closed forgot kept hid dropped lifted
        """.split(),
    "rested": """
        waited slept walked rested worked sang laughed talked stood sat danced argued smiled
        listened read
        """.split(),
    "weather": "rain wind snow fog sun frost thunder mist".split(),
    "time": ["yesterday", "in the morning", "after lunch", "before dawn", "at noon", "last winter",
             "every evening", "on Monday", "on Friday", "during the storm", "late at night",
             "in the spring", "once a week", "long ago", "after the rain", "in early autumn",
             "on the first day", "near midnight"],
}
PLURALS = {"bench": "benches", "box": "boxes", "loaf": "loaves", "knife": "knives"}

# {kind} is a word of that kind, {a kind} one with its article, {objects} a plural, {number} 2..99.
SENTENCES = (
    "the {adjective} {person} {did} the {object} {time}",
    "{time}, the {person} {did} {a adjective} {object} near the {place}",
    "the {object} in the {place} was {adjective} and {adjective}",
    "nobody {rested} near the {adjective} {place} {time}",
    "the {person} and the {person} {rested} by the {place}",
    "there was {a adjective} {object} behind the {place}",
    "the {weather} came over the {place} {time}",
    "{a adjective} {person} asked about the {object}, but the {person} only {rested}",
    "people say that the {place} is {adjective} because of the {weather}",
    "she {did} the {object} while he {rested} in the {place}",
    "they {did} {number} {objects} for the {place} {time}",
    "when the {weather} stopped, the {adjective} {person} {rested} again",
)

# What a needle can tell about a name.
KINDS = {"code": "access code", "word": "secret word"}
MIXED_KINDS = ("code", "code", "word")          # two codes for one word
MIXED_DIGITS = (2, 3, 3, 3, 3, 3, 4, 4)


def filler_sentence(rng):
    """A grammatical sentence that says nothing about codes and words."""
    def draw(match):
        slot = match.group(1)
        if slot == "number":
            return str(rng.randrange(2, 100))
        if slot == "objects":
            word = rng.choice(WORDS["object"])
            return PLURALS.get(word, word + "s")
        if slot.startswith("a "):
            word = rng.choice(WORDS[slot[2:]])
            return ("an " if word[0] in "aeiou" else "a ") + word
        return rng.choice(WORDS[slot])

    text = re.sub(r"\{([a-z ]+)\}", draw, SENTENCES[rng.randrange(len(SENTENCES))])
    return text[0].upper() + text[1:] + "."


def access_code(rng, digits=0):
    """A letter and some digits; digits = 0: two to four, mostly three."""
    letter = rng.choice(CODE_LETTERS)
    count = digits or rng.choice(MIXED_DIGITS)
    return letter + "".join(rng.choice("0123456789") for _ in range(count))


def needle(kind, name, value):
    """The sentence to be found again."""
    return f"The {KINDS[kind]} of {name} is {value}."


def question(kind, name):
    """The end of a prompt. The model continues with a space, the value, a full stop, a newline."""
    return f"Question: what is the {KINDS[kind]} of {name}?\nAnswer:"
