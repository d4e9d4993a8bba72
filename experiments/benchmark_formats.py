"""What is known of published benchmarks: fields, metrics, longest answers; prompts of our own.

LongBench by its `dataset`: metric and new tokens are those of its eval.py and dataset2maxlen.json;
the prompts are ours, neutral ones (its own can be given to read_benchmark.py as a file).
RULER by its task. kvpress's rows of RULER have the longest answer themselves.
"""

import re

from task_records import NAME, TaskError, need_answers

QUESTION = ("Read the text below, and answer the question behind it.\n\n{context}\n\n",
            "Answer with as few words as possible.\n\nQuestion: {input}\nAnswer:")
QUESTION_ZH = ("请阅读下面的内容，然后回答问题。\n\n{context}\n\n", "请只写出答案。\n\n问题：{input}\n回答：")
SUMMARY = ("Read the text below, of which you will write a summary.\n\n{context}\n\n",
           "Summarise the text above in about a page.\n\nSummary:")
SUMMARY_ZH = ("请阅读下面的内容。\n\n{context}\n\n", "请写出上文的总结。\n\n总结：")
QUERY = ("Read the transcript below.\n\n{context}\n\n",
         "Answer in one sentence or more from the transcript.\n\nQuery: {input}\nAnswer:")
EXAMPLES = ("Go on as the examples do.\n\n{context}\n", "{input}")
CODE = ("Go on with this code.\n\n{context}", "{input}\nThe next line of the code is:\n")
UNIQUE = ("Some of the paragraphs below may be there more than once.\n\n{context}\n\n",
          "How many different paragraphs are there? Answer with the number.\n\nNumber:")
SOURCE = ("Read the numbered paragraphs below.\n\n{context}\n\n",
          "This is a summary of one of them:\n\n{input}\n\nWhich one is it? Answer with its name, "
          "like \"Paragraph 1\".\n\nAnswer:")
SOURCE_ZH = ("请阅读下面编号的段落。\n\n{context}\n\n",
             "以下是其中一段的摘要：\n\n{input}\n\n它出自哪一段？请以“段落1”的格式回答。\n\n回答：")
# dataset: metric, new tokens, only the first line counts, prompt
LONGBENCH = {
    "narrativeqa": ("f1", 128, False, QUESTION),
    "qasper": ("f1", 128, False, QUESTION),
    "multifieldqa_en": ("f1", 64, False, QUESTION),
    "multifieldqa_zh": ("f1_zh", 64, False, QUESTION_ZH),
    "hotpotqa": ("f1", 32, False, QUESTION),
    "2wikimqa": ("f1", 32, False, QUESTION),
    "musique": ("f1", 32, False, QUESTION),
    "dureader": ("rouge_l_zh", 128, False, QUESTION_ZH),
    "gov_report": ("rouge_l", 512, False, SUMMARY),
    "qmsum": ("rouge_l", 512, False, QUERY),
    "multi_news": ("rouge_l", 512, False, SUMMARY),
    "vcsum": ("rouge_l_zh", 512, False, SUMMARY_ZH),
    "trec": ("classification", 64, True, EXAMPLES),
    "triviaqa": ("f1", 32, True, EXAMPLES),
    "samsum": ("rouge_l", 128, True, EXAMPLES),
    "lsht": ("classification", 64, True, EXAMPLES),
    "passage_count": ("count", 32, False, UNIQUE),
    "passage_retrieval_en": ("retrieval", 32, False, SOURCE),
    "passage_retrieval_zh": ("retrieval_zh", 32, False, SOURCE_ZH),
    "lcc": ("edit_similarity", 64, False, CODE),
    "repobench-p": ("edit_similarity", 64, False, CODE),
}
# how a name of a task begins: metric, new tokens
RULER = (
    ("niah", "substring", 128), ("vt", "substring", 30), ("cwe", "substring", 120),
    ("fwe", "substring", 50), ("qa", "substring_any", 32))
