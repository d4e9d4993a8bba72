#!/usr/bin/env python3
"""Records what public implementations of metrics say, for tests/experiments_tasks.bats.

    metrics_recorded.py --longbench FILE --ruler FILE > tests/fixtures/metrics.json

FILEs are LongBench's metrics.py and RULER's scripts/eval/synthetic/constants.py, which are not part
of this tree. Needs rouge 1.0.1, fuzzywuzzy 0.18.0 (without python-Levenshtein), jieba 0.42.1,
transformers (SQuAD's exact match) and pytrec-eval-terrier 0.5.11 (NDCG).
"""

import argparse
import importlib.util
import json
import sys

WORDS = [
    ("The cat sat on the mat.", ["a cat sat on a mat"]),
    ("Paris", ["paris", "Paris, France"]),
    ("It is Paris, the capital of France!", ["Paris", "the capital"]),
    ("", ["nothing"]),
    ("the", ["a"]),
    ("...", ["full stop"]),
    ("in  1984,\tor 1985", ["1984", "1986"]),
    ("Don't know; it's O'Neill-Smith", ["O'Neill Smith", "oneillsmith"]),
    ("Zoë's café", ["zoë’s café", "Zoes cafe"]),
    ("yes yes yes no", ["yes no", "no"]),
    ("A report of rules. It has two parts. The first is long.",
     ["The report has two parts. Rules are long. It is the first."]),
    ("one two three four five. six seven", ["five four three two one", "seven. six"]),
    (" leading. . and empty.. sentences ", ["and sentences leading"]),
    ("word " * 60, ["word other " * 30]),
]
CHINESE = [
    ("北京是中国的首都。", ["中国的首都是北京", "上海"]),
    ("", ["答案"]),
    ("他在一九八四年出生，后来去了上海。", ["他出生于一九八四年。"]),
    ("会议 讨论了 预算！", ["会议讨论了预算", "预算"]),
]
CODE = [
    ("    return x + 1\n", ["    return x + 1"]),
    ("# comment\n// more\n```python\nfor i in range(10):\n", ["for i in range(9):"]),
    ("\n\nself.value = value", ["self.values = values"]),
    ("# only comments", ["x = 1"]),
    ("", [""]),
    ("x", [""]),
    ("abcdefghij" * 30, ["abcdefghi" * 30]),
    ("def f(a, b):", ["def g(b, a):", "def f(a, c):"]),
]
CLASSES = ["Food", "Food and drink", "Place", "Other place", "Animal", "Number", "Number of people"]
CLASSIFICATION = [
    ("Food", ["Food"]), ("Food and drink", ["Food and drink"]), ("Food or Place", ["Food"]),
    ("Number of people", ["Number of people"]), ("Number of people", ["Number"]),
    ("none", ["Food"]),
    ("Food and drink, Number of people, Place", ["Food and drink"]),
]
NUMBERS = [("12", ["12"]), ("12 or 13", ["12"]), ("112", ["12"]), ("no", ["3"]),
           ("3, 3, 4", ["3", "4"])]
PARAGRAPHS = [("Paragraph 12", ["Paragraph 12"]), ("Paragraphs 1 and 12", ["Paragraph 1"]),
              ("the first", ["Paragraph 1"])]
PARAGRAPHS_ZH = [("段落12", ["段落12"]), ("段落1，2", ["段落2"])]
MATCHES = [
    ("The numbers are 123 and 456.", ["123", "456", "789"]), ("PARIS", ["paris"]), ("", ["x"]),
    ("a\x01b 12", ["b 12"]), ("uuid ABCD-ef", ["abcd-EF", "zz"]),
]
RANKINGS = [
    ("d1 > d2 > d3", {"d1": 2, "d2": 0, "d3": 1}), ("d3 > d1 > d2", {"d1": 2, "d2": 0, "d3": 1}),
    ("d3", {"d1": 2, "d2": 0, "d3": 1}), ("d2 > d2 > d1", {"d1": 1, "d2": 1, "d3": 3}),
    (" > ".join(f"p{i}" for i in range(15)), {f"p{i}": i % 4 for i in range(15)}),
    (" > ".join(f"p{i}" for i in range(14, -1, -1)), {f"p{i}": i % 3 for i in range(15)}),
]


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ndcg(ranking, relevance):
    import pytrec_eval
    names = list(dict.fromkeys(ranking.split(" > ")))
    run = {"q": {name: float(len(names) - i) for i, name in enumerate(names)}}
    measure = pytrec_eval.RelevanceEvaluator({"q": relevance}, {"ndcg_cut.10"})
    return measure.evaluate(run)["q"]["ndcg_cut_10"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longbench", required=True)
    parser.add_argument("--ruler", required=True)
    options = parser.parse_args()
    try:
        import Levenshtein      # noqa: F401
        sys.exit("without the package Levenshtein: fuzzywuzzy would take it")
    except ImportError:
        pass
    bench, ruler = load(options.longbench, "longbench"), load(options.ruler, "ruler")
    from transformers.data.metrics import squad_metrics
    cases = []

    def record(metric, rows, score, **more):
        for prediction, answers in rows:
            value = max(float(score(prediction, answer, **{
                "all_classes": more.get("classes")})) for answer in answers)
            cases.append({"metric": metric, "prediction": prediction, "answers": answers,
                          "score": value, **more})

    def squad(prediction, answer, **_):
        return squad_metrics.compute_exact(answer, prediction)

    record("f1", WORDS, bench.qa_f1_score)
    record("exact", WORDS, squad)
    record("rouge_l", WORDS, bench.rouge_score)
    record("f1_zh", CHINESE, bench.qa_f1_zh_score)
    record("rouge_l_zh", CHINESE, bench.rouge_zh_score)
    record("edit_similarity", CODE, bench.code_sim_score)
    record("classification", CLASSIFICATION, bench.classification_score, classes=CLASSES)
    record("count", NUMBERS, bench.count_score)
    record("retrieval", PARAGRAPHS, bench.retrieval_score)
    record("retrieval_zh", PARAGRAPHS_ZH, bench.retrieval_zh_score)
    for name, score in (("substring", ruler.string_match_all),
                        ("substring_any", ruler.string_match_part)):
        for prediction, answers in MATCHES:
            # both give percent with two digits
            cases.append({"metric": name, "prediction": prediction, "answers": answers,
                          "score": score([prediction], [answers]) / 100, "tolerance": 5.1e-5})
    for ranking, relevance in RANKINGS:
        cases.append({"metric": "ndcg_10", "prediction": ranking, "answers": list(relevance),
                      "relevance": relevance, "score": ndcg(ranking, relevance)})
    print("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]")


if __name__ == "__main__":
    main()
