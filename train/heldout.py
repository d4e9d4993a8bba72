#!/usr/bin/env python3
"""Documents to judge methods on that were not trained on: licence texts with something inserted,
a question at the end, and the literal answer.

    train/heldout.py -m MODEL -o FOLDER -n 60 --tokens 1100 --seed 1

writes, for examples/compare.sh -m MODEL -d FOLDER, 0001-needle.txt (the prompt, chat template
included), 0001-needle.answer (compare.sh -k takes the kind from the name), ..., and manifest.tsv:
name, kind, lead, depth, tokens, source, seed. The same seed, texts and model give the same bytes.
The kinds take turns, so that the first N documents hold all of them. Some prompts end where the
model's turn begins, others have the first words of the answer behind that (--lead).

Kinds; none of these wordings is for training, nor are the licences:
    needle      RULER's single needle: a magic number for a word
    multikey    the same, with a needle for another word before it
    multivalue  the same, with two numbers for the word; the answer has both
    passkey     "The pass key is 40713. Remember it."
    table       the value of a key in a JSON object of two
    directory   the extension of a name, among two, in two columns
    clause      a literal in a sentence of a lawyer's style
They are as hard as SmolLM2-135M-Instruct can bear: with its full cache 57 of 60 answers to prompts
of 1100 tokens are right. With four other needles, or eight keys or names, it was one of twelve.

Standard library only; kv-tokenize, which counts tokens, comes from the PATH or build/.
"""

import argparse
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LICENCES = "/usr/share/common-licenses"
SMOLLM = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
          "Face<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")

WORDS = """anchor basket candle dragon engine falcon garden harbor island jacket kettle lantern
marble needle orchid pepper quarry ribbon saddle temple umbrella velvet walnut yellow
zipper""".split()
SURNAMES = """Abernathy Bancroft Caldwell Dunmore Eastwood Fairbanks Galloway Hathaway Ingram
Jennings Kensington Lockhart Merriweather Northcote Ogilvie Pemberton Quimby Rutherford Sedgwick
Thornton Underhill Vandermeer Whitaker Yardley Zimmerman""".split()
PLACES = """Aldermoor Brindleford Castlewick Dunharrow Elmsworth Fernhollow Glenbarrow Hartsmere
Kingsbourne Larkfield Millbrook Netherby Oakhampton Penrose Ravenglass Stonebridge Thistleton
Wexcombe""".split()

# sentence, question, lead; {} is a place
CLAUSES = (
    ("Any notice required hereunder shall be deemed duly served when delivered by hand to the "
     "registered office at {}.",
     "In which town is the registered office to which notices are delivered?",
     "The registered office is at"),
    ("All disputes arising herefrom shall be heard exclusively before the tribunal seated in {}.",
     "In which town is the tribunal seated that hears all disputes?",
     "The tribunal is seated in"),
    ("Surplus copies shall be surrendered, at the bearer's sole expense, to the warehouse in {}.",
     "In which town is the warehouse to which surplus copies are surrendered?",
     "The warehouse is in"),
)


def number(rng, digits):
    return str(rng.randrange(10 ** (digits - 1), 10 ** digits))


def magic(word, value):
    return f"One of the special magic numbers for {word} is: {value}."


def make_needle(rng, others=0):
    words = rng.sample(WORDS, 1 + others)
    values = [number(rng, 7) for _ in words]
    asked = f"the special magic number for {words[0]} mentioned in the provided text"
    return ([magic(*pair) for pair in zip(words, values)], f"What is {asked}?",
            asked[0].upper() + asked[1:] + " is", values[0])


def make_multikey(rng):
    return make_needle(rng, 1)


def make_multivalue(rng):
    word = rng.choice(WORDS)
    values = [number(rng, 5) for _ in range(2)]
    asked = f"the special magic numbers for {word} mentioned in the provided text"
    return ([" ".join(magic(word, value) for value in values)], f"What are all {asked}?",
            asked[0].upper() + asked[1:] + " are", "\n".join(values))


def make_passkey(rng):
    value = number(rng, 5)
    return ([f"The pass key is {value}. Remember it. {value} is the pass key."],
            "What is the pass key?", "The pass key is", value)


def make_table(rng):
    keys = rng.sample(WORDS, 2)
    values = [number(rng, 6) for _ in keys]
    asked = rng.randrange(len(keys))
    lines = ",\n".join(f'  "{key}": {value}' for key, value in zip(keys, values))
    return (["{\n" + lines + "\n}"],
            f'In the JSON object above, what is the value of "{keys[asked]}"?',
            f'  "{keys[asked]}":', values[asked])


def make_directory(rng):
    names = rng.sample(SURNAMES, 2)
    values = [number(rng, 4) for _ in names]
    asked = rng.randrange(len(names))
    lines = [f"{name}: {value}" for name, value in zip(names, values)]
    return (["Name: Extension\n" + "\n".join(lines)],
            f"What is the extension of {names[asked]}?",
            f"Name: Extension\n{names[asked]}:", values[asked])


def make_clause(rng):
    place = rng.choice(PLACES)
    sentence, question, lead = rng.choice(CLAUSES)
    return [sentence.format(place)], question, lead, place


# Each returns what is inserted, the question, the first words of the answer, and the answer. What
# is asked for stands in the first of the inserted paragraphs.
KINDS = {
    "needle": make_needle, "multikey": make_multikey, "multivalue": make_multivalue,
    "passkey": make_passkey, "table": make_table, "directory": make_directory,
    "clause": make_clause,
}
# Of these a model of 135 M parameters answers few unless its answer is begun.
LED = ("multikey", "table", "directory", "clause")


def count_tokens(model, text):
    run = subprocess.run(["kv-tokenize", "-q", "-m", model, "--count"], input=text.encode(),
                         stdout=subprocess.PIPE, check=True)
    return int(run.stdout)


