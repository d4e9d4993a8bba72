"""Questions to one of many passages, as RULER's QA has them.

Passages and questions come from a file in the JSON format of SQuAD, or are made: facts about towns
that are not there. See task_needles.py for what the functions get and return.
"""

import json

from task_records import TaskError
from task_words import COMPANIES, PEOPLE, RIVERS, TOWNS, number, pairs

PLACES = pairs(("", "Great ", "Little ", "Upper ", "Lower "), TOWNS)
MONTHS = """January February March April May June July August September October November
December""".split()


def read_squad(path):
    """(articles: lists of passages; questions: question, answers, article, passage)."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        articles, questions = [], []
        for article in data["data"]:
            articles.append([paragraph["context"] for paragraph in article["paragraphs"]])
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    answers = [answer["text"] for answer in asked["answers"]]
                    if not asked.get("is_impossible") and answers:
                        questions.append((asked["question"], list(dict.fromkeys(answers)),
                                          len(articles) - 1, paragraph["context"]))
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise TaskError(f"{path}: not in the format of SQuAD: {error!r}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path}: not JSON: {error}") from None
    if not questions:
        raise TaskError(f"{path}: there is no question with an answer in it")
    return articles, questions


def passage(rng, place, founder, company, people):
    river, year, month = rng.choice(RIVERS), rng.randrange(1100, 1900), rng.choice(MONTHS)
    return (f"{place} is a town of {people} people on the river {river}. It was founded in {year} "
            f"by {founder}. Most of those who live there work for {company}. A fair is held in "
            f"{month}.")


def made_passages(rng, size):
    """(passages, question, begin of the answer, answers): the first passage is asked about."""
    which = rng.randrange(3)
    places, founders = rng.sample(PLACES, len(PLACES)), rng.sample(PEOPLE, len(PEOPLE))
    firms = rng.sample(COMPANIES, len(COMPANIES))
    people = [str(value) for value in rng.sample(range(10001, 100000), size)]
    passages = [passage(rng, places[i], founders[i],
                        firms[i if i < 1 else 1 + i % (len(firms) - 1)], people[i])
                for i in range(size)]
    question, begin, answer = (
        (f"Who founded {places[0]}?", f"{places[0]} was founded by", founders[0]),
        (f"For which company do most of those work who live in {places[0]}?",
         f"Most of those who live in {places[0]} work for", firms[0]),
        (f"How many people live in {places[0]}?", f"{places[0]} is a town of", people[0]))[which]
    return passages, question, begin, [answer]


def ask_squad(options):
    """(question, answers, its passage, other passages of the article, those of other articles).

    Passages in which an answer stands are none of the others.
    """
    articles, questions = options.passages
    question, answers, article, own = questions[options.order[options.index % len(questions)]]
    near = dict.fromkeys(articles[article])
    far = dict.fromkeys(text for texts in articles for text in texts)
    near, far = ([text for text in texts if not any(a.lower() in text.lower() for a in answers)]
                 for texts in (near, far))
    known = set(near)
    return question, answers, own, near, [text for text in far if text not in known]


def squad_passages(rng, options, size):
    """The same from the file: first the other passages of the article, as RULER does."""
    question, answers, own, near, far = ask_squad(options)
    others = rng.sample(near, len(near)) + rng.sample(far, len(far))
    return [own] + others[:size - 1], question, "", answers


def most_passages(options):
    """How many passages there are for the question."""
    if options.passages:
        return 1 + sum(len(texts) for texts in ask_squad(options)[3:])
    return min(len(PLACES), len(PEOPLE))


def make_qa(rng, options, size, depth):
    """A question that one of `size` passages answers; `depth` is the place of that one.

    Differs from RULER: our wording; passages in which an answer stands are not among the others;
    passages are not repeated where there are too few.
    """
    place = rng.random() if depth is None else depth
    if options.passages:
        passages, question, begin, answers = squad_passages(rng, options, size)
    else:
        passages, question, begin, answers = made_passages(rng, size)
    first, others = passages[0], passages[1:]
    rng.shuffle(others)
    others.insert(round(place * len(others)), first)
    text = "\n\n".join(f"Passage {i}:\n{p}" for i, p in enumerate(others, 1))
    return {
        "context": "Read these passages. One of them answers the question at the end.\n\n" + text
                   + "\n\n",
        "question": "Answer with as few words as possible, taken from the passages.\n\n"
                    f"Question: {question}",
        "answer_prefix": f"Answer: {begin}".rstrip(),
        "answers": answers,
        "depth": place,
    }
