"""Documents with a question at the end: what the demo model is tried on.

A document is filler sentences with a few needles among them ("The access code of Marlow is K742.")
and ends in a question for one of the needles. The answer is what the model should say, up to the
full stop.

    documents.py --n 100 --tokens 1000 --needles 6 --kind code --digits 3 --seed 1 --out DIR

writes DIR/0001.txt, DIR/0001.answer, DIR/0002.txt, ...

Standard library only.
"""

import argparse
import os
import random

from bpe import load_tokenizer
from corpus import (KINDS, MIXED_KINDS, NAMES, SECRET_WORDS, access_code, filler_sentence, needle,
                    question)

HERE = os.path.dirname(os.path.abspath(__file__))


def draw_facts(rng, count, kind, digits):
    """(kind, name, value) of each needle, all names different. The first has the wanted kind."""
    names = rng.sample(NAMES, count)
    kinds = [kind] + [rng.choice(MIXED_KINDS) for _ in names[1:]]
    return [(kind, name, access_code(rng, digits) if kind == "code" else rng.choice(SECRET_WORDS))
            for kind, name in zip(kinds, names)]


def draw_filler(rng, tokenizer, room):
    """Sentences, as ids, that fill the room; the first that does not fit ends it."""
    sentences = []
    while room > 0:
        ids = tokenizer.encode(" " + filler_sentence(rng))
        if len(ids) > room:
            break
        sentences.append(ids)
        room -= len(ids)
    return sentences


def sentence_at(sentences, depth):
    """The number of the first sentence that starts at or after this share of the tokens."""
    target = depth * sum(map(len, sentences))
    before = 0
    for i, ids in enumerate(sentences):
        if before >= target:
            return i
        before += len(ids)
    return len(sentences)


def make_prompt(tokenizer, rng, tokens, needles, kind="code", depth=None, digits=3):
    """A prompt of about `tokens` tokens, the begin token and the question included: a sentence
    shorter, or a few tokens longer, since the first word stands without a space and may be split.

    depth: where the needle that is asked for stands, 0 .. 1; None draws it.
    digits: of access codes; 0 mixes two to four.
    Returns (ids, answer, text, depth).
    """
    facts = draw_facts(rng, needles, kind, digits)
    asked_kind, asked_name, answer = facts[0]
    ending = question(asked_kind, asked_name)
    facts_ids = [tokenizer.encode(" " + needle(*fact)) for fact in facts]
    room = tokens - 1 - len(tokenizer.encode(ending)) - sum(map(len, facts_ids))
    if room < 0:
        raise ValueError(f"{needles} needles and the question need {tokens - room} tokens")
    sentences = draw_filler(rng, tokenizer, room)
    if depth is None:
        depth = rng.random()

    # (sentence that it precedes, order among those before one sentence, ids)
    items = [(i, 1, ids) for i, ids in enumerate(sentences)]
    items.append((sentence_at(sentences, depth) - 0.5, 0, facts_ids[0]))
    items += [(rng.randrange(len(sentences) + 1) - 0.5, 2, ids) for ids in facts_ids[1:]]
    items.sort(key=lambda item: item[:2])

    body = [i for _, _, ids in items for i in ids]
    text = tokenizer.decode(body)[1:] + "\n" + ending
    return [tokenizer.bos] + tokenizer.encode(text), answer, text, depth


def write_text(path, text):
    with open(path, "w", encoding="ascii", newline="") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(
        description="write documents with needles, a question and the expected answer")
    parser.add_argument("--n", type=int, default=100, help="how many documents (100)")
    parser.add_argument("--tokens", type=int, default=1000, help="length in tokens, about (1000)")
    parser.add_argument("--needles", type=int, default=6, help="facts in a document (6)")
    parser.add_argument("--kind", choices=sorted(KINDS), default="code", help="asked for (code)")
    parser.add_argument("--digits", type=int, default=3,
                        help="digits of an access code after its letter (3); 0: two to four")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True, help="folder, made when it is not there")
    args = parser.parse_args()
    if args.n < 1 or not 1 <= args.needles <= len(NAMES) or args.digits < 0:
        parser.error(f"need --n >= 1, 1 <= --needles <= {len(NAMES)}, --digits >= 0")

    tokenizer = load_tokenizer(os.path.join(HERE, "tokenizer.json"))
    rng = random.Random(args.seed)
    os.makedirs(args.out, exist_ok=True)
    for number in range(1, args.n + 1):
        try:
            _, answer, text, _ = make_prompt(tokenizer, rng, args.tokens, args.needles, args.kind,
                                             digits=args.digits)
        except ValueError as problem:
            parser.error(str(problem))
        path = os.path.join(args.out, f"{number:04}")
        write_text(path + ".txt", text)
        write_text(path + ".answer", answer + "\n")


if __name__ == "__main__":
    main()