# kvpress's row, as in the data set simonjegou/ruler
KVPRESS = {"context", "question", "answer_prefix", "answer", "task", "max_new_tokens"}
PLAIN_TOKENS = 64
PLAIN = ("{context}\n\n", "{input}")
ANSWERS = ("answers", "answer", "outputs", "output")


def form_of(row):
    """Which benchmark's fields a row has: own, kvpress, longbench, ruler, plain."""
    if {"answers", "question", "context", "answer_prefix", "metric"} <= row.keys():
        return "own"
    if KVPRESS <= row.keys():
        return "kvpress"
    if "context" in row and ("dataset" in row or "all_classes" in row):
        return "longbench"
    if "input" in row and "outputs" in row and "context" not in row:
        return "ruler"
    return "plain"


def text_of(where, row, *names):
    """The first member of these names that is there, which must be a text."""
    for name in names:
        if row.get(name) is not None:
            if not isinstance(row[name], str):
                raise TaskError(f"{where}: {name} is not a text")
            return row[name]
    return None


def answers_of(where, row):
    for name in ANSWERS:
        if row.get(name) is not None:
            return need_answers(where, row[name])
    raise TaskError(f"{where}: there are no answers (none of {', '.join(ANSWERS)})")


def split_prompt(prompt):
    """(context, question): the question is the last line that is not blank."""
    cut = prompt.rstrip("\n").rfind("\n") + 1
    return prompt[:cut], prompt[cut:]


def fill(template, context, question):
    """(context, question) of a prompt: the first ends behind {context} and empty lines."""
    parts = re.split(r"(\{context\}|\{input\})", template)
    values = {"{context}": context, "{input}": question}
    end = parts.index("{context}") + 1
    first = "".join(values.get(part, part) for part in parts[:end])
    second = "".join(values.get(part, part) for part in parts[end:])
    blank = len(second) - len(second.lstrip("\n"))
    return first + second[:blank], second[blank:]


def read_texts(where, row, form, template):
    """(context, question) as the row, the benchmark's form and the user's template have them."""
    context = text_of(where, row, "context")
    question = text_of(where, row, "input", "question")
    prompt = text_of(where, row, "prompt") or (question if form == "ruler" else None)
    if form in ("own", "kvpress") and not template:
        return context, question or ""
    if context is None:
        if prompt is None:
            raise TaskError(f"{where}: there is neither a prompt nor a context")
        if template:
            raise TaskError(f"{where}: a prompt has no context that a template could take")
        return split_prompt(prompt)
    if question is None and form != "longbench":
        raise TaskError(f"{where}: there is a context, but neither input nor question")
    if not template:
        known = LONGBENCH.get(dataset_of(row))
        template = "".join(known[3] if known else PLAIN)
    return fill(template, context, question or "")


def dataset_of(row):
    """LongBench's name of the data set, which has _e behind it in LongBench-E."""
    name = row.get("dataset")
    return re.sub(r"_e$", "", name) if isinstance(name, str) else None


def facts_of(form, row, task):
    """(metric, new tokens, only the first line counts), None where nothing is known."""
    if form == "longbench":
        return LONGBENCH.get(dataset_of(row) or task, (None, None, False))[:3]
    if form in ("ruler", "kvpress"):
        for begin, metric, tokens in RULER:
            if task.startswith(begin) and form == "kvpress":
                return f"{metric}_joined", row["max_new_tokens"], False
            if task.startswith(begin):
                return metric, tokens, False
    return None, row.get("max_new_tokens") if form == "kvpress" else None, False


def id_of(where, row, form, task, number):
    """The row's own id, where it can be a file's name, or one of the task and a number."""
    for name in ("id", "_id", "index"):
        if row.get(name) is not None:
            if isinstance(row[name], bool) or not isinstance(row[name], (str, int)):
                raise TaskError(f"{where}: {name} is neither a text nor a whole number")
            given = row[name]
            break
    else:
        return None, f"{task}-{number:04}"
    if isinstance(given, str) and NAME.fullmatch(given):
        return given, given
    if isinstance(given, int) and 0 <= given < 10 ** 9:
        return given, f"{task}-{given:04}"
    return given, f"{task}-line{number:04}"
