"""Scores of answers, as the benchmarks define them: METRICS has them by the name in a record.

Each is a function (prediction, answers, record) -> number from 0 to 1, and takes the best over the
answers where nothing else is said. Where a record has `first_line`, only the first line of the
prediction that is not empty counts (LongBench's few-shot tasks).

Libraries: rouge (LongBench's) for rouge_l and rouge_l_zh, jieba for f1_zh and rouge_l_zh.
"""

import difflib
import math
import re
import string
from collections import Counter

from task_records import UNGRADED, TaskError

CHINESE_PUNCTUATION = ("！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕"
                       "〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏.")
DROPPED = str.maketrans("", "", string.punctuation)
DROPPED_ZH = str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION)


def best(score):
    """The metric that is the best of score(prediction, answer) over the answers."""
    def metric(prediction, answers, record):
        return max(float(score(prediction, answer)) for answer in answers)
    metric.__doc__ = score.__doc__
    return metric


def normalize(text):
    """SQuAD's: lower case, without punctuation, articles and superfluous space."""
    text = text.lower().translate(DROPPED)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


@best
def exact(prediction, answer):
    """SQuAD's exact match: equal when both are normalised."""
    return normalize(prediction) == normalize(answer)


@best
def sub_em(prediction, answer):
    """SubEM: the normalised answer stands in the normalised prediction."""
    return normalize(answer) in normalize(prediction)


def found(prediction, answers, control="\n"):
    """RULER's: which answers stand in the prediction, upper case or lower. control: what a control
    character becomes."""
    prediction = re.sub(r"[\x00-\x1f]", control, prediction.strip()).strip().lower()
    return [float(answer.lower() in prediction) for answer in answers]


def substring(prediction, answers, record):
    """RULER's string_match_all: the share of the answers that stand in the prediction."""
    hits = found(prediction, answers)
    return sum(hits) / len(hits)


def substring_any(prediction, answers, record):
    """RULER's string_match_part: whether one of the answers stands in the prediction."""
    return max(found(prediction, answers))


def substring_joined(prediction, answers, record):
    """As substring, in the prediction without control characters, line ends among them
    (kvpress)."""
    hits = found(prediction, answers, "")
    return sum(hits) / len(hits)


def substring_any_joined(prediction, answers, record):
    """As substring_any, in the prediction without control characters (kvpress)."""
    return max(found(prediction, answers, ""))


def f1_of_words(said, right):
    same = sum((Counter(said) & Counter(right)).values())
    if not same:
        return 0.0
    precision, recall = same / len(said), same / len(right)
    return 2 * precision * recall / (precision + recall)


@best
def f1(prediction, answer):
    """LongBench's and SQuAD's F1 of the words of both, normalised."""
    return f1_of_words(normalize(prediction).split(), normalize(answer).split())


def cut_chinese(text):
    try:
        import jieba
    except ImportError:
        raise TaskError("Chinese metrics need the Python package jieba") from None
    jieba.setLogLevel("ERROR")
    return jieba.lcut(text, cut_all=False)


@best
def f1_zh(prediction, answer):
    """LongBench's F1 of Chinese words as jieba cuts them, without punctuation."""
    said, right = ([word for word in ("".join(w.lower().translate(DROPPED_ZH).split())
                                      for w in cut_chinese(text)) if word]
                   for text in (prediction, answer))
    return f1_of_words(said, right)


def rouge_l_of(prediction, answer):
    """ROUGE-L, F, of the package rouge; 0 where that refuses a text, as in LongBench."""
    try:
        from rouge import Rouge
    except ImportError:
        raise TaskError("rouge_l needs the Python package rouge") from None
    try:
        scores = Rouge(metrics=["rouge-l"]).get_scores(prediction, answer)
    except (ValueError, RecursionError):
        return 0.0
    return scores[0]["rouge-l"]["f"]


rouge_l = best(rouge_l_of)


@best
def rouge_l_zh(prediction, answer):
    """The same of Chinese words as jieba cuts them."""
    return rouge_l_of(" ".join(cut_chinese(prediction)), " ".join(cut_chinese(answer)))


