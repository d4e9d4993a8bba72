"""Groups of prompts: a document with facts in it, and questions about it, in several forms.

The tokens that all prompts of a group begin with are the group's prefix. What the model answers is
not known here. Everything is drawn from a `random.Random`.
"""

import os
import random
import re
import sys

from lookahead_facts import draw_fact

LENGTHS = {200: 1, 300: 1, 400: 2, 550: 3, 700: 3, 850: 3, 1000: 3, 1200: 2, 1400: 1, 1600: 0.5}
# the longest prompt, whatever the tokens of the words
LONGEST = 1750
HEADS = ("", "", "", "Read the following text.\n\n", "Here is a document:\n\n", "Context:\n",
         "Text: ", "Below is a text, and after it a question.\n\n", "Document\n--------\n")
SYSTEMS = ("You are a helpful assistant.", "Answer the question with the help of the text.",
           "You answer questions about documents. Be brief.")
SUMMARIES = ("Summarize the text above in one sentence.", "What is the text above about?",
             "Which words in the text above are important?", "Give the text a title.",
             "Write a short summary of the text.", "List three topics of the text.",
             "Explain the main point of the text to a child.")
MARK = "\u2592DOCUMENT\u2592"


class Question:
    """What follows the document; answer: what a right response contains, None when any will do."""

    def __init__(self, kind, text, lead="", answer=None, limit=24):
        self.kind, self.text, self.lead = kind, text, lead
        self.answer, self.limit = answer, limit


class Group:
    """prefix: ids; tails: ids of each question; sources: what the text is from."""

    def __init__(self, prefix, tails, questions, sources, form):
        self.prefix, self.tails, self.questions = prefix, tails, questions
        self.sources, self.form = sources, form


def sentences_of(text):
    return [s for s in re.split(r"(?<=[.!?])\s+", text) if 8 <= len(s.split()) <= 40]


def draw_paragraphs(r, sources, tokenizer, room):
    """Neighbouring paragraphs of one source, or of several, about this many tokens; less where
    there is no more text."""
    paragraphs, used = [], []
    for _ in range(100):
        if room <= 0:
            break
        source = r.choice(sources)
        start = r.randrange(len(source.paragraphs))
        for paragraph in source.paragraphs[start:start + r.randint(2, 12)]:
            if paragraph in paragraphs:
                continue
            paragraphs.append(paragraph)
            room -= len(tokenizer(paragraph, add_special_tokens=False).input_ids)
            if room <= 0:
                break
        used.append(source)
    return paragraphs, used


def text_question(r, paragraphs, limit):
    """A question about the text itself, not about a fact that was put in."""
    paragraph = r.choice(paragraphs)
    found = sentences_of(paragraph)
    form = r.randrange(6) if found else 0
    if form == 0:
        return Question("summary", r.choice(SUMMARIES), limit=limit)
    sentence = r.choice(found)
    words = sentence.split()
    cut = r.randint(3, min(6, len(words) - 3))
    begin, rest = " ".join(words[:cut]), " ".join(words[cut:cut + 5])
    if form <= 2:
        ask = r.choice(("Repeat the sentence that begins with \"{b}\".",
                        "Copy the sentence from the text that starts with \"{b}\".",
                        "Quote the whole sentence beginning with: {b}"))
        lead = begin if r.random() < 0.5 else ""
        return Question("repeat", ask.format(b=begin), lead, rest, limit)
    if form == 3:
        ask = r.choice(("Complete this sentence from the text: {b}", "How does \"{b}\" go on?"))
        return Question("complete", ask.format(b=begin), begin if r.random() < 0.5 else "", rest,
                        limit)
    term = r.choice([word.strip(".,;:()\"'") for word in words if len(word) > 5] or words)
    ask = r.choice(("What does the text say about \"{t}\"?", "Explain {t} as the text does.",
                    "In what connection does the text mention {t}?"))
    return Question("about", ask.format(t=term), limit=limit)


def draw_questions(r, facts, paragraphs, most):
    """Questions about facts, with or without the beginning of the answer, and about the text."""
    asked = [(fact.kind, *one) for fact in facts for one in fact.asked]
    r.shuffle(asked)
    questions = []
    for kind, text, lead, answer in asked[:most - 1 - r.randrange(3)]:
        questions.append(Question(kind, text, lead if r.random() < 0.6 else "", answer))
    # one for all: the answers are written side by side, and the longest says when they end
    limit = r.choices((16, 24, 32, 48), (3, 4, 2, 1))[0]
    while len(questions) < most:
        questions.append(text_question(r, paragraphs, limit))
    return questions


def put_in(r, paragraphs, facts):
    """The document: pieces of facts stand between paragraphs, or between their sentences."""
    pieces = list(paragraphs)
    for text in (text for fact in facts for text in fact.text):
        place = r.randrange(len(pieces) + 1)
        sentences = re.split(r"(?<=[.!?])\s+", pieces[place]) if place < len(pieces) else []
        if "\n" not in text and len(sentences) > 1 and r.random() < 0.5:
            sentences.insert(r.randrange(1, len(sentences)), text)
            pieces[place] = " ".join(sentences)
        else:
            pieces.insert(place, text)
    many_lines = any("\n" in piece for piece in pieces)
    return r.choice(("\n\n", "\n\n", "\n" if many_lines else " ")).join(pieces)


def begin_ids(tokenizer):
    """What the tokenizer puts before a text of its own accord."""
    return tokenizer("").input_ids


