"""Texts in the language of the demo model, to train its head masks on.

    train_heads_texts.py FOLDER     writes FOLDER/filler.txt, FOLDER/task.json (heads.py --task),
                                    FOLDER/documents/*.txt: needles in filler, all asked for
"""

import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples",
                                "demo-model"))

from corpus import NAMES, SECRET_WORDS, filler_sentence, needle, question  # noqa: E402

DOCUMENTS, NEEDLES, SENTENCES = 100, 8, 16


def document(number):
    rng = random.Random(f"document {number}")
    facts = [("word", name, rng.choice(SECRET_WORDS)) for name in rng.sample(NAMES, NEEDLES)]
    sentences = [filler_sentence(rng) for _ in range(SENTENCES)]
    for fact in facts:
        sentences.insert(rng.randrange(len(sentences) // 2 + 1), needle(*fact))
    rng.shuffle(facts)
    return " ".join(sentences) + "".join(f"\n{question(kind, name)} {word}."
                                         for kind, name, word in facts)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def main():
    folder = sys.argv[1]
    rng = random.Random("filler")
    os.makedirs(os.path.join(folder, "documents"), exist_ok=True)
    write(os.path.join(folder, "filler.txt"),
          " ".join(filler_sentence(rng) for _ in range(4000)))
    for number in range(DOCUMENTS):
        write(os.path.join(folder, "documents", f"{number:04}.txt"), document(number))
    task = {"begin": "", "end": "", "before_needle": "", "after_needle": ".", "after_answer": ".",
            "needle": " The secret word of {name} is", "key": " ", "draw_names": True,
            "question": "\nQuestion: what is the secret word of {name}?\nAnswer:",
            "names": list(NAMES), "words": list(SECRET_WORDS)}
    write(os.path.join(folder, "task.json"), json.dumps(task))


main()
