"""Invented facts, each with what is asked about it: what documents are strewn with.

A fact is a piece of text that is put into a document, questions about it, beginnings of an answer,
and the words that a right answer contains. Everything is drawn from a `random.Random`.
The wording of RULER's needles (magic numbers, uuids, passkeys) does not occur: they serve to try
the result on facts of another kind.
Standard library only.
"""

import string


class Fact:
    """text: what the document says, one piece or two; (question, lead, answer) in `asked`."""

    def __init__(self, kind, text, asked):
        self.kind, self.text, self.asked = kind, text, asked


def phrases(text, between):
    """The parts of a text, lines joined."""
    return [" ".join(part.split()) for part in text.split(between)]


FIRST = """
    Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Karla Leon Marta Nils Olga
    Peter Rosa Simon Tilda Viktor Amir Beatrice Chen Dolores Emeka Fatima George Hanna
    Ibrahim Julia Kofi Lucia Mehmet Naomi Oscar Priya Quentin Ravi Sofia Thomas Ursula Wanda
    Yusuf Zoe
    """.split()
LAST = """
    Abbott Bergman Castillo Dubois Eriksen Fischer Grant Hoffman Ivanov Jensen Kowalski
    Lindqvist Moreau Novak Okafor Petrov Quinn Rossi Schneider Tanaka Ullman Vargas Whitaker
    Yamada Zimmer Baxter Carver Delgado Ellison Farrell
    """.split()
NOUNS = """
    walnut saffron cobalt lantern pepper granite velvet orchid copper maple amber cactus
    marble tulip anchor basket candle dragon engine forest violin umbrella teapot compass
    ladder blanket mirror hammer pillow trumpet kettle bucket saddle feather whistle barrel
    """.split()
MACHINES = """
    printer router boiler elevator projector scanner generator freezer tractor telescope
    compressor camera microscope turbine pump server furnace bicycle sewing-machine
    lawnmower
    """.split()
STARTS = """
    Har Brick Salt Dun Fox Grey Hol Kes Low Moss Pen Raven Wind Ash Birch Clay Elder Fern
    Gold Iron Lake Mill North Oak Stone Thorn West Wolf
    """.split()
ENDS = "ton ley mere wood combe water field gate bury ford haven stead wick bridge dale".split()
COLOURS = "red green blue yellow purple orange turquoise black white pink brown grey".split()
JOBS = """
    carpenter dentist pilot baker librarian welder surgeon gardener translator beekeeper
    plumber teacher sculptor lawyer chemist tailor
    """.split()
FOODS = phrases("""
    lentil soup, apple pie, fried rice, mushroom risotto, pumpkin bread, onion tart, fish
    stew, potato salad, chocolate cake, goat cheese, roasted carrots, plum jam
    """, ",")
PLACES = phrases("""
    under the stairs; behind the mirror; in the blue cupboard; on top of the bookshelf;
    inside the old piano; next to the fireplace; in a tin box in the garage; below the
    kitchen sink; in the third drawer; behind the water tank
    """, ";")
REASONS = phrases("""
    a storm had destroyed the stage; the main sponsor withdrew; the river flooded the market
    square; nobody had sold enough tickets; the power station was on fire; the roads were
    covered with ice; the musicians missed their ferry; a wasp nest was found in the hall
    """, ";")
DEFINITIONS = phrases("""
    a small wooden boat with two masts; a knife for cutting reeds; the last day of the
    harvest; a song that is sung at sunrise; a bread baked on hot stones; a game played with
    seven pebbles; the cold wind from the eastern hills; a coat made of sheep wool; a room
    without windows; a person who repairs bells
    """, ";")
MONTHS = """
    January February March April May June July August September October November December
    """.split()
ANIMALS = "otter falcon badger heron lynx beaver gecko marmot puffin weasel hedgehog raven".split()
KEYS = """
    timeout retries max_clients buffer_size log_level cache_dir user group port threads
    language theme backup_interval region owner checksum priority mode encoding interval
    limit color_depth volume
    """.split()


def person(r):
    return f"{r.choice(FIRST)} {r.choice(LAST)}" if r.random() < 0.6 else r.choice(FIRST)


def town(r):
    return r.choice(STARTS) + r.choice(ENDS)


def company(r):
    return r.choice((f"{r.choice(LAST)} & Sons", f"{r.choice(STARTS)}{r.choice(ENDS)} Systems",
                     f"{r.choice(LAST)} Industries", f"{r.choice(NOUNS).title()} Labs"))


