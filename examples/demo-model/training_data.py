"""Training documents as token ids: with questions and answers, or as bare lists of pairs.

A batch is three arrays [B][T]: ids; the weight of predicting each id (1 answer, -1 background,
0 nothing); and 1 where an answer begins.
"""

import random

import numpy as np

from corpus import (KINDS, MIXED_KINDS, NAMES, SECRET_WORDS, access_code, filler_sentence)

ANSWER, BACKGROUND, NOTHING = 1.0, -1.0, 0.0


class Generator:
    """Draws documents from a seed. `name_count` and `word_count` narrow the pools."""

    def __init__(self, tokenizer, seed, pool=20000, pool_seed=7):
        self.tokenizer = tokenizer
        self.rng = random.Random(seed)
        encode = tokenizer.encode
        pool_rng = random.Random(pool_seed)
        self.filler = [encode(" " + filler_sentence(pool_rng)) for _ in range(pool)]
        self.name_ids = {name: encode(" " + name) for name in NAMES}
        self.word_ids = {word: encode(" " + word) for word in SECRET_WORDS}
        self.needle_ids = {kind: encode(f" The {text} of") for kind, text in KINDS.items()}
        self.question_ids = {kind: encode(f"Question: what is the {text} of")
                             for kind, text in KINDS.items()}
        self.question_end = encode("?\nAnswer:")
        self.verb = encode(" is")
        self.stop = encode(".")
        self.stop_line = encode(".\n")
        self.separator = encode(";")
        assert all(len(ids) == 1 for ids in (self.verb, self.stop, self.stop_line, self.separator))

        self.names = NAMES[:]
        self.words = SECRET_WORDS[:]
        random.Random(5).shuffle(self.names)
        random.Random(6).shuffle(self.words)
        self.name_count = len(NAMES)
        self.word_count = len(SECRET_WORDS)

    def draw_value(self, kind):
        if kind == "word":
            return self.word_ids[self.rng.choice(self.words[:self.word_count])]
        return self.tokenizer.encode(" " + access_code(self.rng))

    def draw_facts(self, count):
        """(kind, name, value ids). Some names carry both a code and a word: hard distractors."""
        rng = self.rng
        names = rng.sample(self.names[:self.name_count], count)
        keys = [(rng.choice(MIXED_KINDS), name) for name in names]
        for i in range(1, count):
            if rng.random() < 0.15:
                kind, name = keys[i - 1]
                other = (("code" if kind == "word" else "word"), name)
                if other not in keys:
                    keys[i] = other
        return [(kind, name, self.draw_value(kind)) for kind, name in keys]

    def pair_list(self, length):
        """ "name value;" for some facts, then again drawn with replacement: the second round is to
        be predicted, and cannot be had by elimination."""
        rng = self.rng
        words_only = rng.random() < 0.7
        count = min((length - 2) // (6 if words_only else 14), self.name_count - 1)
        kinds = rng.choices(("word",) if words_only else MIXED_KINDS, k=count)
        names = rng.sample(self.names[:self.name_count], count)
        facts = [(name, self.draw_value(kind)) for kind, name in zip(kinds, names)]
        ids, weights, first = [self.tokenizer.bos], [NOTHING], [0]
        for asked in (0, 1):
            if asked:
                facts = rng.choices(facts, k=count)
            for name, value in facts:
                key = self.name_ids[name]
                ids += key + value + self.separator
                weights += [NOTHING] * len(key) + [ANSWER * asked] * (len(value) + 1)
                first += [0] * len(key) + [asked] + [0] * len(value)
        return ids[:length], weights[:length], first[:length]

    def ask(self, facts):
        """Questions with their answers: ids, weights, first."""
        ids, weights, first = [], [], []
        for kind, name, value in facts:
            text = self.question_ids[kind] + self.name_ids[name] + self.question_end
            ids += text + value + self.stop_line
            weights += [BACKGROUND] * len(text) + [ANSWER] * (len(value) + 1)
            first += [0] * len(text) + [1] + [0] * len(value)
        return ids, weights, first

    def document(self, length, needles, questions):
        """Filler with needles among it, then questions about some of them."""
        rng = self.rng
        facts = self.draw_facts(needles)
        asked, asked_weights, asked_first = self.ask(rng.sample(facts, min(questions, needles)))
        sentences = [self.needle_ids[kind] + self.name_ids[name] + self.verb + value + self.stop
                     for kind, name, value in facts]
        room = length - 2 - len(asked) - sum(map(len, sentences))
        fillers = []
        while room > 0:
            sentence = self.filler[rng.randrange(len(self.filler))]
            if len(sentence) > room:
                break
            fillers.append(sentence)
            room -= len(sentence)
        sentences = fillers + sentences
        rng.shuffle(sentences)

        # the text starts without a space and ends with a newline
        decode, encode = self.tokenizer.decode, self.tokenizer.encode
        body = encode(decode(sentences[0])[1:]) + [i for ids in sentences[1:] for i in ids]
        body[-1] = self.stop_line[0]
        ids = [self.tokenizer.bos] + body + asked + [self.tokenizer.eos]
        weights = [NOTHING] + [BACKGROUND] * len(body) + asked_weights + [BACKGROUND]
        first = [0] * (1 + len(body)) + asked_first + [0]
        return ids[:length], weights[:length], first[:length]

    def batch(self, length, count, list_share, needles, questions):
        """count documents of this length; needles is a range (least, most)."""
        ids = np.full((count, length), self.tokenizer.pad, np.int64)
        weights = np.zeros((count, length), np.float32)
        first = np.zeros((count, length), np.int64)
        for row in range(count):
            if self.rng.random() < list_share:
                parts = self.pair_list(length)
            else:
                n = self.rng.randint(*needles)
                parts = self.document(length, n, min(max(1, (n + 1) // 2), questions))
            for array, part in zip((ids, weights, first), parts):
                array[row, :len(part)] = part
        return ids, weights, first