def frame(r, tokenizer, form):
    """What stands before and behind document and question: (head, between, end)."""
    if form == "chat":
        messages = [{"role": "user", "content": MARK}]
        if r.random() < 0.25:
            messages.insert(0, {"role": "system", "content": r.choice(SYSTEMS)})
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        head, end = text.split(MARK)
        return head + r.choice(HEADS), r.choice(("\n\n", "\n\n", "\n", "\n\nQuestion: ")), end
    begin = tokenizer.decode(begin_ids(tokenizer))
    return (begin + r.choice(HEADS), r.choice(("\n\nQuestion: ", "\n\nQ: ", "\n\n")),
            r.choice(("\nAnswer:", "\nA:")))


def split_prefix(prompts):
    """(prefix, tails): the ids that all prompts begin with, and the rest of each, one at least."""
    shortest, count = min(map(len, prompts)) - 1, 0
    while count < shortest and len({prompt[count] for prompt in prompts}) == 1:
        count += 1
    return prompts[0][:count], [prompt[count:] for prompt in prompts]


def asked_group(r, tokenizer, sources, target, most):
    """A document with facts and questions, as a chat or as plain text."""
    form = "chat" if tokenizer.chat_template and r.random() < 0.75 else "plain"
    facts = [draw_fact(r) for _ in range(r.randint(4, 8))]
    room = target - sum(len(tokenizer(text).input_ids) for f in facts for text in f.text)
    paragraphs, used = draw_paragraphs(r, sources, tokenizer, max(room, 80))
    document = put_in(r, paragraphs, facts)
    questions = draw_questions(r, facts, paragraphs, most)
    head, between, end = frame(r, tokenizer, form)
    prompts = []
    for question in questions:
        lead = question.lead and (question.lead if form == "chat" else " " + question.lead)
        prompts.append(tokenizer(head + document + between + question.text + end + lead,
                                 add_special_tokens=False).input_ids)
    return Group(*split_prefix(prompts), questions, used, form)


def cut_group(r, tokenizer, sources, target):
    """Text without a question, cut at several places; or with a sentence begun once more."""
    paragraphs, used = draw_paragraphs(r, sources, tokenizer, target + 100)
    text = r.choice(("\n\n", "\n", " ")).join(paragraphs)
    ids = tokenizer(text).input_ids
    first = min(target, len(ids) - 60)
    cuts = sorted(r.sample(range(first + 1, first + 50), 3))
    prompts = [ids[:cut] for cut in cuts]
    questions = [Question("continue", "", limit=r.choice((24, 32, 48))) for _ in cuts]
    for sentence in r.sample(sentences_of(" ".join(paragraphs)[:3 * target]), 2):
        words = sentence.split()
        begin = "\n\n" + " ".join(words[:r.randint(4, 6)])
        prompts.append(ids[:first] + tokenizer(begin, add_special_tokens=False).input_ids)
        questions.append(Question("again", "", limit=24))
    return Group(*split_prefix(prompts), questions, used, "cut")


def document_group(seed, number, tokenizer, sources):
    """A document that nothing is asked about, with facts in it or without, as the beginning of a
    chat or of plain text. The group of this number is the same for the same seed."""
    r = random.Random(f"document {seed} {number}")
    while True:
        target = r.choices(list(LENGTHS), LENGTHS.values())[0]
        form = "chat" if tokenizer.chat_template and r.random() < 0.75 else "plain"
        facts = [draw_fact(r) for _ in range(r.randint(1, 8))] if r.random() < 0.7 else []
        room = target - sum(len(tokenizer(text).input_ids) for f in facts for text in f.text)
        paragraphs, used = draw_paragraphs(r, sources, tokenizer, max(room, 80))
        text = frame(r, tokenizer, form)[0] + put_in(r, paragraphs, facts)
        ids = tokenizer(text + r.choice(("", "\n", "\n\n", "\n\n")),
                        add_special_tokens=False).input_ids
        if len(ids) <= LONGEST:
            return Group(ids, [], [], used, form)


def text_group(seed, number, tokenizer, sources, most):
    """The group of this number: the same for the same seed, whatever groups are made with it."""
    r = random.Random(f"group {seed} {number}")
    while True:
        target = r.choices(list(LENGTHS), LENGTHS.values())[0]
        try:
            if r.random() < 0.12:
                group = cut_group(r, tokenizer, sources, target)
            else:
                group = asked_group(r, tokenizer, sources, target, most)
        except (ValueError, IndexError):
            continue            # a text without sentences, or too short to be cut
        if group.prefix and len(group.prefix) + max(map(len, group.tails)) <= LONGEST:
            return group


def demo_group(seed, number, tokenizer, most):
    """A document in the language of the demo model, and questions for its needles."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/demo-model")
    sys.path.insert(0, folder)
    try:
        import corpus
        from documents import draw_facts
    finally:
        sys.path.remove(folder)
    r = random.Random(f"demo {seed} {number}")
    kind = r.choice(corpus.MIXED_KINDS)
    facts = draw_facts(r, r.randint(most, most + 4), kind, r.choice((2, 3, 3, 4)))
    pieces = [corpus.needle(*fact) for fact in facts]
    pieces += [corpus.filler_sentence(r) for _ in range(r.randint(10, 70))]
    r.shuffle(pieces)
    text = " ".join(pieces) + "\n"
    questions = [Question(kind, "", "", value, 8) for kind, _, value in facts[:most]]
    prompts = [tokenizer(text + corpus.question(kind, name)).input_ids
               for kind, name, _ in facts[:most]]
    return Group(*split_prefix(prompts), questions, [], "demo")