def word_code(r):
    return f"{r.choice(COLOURS)}-{r.choice(ANIMALS)}-{r.randint(10, 99)}"


def digits(r, low=3, high=7):
    count = r.randint(low, high)
    return str(r.randint(1, 9)) + "".join(r.choice(string.digits) for _ in range(count - 1))


def letters_digits(r):
    letters = "".join(r.choice(string.ascii_uppercase) for _ in range(r.randint(1, 3)))
    return letters + r.choice(("-", "")) + digits(r, 2, 5)


def code(r):
    return r.choice((digits, digits, letters_digits, word_code))(r)


def year(r):
    return str(r.randint(1100, 2019))


def date(r):
    return f"{r.choice(MONTHS)} {r.randint(1, 28)}" + r.choice(("", f", {r.randint(1950, 2030)}"))


def clock(r):
    return f"{r.randint(1, 12)}:{r.choice(('05', '10', '15', '20', '30', '40', '45', '55'))}"


def price(r):
    return r.choice((f"{r.randint(2, 990)} dollars", f"${r.randint(2, 99)}.{r.randint(10, 99)}",
                     f"{r.randint(11, 990)} euros"))


def phone(r):
    return f"{r.randint(200, 999)}-{r.randint(1000, 9999)}"


def email(r):
    return f"{r.choice(FIRST).lower()}@{r.choice(NOUNS)}.{r.choice(('org', 'com', 'net'))}"


def path(r):
    return f"/{r.choice(('var', 'srv', 'opt', 'data'))}/{r.choice(NOUNS)}/{r.choice(ANIMALS)}.log"


def version(r):
    return f"{r.randint(0, 12)}.{r.randint(0, 30)}.{r.randint(0, 9)}"


def invented(r):
    return "".join(r.choice(("ba", "du", "ki", "lo", "mer", "na", "tri", "vos", "zel", "rum"))
                   for _ in range(r.choice((2, 3))))


def names(r):
    return ", ".join(r.sample(FIRST, 2)) + f" and {r.choice(LAST)}"


def of(*values):
    return lambda r: r.choice(values)


