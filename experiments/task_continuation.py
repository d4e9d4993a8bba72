"""Language modelling: a passage of a text, and the tokens that follow it. Nothing is asked.

The text is cut into equal parts, as many as fit behind each other, and each question takes another
one by chance; so passages never overlap, and more questions begin with the same ones. Within its
part a passage begins by chance where the texts of the passage and of what follows have, each for
itself, the same token ids as in the whole text. So no character is cut, nor a word that would then
be other tokens.
"""

import random

from task_records import TaskError

SLACK = 64      # tokens of a part that are left for choosing where its passage begins


def ids_around(tokenizer):
    """How many tokens of a prompt are not those of its context."""
    record = {"context": "It is so.", "question": "", "answer_prefix": ""}
    return tokenizer.count(record) - len(tokenizer.text_ids(record["context"]))


class Parts:
    """The token ids of the haystack, where its parts begin, and which one a question takes."""

    def __init__(self, options, tokenizer):
        self.size = options.tokens - ids_around(tokenizer)
        if self.size < 1:
            raise TaskError(f"--tokens {options.tokens}: the chat template alone takes as many")
        self.end = self.size + options.answer_tokens
        self.ids = tokenizer.text_ids(options.haystack.text)
        self.part = self.end + SLACK
        count = len(self.ids) // self.part
        if options.n > count:
            raise TaskError(f"-n {options.n}: {options.haystack.name} has {len(self.ids)} tokens, "
                            f"in which {count} passages fit: each takes {self.size}, the "
                            f"{options.answer_tokens} that follow and {SLACK} to choose from")
        self.order = list(range(count))
        random.Random(f"{options.seed} order").shuffle(self.order)

    def places(self, options):
        """Where the passage of a question may begin, in the order in which they are tried."""
        first = self.order[options.index] * self.part
        rng = random.Random(f"{options.seed} {options.task} {options.index}")
        return [first + offset for offset in rng.sample(range(SLACK + 1), SLACK + 1)]


def text_of(tokenizer, ids):
    """The text that has these ids, None where there is none."""
    try:
        text = tokenizer.text(ids)
    except UnicodeDecodeError:      # a part of a character
        return None
    same = text.strip() and ids in (tokenizer.text_ids(text), tokenizer.text_ids(text, behind=True))
    return text if same else None


def make_continuation(options, tokenizer):
    """(record, its prompt's tokens): a passage of the haystack and the tokens behind it."""
    parts = options.parts
    for place in parts.places(options):
        ids = parts.ids[place:place + parts.end]
        context = text_of(tokenizer, ids[:parts.size])
        answer = context and text_of(tokenizer, ids[parts.size:])
        if not answer:
            continue
        record = {"context": context, "question": "", "answer_prefix": "", "answers": [answer],
                  "new_tokens": options.answer_tokens, "depth": None}
        prompt = tokenizer.prompt_ids(record)
        if tokenizer.chat == "none" and prompt[-parts.size:] != ids[:parts.size]:
            continue
        if len(prompt) <= options.tokens:
            return record, len(prompt)
    raise TaskError(f"{options.haystack.name}: from token {parts.order[options.index] * parts.part}"
                    f" on no passage of {parts.size} tokens and {options.answer_tokens} more has "
                    "the same tokens as in the text")
