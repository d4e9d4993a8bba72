#!/usr/bin/env python3
"""Answers of kvpress to questions, as run_part.py writes those of kvpipe: lines to a file.

    kvpress_answers.py -m MODEL --press NAME ... --ratio R ... [--aware] [--dtype float32]
        -o ANSWERS.jsonl TASK.jsonl

TASK.jsonl is what read_benchmark.py or make_task.py wrote. Runs kvpress's own pipeline, with the
presses of its leaderboard (evaluation/evaluate_registry.py) and their defaults; --aware puts the
question at the end of the context, as its query-aware rows have it. A run that is in the file
already is not done again, so what was interrupted goes on.

`kept` is the share of the context's rows that the press was asked for, `bytes` what its cache
holds of them: presses that mask rows hold all. Needs kvpress (0.5.5) and torch; the model runs on
the CPU, in --dtype.
"""

import argparse
import time
from itertools import product

from answer_pipes import append, drop_cut_line
from task_records import TaskError, need, read_objects, read_records, run

REFERENCE = "full"
LINE = b'{"id": "'          # that lines of -o begin with


def presses():
    """Names of the leaderboard -> functions of a ratio"""
    import kvpress as k
    return {
        "random": k.RandomPress,
        "knorm": k.KnormPress,
        "streaming_llm": k.StreamingLLMPress,
        "snapkv": k.SnapKVPress,
        "pyramidkv": k.PyramidKVPress,
        "tova": k.TOVAPress,
        "observed_attention": k.ObservedAttentionPress,
        "expected_attention": lambda r: k.AdaKVPress(k.ExpectedAttentionPress(r, epsilon=1e-2)),
        "adakv_snapkv": lambda r: k.AdaKVPress(k.SnapKVPress(r)),
        "adakv_compactor": lambda r: k.AdaKVPress(k.CompactorPress(r)),
        "lagkv": k.LagKVPress,
        "keydiff": k.KeyDiffPress,
        "cur": k.CURPress,
        "chunkkv": lambda r: k.ChunkKVPress(k.SnapKVPress(r), chunk_length=20),
        "kvzip": k.KVzipPress,
    }


def parse():
    parser = argparse.ArgumentParser(description="answers of kvpress to questions")
    parser.add_argument("-m", "--model", required=True, help="model folder")
    parser.add_argument("--press", nargs="+", default=[REFERENCE], metavar="NAME",
                        help="of its leaderboard; full: none")
    parser.add_argument("--ratio", nargs="+", type=float, default=[0.5], metavar="R",
                        help="shares of the rows that are dropped")
    parser.add_argument("--aware", action="store_true", help="the question is in the context")
    parser.add_argument("--dtype", default="float32", help="of the model (float32)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", required=True, dest="out", metavar="ANSWERS.jsonl")
    parser.add_argument("task", metavar="TASK.jsonl")
    return parser.parse_args()


def load(options, attention):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from kvpress.pipeline import KVPressTextGenerationPipeline
    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype), attn_implementation=attention).eval()
    return KVPressTextGenerationPipeline(model=model,
                                         tokenizer=AutoTokenizer.from_pretrained(options.model))


def held(cache):
    """Bytes of its keys and values."""
    return sum(tensor.numel() * tensor.element_size()
               for layer in cache.layers for tensor in (layer.keys, layer.values))


def answer(pipe, record, press, aware):
    """The text, the share of bytes that the cache holds of the context, seconds."""
    from transformers import DynamicCache
    context, question = record["context"], record["question"]
    if aware:
        context, question = context + question, ""
    cache, config = DynamicCache(), pipe.model.config
    started = time.monotonic()
    said = pipe(context, question=question, answer_prefix=record["answer_prefix"], press=press,
                max_new_tokens=record["new_tokens"], cache=cache)["answer"]
    seconds = time.monotonic() - started
    rows = pipe.preprocess(context, [question], record["answer_prefix"],
                           10 ** 9)["context_ids"].shape[1]
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    whole = (2 * config.num_hidden_layers * config.num_key_value_heads * width * rows
             * pipe.model.dtype.itemsize)
    return said, 100 * held(cache) / whole, seconds


def done_before(path):
    rows = read_objects(path) if drop_cut_line(path, LINE) else ()
    return {tuple(need(f"{path}:{number}", row, name, "a text")
                  for name in ("id", "method", "rate")) for number, row in rows}


def rate_of(press, ratio):
    return "all" if press == REFERENCE else f"{1 - ratio:g}"


def main():
    options = parse()
    records, known = read_records(options.task), presses()
    for name in options.press:
        if name != REFERENCE and name not in known:
            raise TaskError(f"--press {name}: there are {', '.join([REFERENCE, *known])}")
    done, pipes = done_before(options.out), {}
    runs = [(name, ratio) for name in options.press
            for ratio in (options.ratio if name != REFERENCE else [0])]
    for record, (name, ratio) in product(records.values(), runs):
        rate = rate_of(name, ratio)
        if (record["id"], name, rate) in done:
            continue
        attention = "eager" if name == "observed_attention" else "sdpa"
        if attention not in pipes:
            pipes[attention] = load(options, attention)
        press = known[name](ratio) if name != REFERENCE else None
        said, share, seconds = answer(pipes[attention], record, press, options.aware)
        append(options.out, [{"id": record["id"], "method": name, "rate": rate, "answer": said,
                              "kept": 100 * (1 - ratio), "bytes": round(share, 3),
                              "seconds": round(seconds, 3)}])


if __name__ == "__main__":
    run(main)