# kind: (what x is, what v is, sentences, questions, beginnings of an answer)
SIMPLE = {
    "access code": (town, code, (
        "The access code of the {x} office is {v}.",
        "To open the door of the {x} office, enter the code {v}.",
        "Visitors of {x} need the access code {v} at the gate."), (
        "What is the access code of the {x} office?", "Which code is needed in {x}?",
        "Tell me the access code for {x}."), ("The access code of {x} is", "The code is")),
    "password": (person, word_code, (
        "{x} changed the password of the account to {v}.",
        "The new password of {x} is {v}, and it must not be written down."), (
        "What is the password of {x}?", "Which password does {x} use?"),
        ("The password of {x} is", "{x} uses the password")),
    "number": (of(*MACHINES), digits, (
        "The serial number of the {x} is {v}.", "On the back of the {x} stands the number {v}.",
        "The {x} was registered under the number {v}."), (
        "What is the serial number of the {x}?", "Which number belongs to the {x}?",
        "What is the number of the {x} mentioned in the text?"),
        ("The serial number of the {x} is", "The number of the {x} is")),
    "telephone": (person, phone, (
        "You can reach {x} by telephone at {v}.", "The telephone number of {x} is {v}."), (
        "What is the telephone number of {x}?", "How can {x} be reached?"),
        ("The telephone number of {x} is",)),
    "email": (company, email, (
        "Complaints about {x} should be sent to {v}.", "The address of {x} for mail is {v}."), (
        "What is the mail address of {x}?", "Where should complaints about {x} be sent?"),
        ("The mail address of {x} is",)),
    "birthplace": (person, town, (
        "{x} was born in the town of {v} and moved away as a child.",
        "{x}, who grew up in {v}, never went back."), (
        "Where was {x} born?", "Which town does {x} come from?"),
        ("{x} was born in", "{x} comes from")),
    "job": (person, of(*JOBS), (
        "{x} has worked as a {v} for many years.", "After school {x} became a {v}."), (
        "What is the profession of {x}?", "What does {x} do for a living?"),
        ("{x} works as a", "{x} is a")),
    "price": (of(*NOUNS), price, (
        "The price of one {x} at the market was {v}.", "They paid {v} for a used {x}."), (
        "What was the price of the {x}?", "How much did the {x} cost?"),
        ("The price of the {x} was", "The {x} cost")),
    "year": (town, year, (
        "The bridge of {x} was built in the year {v} by local masons.",
        "In {v} the old bridge of {x} was opened to the public."), (
        "When was the bridge of {x} built?", "In which year was the bridge of {x} finished?"),
        ("The bridge of {x} was built in", "It was in the year")),
    "date": (of(*NOUNS), date, (
        "The next meeting of the {x} committee takes place on {v}.",
        "The {x} festival begins on {v}."), (
        "When is the {x} event?", "On which date does the {x} committee or festival begin?"),
        ("The {x} event is on",)),
    "mayor": (town, person, (
        "The mayor of {x} is called {v}, and everybody knows it.",
        "{v} has been the mayor of {x} since the last election."), (
        "Who is the mayor of {x}?", "What is the name of the mayor of {x}?"),
        ("The mayor of {x} is",)),
    "colour": (town, of(*COLOURS), (
        "The front door of the {x} house is painted {v}.",
        "All houses in {x} have {v} roofs."), (
        "Which colour is mentioned for {x}?", "What colour can be seen in {x}?"),
        ("The colour in {x} is",)),
    "food": (person, of(*FOODS), (
        "The favourite food of {x} is {v}.", "{x} eats {v} every Sunday."), (
        "What does {x} like to eat?", "What is the favourite food of {x}?"),
        ("{x} likes to eat", "The favourite food of {x} is")),
    "place": (of(*NOUNS), of(*PLACES), (
        "The {x} is hidden {v}.", "They keep the old {x} {v}."), (
        "Where is the {x}?", "Where can the {x} be found?"), ("The {x} is",)),
    "author": (invented, person, (
        "The book \"The {x}\" was written by {v}.", "{v} is the author of \"The {x}\"."), (
        "Who wrote \"The {x}\"?", "Who is the author of the book \"The {x}\"?"),
        ("\"The {x}\" was written by",)),
    "port": (invented, digits, (
        "By default, {x} listens on port {v}.", "The service {x} uses port {v}."), (
        "Which port does {x} use?", "On what port does {x} listen?"),
        ("{x} listens on port",)),
    "file": (invented, path, (
        "The messages of {x} are written to {v}.", "{x} keeps its data in {v}."), (
        "Which file does {x} use?", "Where does {x} write?"), ("{x} writes to",)),
    "version": (invented, version, (
        "The current version of {x} is {v}.", "Since version {v}, {x} has been stable."), (
        "Which version of {x} is mentioned?", "What is the version of {x}?"),
        ("The version of {x} is",)),
    "train": (town, clock, (
        "The last train to {x} leaves at {v}.", "There is a bus to {x} at {v} every day."), (
        "At what time can one travel to {x}?", "When does one leave for {x}?"),
        ("One leaves for {x} at",)),
    "reason": (of(*NOUNS), of(*REASONS), (
        "The {x} festival was cancelled because {v}.",
        "Because {v}, the {x} concert did not take place."), (
        "Why was the {x} event cancelled?", "Explain why the {x} event did not take place."),
        ("The {x} event did not take place because",)),
    "definition": (invented, of(*DEFINITIONS), (
        "A {x} is {v}.", "In the old language, the word {x} means {v}."), (
        "What is a {x}?", "What does the word {x} mean?"), ("A {x} is", "The word {x} means")),
    "team": (company, names, (
        "The team of {x} consists of {v}.", "{x} was founded by {v}."), (
        "Which people belong to {x}?", "List the people of {x}."), ("The people of {x} are",)),
    "winner": (of(*NOUNS), person, (
        "The first prize of the {x} contest went to {v}.", "{v} won the {x} race."), (
        "Who won the {x} competition?", "Who was the winner with the {x}?"),
        ("The winner was",)),
    "belongings": (person, of(*NOUNS), (
        "{x} keeps a {v} in the drawer of the desk.", "{x} bought a {v} last summer."), (
        "What does {x} own?", "Which thing belongs to {x}?"), ("{x} has a",)),
}


def entries(r, most):
    """How many entries a list has: two at least, short lists more often than long ones. What is
    too long for a small model to find its way in teaches little."""
    return min(r.randint(2, most), r.randint(2, most))


def simple(r, kind=None, avoid=()):
    """A fact of one sentence."""
    kind = kind or r.choice(sorted(SIMPLE))
    draw_x, draw_v, sentences, questions, leads = SIMPLE[kind]
    x = draw_x(r)
    while x in avoid:
        x = draw_x(r)
    v = draw_v(r)
    text = r.choice(sentences).format(x=x, v=v)
    asked = (r.choice(questions).format(x=x), r.choice(leads).format(x=x), v)
    return Fact(kind, [text], [asked]), x


