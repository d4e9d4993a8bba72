"""The right answer to a question as the tokens that follow its prompt (for kv-decode --force)."""

from task_prompts import plain_text
from task_records import UNGRADED

WIDE = "\u2e80"     # from here on are the scripts that have no spaces between words


def gap(before, answer):
    """What stands between a text and its continuation: a space where two words would touch."""
    if not before or before[-1].isspace() or before[-1] in "([{" or answer[0].isspace():
        return ""
    return "" if before[-1] >= WIDE or answer[0] >= WIDE else " "


def with_answer(record, answer, chat):
    """The record with the answer behind its answer prefix."""
    if chat == "none":
        rest = plain_text(record, "question")
        record = {**record, "question": "", "answer_prefix": rest}
        before = record["context"] + rest
    else:
        before = record["answer_prefix"]
    between = "" if record["metric"] == UNGRADED else gap(before, answer)
    return {**record, "answer_prefix": record["answer_prefix"] + between + answer}, between


def answer_ids(tokenizer, record, part):
    """The ids of the first right answer behind the prompt, or behind its part `question`.

    They are what the ids of both together have more than those of the prompt. A tokenizer that
    joins the end of the prompt with the answer would not do so when the answer is generated, so
    then the answer is tokenised alone.
    """
    answer = record["answers"][0]
    longer, between = with_answer(record, answer, tokenizer.chat)
    prompt, both = tokenizer.prompt_ids(record, part), tokenizer.prompt_ids(longer, part)
    if both[:len(prompt)] == prompt and both[len(prompt):]:
        return both[len(prompt):]
    return tokenizer.text_ids(between + answer, behind=True)