def read_paragraphs(paths):
    """(name, paragraph) of the files one after the other, symbolic links aside."""
    files = []
    for path in paths:
        if os.path.isdir(path):
            files += [os.path.join(path, name) for name in sorted(os.listdir(path))]
        else:
            files.append(path)
    paragraphs = []
    for path in files:
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            for paragraph in re.split(r"\n[ \t\f]*\n", file.read()):
                if paragraph.strip():
                    paragraphs.append((os.path.basename(path), paragraph.strip("\n")))
    return paragraphs


def cut(paragraphs, start, characters):
    """Paragraphs from `start` on, and from the beginning again, of about so many characters."""
    chosen, size = [], 0
    for i in range(len(paragraphs)):
        paragraph = paragraphs[(start + i) % len(paragraphs)][1]
        if chosen and size + len(paragraph) / 2 > characters:
            break
        chosen.append(paragraph)
        size += len(paragraph) + 2
    return chosen


def insert(rng, paragraphs, inserted, depth):
    """The text with the first insertion at the share `depth` of the paragraphs, others before."""
    at = round(depth * len(paragraphs))
    places = [(at - 0.5, 1, inserted[0])]
    places += [(rng.randrange(at + 1) - 0.5, 0, text) for text in inserted[1:]]
    places += [(i, 0, paragraph) for i, paragraph in enumerate(paragraphs)]
    places.sort(key=lambda place: place[:2])
    return "\n\n".join(text for _, _, text in places)


def make_document(args, paragraphs, kind, lead, depth, seed):
    """(prompt, answer, tokens, source). Rounds bring the length near to what is wanted."""
    rng = random.Random(seed)
    inserted, question, begin, answer = KINDS[kind](rng)
    start = rng.randrange(len(paragraphs))
    state = rng.getstate()
    characters = 4 * args.tokens
    for _ in range(3):
        rng.setstate(state)
        text = insert(rng, cut(paragraphs, start, characters), inserted, depth)
        prompt = args.template.replace("{}", text + "\n\n" + question) + (begin if lead else "")
        tokens = count_tokens(args.model, prompt)
        characters += (args.tokens - tokens) * len(text) // tokens
    return prompt, answer, tokens, paragraphs[start][0]


def write(path, text):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def read_template(parser, args):
    """The template of the option, or SmolLM2's where the model has it."""
    if args.template:
        with open(args.template, encoding="utf-8", newline="") as file:
            template = file.read()
        if template.count("{}") != 1:
            parser.error(f"{args.template}: there must be one {{}} for the text")
        return template
    try:
        with open(os.path.join(args.model, "tokenizer_config.json"), encoding="utf-8") as file:
            known = "You are a helpful AI assistant named SmolLM" in file.read()
    except OSError:
        known = False
    if not known:
        parser.error(f"{args.model} has not the chat template of SmolLM2: name one with --template")
    return SMOLLM


def parse():
    parser = argparse.ArgumentParser(
        description="write held-out documents for compare.sh -d",
        epilog="kinds: " + " ".join(KINDS))
    parser.add_argument("-m", "--model", required=True, help="model folder, whose tokens count")
    parser.add_argument("-o", "--out", required=True, help="folder, made when it is not there")
    parser.add_argument("-n", type=int, default=60, help="how many documents (60)")
    parser.add_argument("--tokens", type=int, default=1100, help="of a prompt, about (1100)")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS),
                        metavar="KIND", help="which kinds (all)")
    parser.add_argument("--lead", choices=("all", "some", "none"), default="some",
                        help="which prompts have the first words of the answer (some: all of "
                        + ", ".join(LED) + ", each other one of the rest)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--template", metavar="FILE",
                        help="the chat template as it stands around the text, with {} for that")
    parser.add_argument("--texts", nargs="+", default=[LICENCES], metavar="PATH",
                        help=f"files and folders to take paragraphs from ({LICENCES})")
    args = parser.parse_args()
    if args.n < 1 or args.tokens < 1:
        parser.error("need -n >= 1 and --tokens >= 1")
    args.template = read_template(parser, args)
    return parser, args


def main():
    parser, args = parse()
    build = os.path.join(HERE, "..", os.environ.get("O", "build"))
    os.environ["PATH"] += os.pathsep + build
    paragraphs = read_paragraphs(args.texts)
    if not paragraphs:
        parser.error("there is no text in " + " ".join(args.texts))
    os.makedirs(args.out, exist_ok=True)
    if os.listdir(args.out):
        parser.error(f"{args.out} is not empty")
    manifest = ["name\tkind\tlead\tdepth\ttokens\tsource\tseed"]
    for i in range(args.n):
        turn, which = divmod(i, len(args.kinds))
        kind = args.kinds[which]
        lead = args.lead == "all" or (args.lead == "some" and (kind in LED or turn % 2 == 1))
        # The golden ratio spreads any number of depths evenly. At the very beginning, where the
        # attention sinks are, a small model finds little.
        depth = 0.1 + 0.8 * ((turn * 0.6180339887 + which / len(args.kinds)) % 1)
        prompt, answer, tokens, source = make_document(args, paragraphs, kind, lead, depth,
                                                       f"{args.seed} {kind} {turn}")
        name = f"{i + 1:04}-{kind}"
        write(os.path.join(args.out, name + ".txt"), prompt)
        write(os.path.join(args.out, name + ".answer"), answer + "\n")
        manifest.append(f"{name}\t{kind}\t{int(lead)}\t{depth:.2f}\t{tokens}\t{source}"
                        f"\t{args.seed}")
    write(os.path.join(args.out, "manifest.tsv"), "\n".join(manifest) + "\n")


if __name__ == "__main__":
    sys.exit(main())