def alike(r):
    """Several facts that differ in what they are about only; one or two are asked for."""
    kind, avoid, facts = r.choice(sorted(SIMPLE)), set(), []
    draw_x = SIMPLE[kind][0]
    count = entries(r, 7) if draw_x in (person, town, company, invented) else 2
    for _ in range(count):
        fact, x = simple(r, kind, avoid)
        avoid.add(x)
        facts.append(fact)
    return Fact("several alike", [fact.text[0] for fact in facts],
                [fact.asked[0] for fact in r.sample(facts, 2)])


def two_sentences(r):
    """A fact that neither of its two sentences tells alone."""
    x, t, v = person(r), town(r), code(r)
    shop = r.choice(("bakery", "bookshop", "school of music", "shoe factory", "small hotel"))
    forms = (
        (f"A parcel for {x} arrived on Monday. Its tracking number is {v}.",
         f"What is the tracking number of the parcel for {x}?", "The tracking number is", v),
        (f"{x} moved to {t} in {year(r)}. A year later this newcomer opened a {shop} there.",
         f"What did {x} open?", f"{x} opened a", shop),
        (f"Room {digits(r, 2, 3)} in {t} is reserved for {x}. The key to it has the label {v}.",
         f"Which label has the key to the room of {x}?", "The label of the key is", v),
        (f"There is a safe in the town hall of {t}. It opens with the combination {v}.",
         f"With which combination does the safe in {t} open?", "It opens with the combination", v),
    )
    text, question, lead, answer = r.choice(forms)
    return Fact("two sentences", [text], [(question, lead, answer)])


def settings(r):
    """A list of keys and values in one of several notations."""
    keys = r.sample(KEYS, entries(r, 10))
    draw = (lambda r: digits(r, 1, 5), word_code, version, path, of(*COLOURS), of(*ANIMALS))
    values = {key: r.choice(draw)(r) for key in keys}
    name = invented(r)
    line = r.choice(("- {k}: {v}", "{k} = {v}", "{k}: {v}", "* {k} -> {v}", '"{k}": "{v}",'))
    head = r.choice((f"Settings of {name}:", f"[{name}]", f"The file {name}.conf contains:",
                     f"List of values ({name}):"))
    text = "\n".join([head] + [line.format(k=k, v=v) for k, v in values.items()])
    ask = ("What is the value of {k} in the list?", "Which value has {k} in the settings of {n}?",
           "What is {k} set to?")
    asked = [(r.choice(ask).format(k=k, n=name), f"The value of {k} is", values[k])
             for k in r.sample(keys, 2)]
    return Fact("settings", [text], asked)


def table(r):
    """Rows of people with two columns."""
    people = r.sample(FIRST, entries(r, 8))
    columns = r.sample((("town", town), ("age", lambda r: str(r.randint(18, 90))),
                        ("job", of(*JOBS)), ("telephone", phone), ("id", letters_digits)), 2)
    rows = {name: [draw(r) for _, draw in columns] for name in people}
    bar = r.choice((" | ", ", ", "\t", "; "))
    lines = [bar.join(["name"] + [title for title, _ in columns])]
    lines += [bar.join([name] + cells) for name, cells in rows.items()]
    asked = []
    for name in r.sample(people, 2):
        column = r.randrange(2)
        title = columns[column][0]
        question = r.choice((f"What is the {title} of {name} in the table?",
                             f"Which {title} does the table have for {name}?"))
        asked.append((question, f"The {title} of {name} is", rows[name][column]))
    return Fact("table", ["\n".join(lines)], asked)


def glossary(r):
    """Invented words with what they mean, one in a line."""
    words = {invented(r): d for d in r.sample(DEFINITIONS, entries(r, 6))}
    text = "\n".join(f"{word}: {meaning}" for word, meaning in words.items())
    asked = [(f"What does {word} mean?", f"{word} means", words[word])
             for word in r.sample(sorted(words), 2)]
    return Fact("glossary", ["Glossary\n" + text], asked)


def draw_fact(r):
    """A fact of any kind."""
    form = r.choices((None, alike, two_sentences, settings, table, glossary),
                     (10, 4, 2, 2, 2, 1))[0]
    return form(r) if form else simple(r)[0]
