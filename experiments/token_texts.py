"""What each token of a text stands for, by kv-tokenize -d.

All tokens are decoded in one call, with a mark between them: a character that the text does not
have. Tokens that are pieces of one character have no text of their own, and are put together.
"""

import itertools

from task_prompts import Tokenizer, call
from task_records import TaskError

MARKS = "\ue000\ue001\u2404\u241e\u25ca|~^"
BROKEN = "\ufffd"
LONGEST = 8         # tokens that are put together; a character has at most four bytes
MODEL = 4           # kvpipe(7), EXIT STATUS


class Decoder:
    def __init__(self, model, ids):
        self.model = model
        Tokenizer(model).text_ids("a")      # from here on what is refused is an id
        self.text = self.decode(ids)
        self.mark, self.mark_ids, self.front = self.find_mark()

    def decode(self, ids):
        try:
            lines = "".join(f"{i}\n" for i in ids)
            out = call(["kv-tokenize", "-q", "-m", self.model, "-d"], lines)
        except TaskError as error:
            message = f"{self.model}: not the tokenizer of the text: {error}"
            raise TaskError(message, MODEL) from None
        return out.decode("utf-8")

    def find_mark(self):
        """A mark, its ids, and what these have in front of it: SentencePiece writes a space."""
        tokenizer = Tokenizer(self.model)
        for mark in MARKS:
            ids = tokenizer.text_ids(mark)
            parts = self.decode(ids * 3).split(mark)
            if mark not in self.text and ids and len(parts) == 4 and parts[3] == "":
                return mark, ids, parts[1]
        raise TaskError(f"{self.model}: the text has all characters that could stand between its "
                        "tokens")

    def each(self, pieces):
        """The text of each list of ids."""
        marked = itertools.chain(self.mark_ids, *((*ids, *self.mark_ids) for ids in pieces))
        texts = self.decode(marked).split(self.mark)[1:-1]
        if len(texts) != len(pieces):
            raise TaskError(f"{self.model}: its tokenizer does not give tokens one by one")
        return [text[:len(text) - len(self.front)] for text in texts]


def token_texts(model, ids):
    """(first, n, text) of ids: mostly n is 1."""
    decoder = Decoder(model, ids)
    texts = decoder.each([[i] for i in ids])
    broken = [place for place, text in enumerate(texts) if BROKEN in text]
    windows = [ids[place:place + n] for place in broken for n in range(2, LONGEST + 1)]
    joined = iter(decoder.each(windows)) if windows else iter(())
    whole = {place: [next(joined) for _ in range(2, LONGEST + 1)] for place in broken}
    groups, place = [], 0
    while place < len(ids):
        n, text = 1, texts[place]
        if BROKEN in text:
            n, text = together(text, whole[place][:len(ids) - place - 1])
        groups.append((place, n, text))
        place += n
    return groups


def together(alone, joined):
    """How many tokens are put together, and their text: the fewest that are whole characters, or as
    many as are one character that is broken off, or U+FFFD itself. joined: texts of 2, 3, ...
    tokens."""
    n, text = 1, alone
    for more, one in enumerate(joined, 2):
        if BROKEN not in one:
            return more, one
        if one == BROKEN:
            n, text = more, one
    return n, text