@best
def edit_similarity(prediction, answer):
    """LongBench's for code: the likeness of the first line that is no comment, in whole percent.

    It is fuzzywuzzy's ratio without its optional package Levenshtein, as LongBench's requirements
    install it: that of difflib. With the optional package figures would be a little higher.
    """
    lines = prediction.lstrip("\n").split("\n")
    line = next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")
    if line == answer:
        return 1.0
    if not line or not answer:
        return 0.0
    return round(100 * difflib.SequenceMatcher(None, line, answer).ratio()) / 100


def classification(prediction, answers, record):
    """LongBench's: 1 / (number of classes named) where the right class is one of them.

    A class that is a part of the right one does not count as named. LongBench removes those from
    the list it walks through, so that the entry behind a removed one stays unseen; so do we, for
    equal figures.
    """
    def score(answer):
        named = [name for name in record["classes"] if name in prediction]
        i = 0
        while i < len(named):
            if named[i] in answer and named[i] != answer:
                named.remove(named[i])
            i += 1
        return 1 / len(named) if answer in named else 0.0
    return max(score(answer) for answer in answers)


def share_of_numbers(prediction, wanted):
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(wanted) / len(numbers) if numbers else 0.0


@best
def count(prediction, answer):
    """LongBench's: the share of the numbers in the prediction that are the right one."""
    return share_of_numbers(prediction, answer)


def retrieval_of(pattern):
    @best
    def metric(prediction, answer):
        """LongBench's: the same with the number of the paragraph that the answer names."""
        return share_of_numbers(prediction, re.search(pattern, answer).group(1))
    metric.pattern = pattern
    return metric


retrieval = retrieval_of(r"Paragraph (\d+)")
retrieval_zh = retrieval_of(r"段落(\d+)")


def ndcg_10(prediction, answers, record):
    """NDCG@10 as trec_eval has it: gain = relevance, discount = log2(rank + 1).

    The prediction is a ranking of ids, the best first, with anything but letters, digits, `_`, `.`
    and `-` between them; an id counts where it is first. The relevance of ids is the record's
    `relevance` ({"id": grade}), or 1 for each answer. Words that are no ids take no rank.
    """
    relevance = record.get("relevance") or {answer: 1 for answer in answers}
    words = dict.fromkeys(re.findall(r"[\w.-]*\w", prediction))
    ranking = [name for name in words if name in relevance]

    def dcg(grades):
        return sum(max(grade, 0) / math.log2(i + 2) for i, grade in enumerate(grades[:10]))

    ideal = dcg(sorted(relevance.values(), reverse=True))
    return dcg([relevance[name] for name in ranking]) / ideal if ideal else 0.0


METRICS = {
    "exact": exact, "sub_em": sub_em, "substring": substring, "substring_any": substring_any,
    "substring_joined": substring_joined, "substring_any_joined": substring_any_joined,
    "f1": f1, "f1_zh": f1_zh, "rouge_l": rouge_l, "rouge_l_zh": rouge_l_zh,
    "edit_similarity": edit_similarity, "classification": classification, "count": count,
    "retrieval": retrieval, "retrieval_zh": retrieval_zh, "ndcg_10": ndcg_10,
}


def check_metric(where, record):
    """Refuses a record that lacks what its metric needs."""
    name, answers = record["metric"], record["answers"]
    if name == UNGRADED:
        return
    if name not in METRICS:
        raise TaskError(f"{where}: there is no metric {name} (there are {', '.join(METRICS)})")
    classes = record.get("classes")
    if name == "classification" and not (
            isinstance(classes, list) and classes and all(isinstance(c, str) for c in classes)):
        raise TaskError(f"{where}: the metric classification needs classes, a list of texts")
    pattern = getattr(METRICS[name], "pattern", None)
    if pattern and not all(re.search(pattern, answer) for answer in answers):
        raise TaskError(f"{where}: the metric {name} needs answers like {pattern}")
    relevance = record.get("relevance", {})
    if name == "ndcg_10" and not (isinstance(relevance, dict) and all(
            isinstance(r, int) and not isinstance(r, bool) for r in relevance.values())):
        raise TaskError(f"{where}: relevance is not an object of whole numbers")


def grade(record, prediction):
    """The score of an answer to a question, by the metric that the question names."""
    if record.get("first_line"):
        prediction = prediction.lstrip("\n").split("\n")[0]
    return METRICS[record["metric"]](prediction, record["answers"], record)
