"""Turns a checkpoint of train.py into a model folder, and records what it computes.

    export.py CHECKPOINT DIR         config.json, model.safetensors (bf16), tokenizer.json,
                                     golden.json ...
    export.py --golden DIR           golden.json and tok_golden.json of a folder that is there

golden.json holds logits of the stored weights (bf16) computed in f32; tok_golden.json ids of the
tokenizer in bpe.py.
"""

import argparse
import json
import os
import random
import shutil

import torch

from bpe import BEGIN, END, PAD, load_tokenizer
from documents import HERE, make_prompt
from model import Config, Model
from model_files import CONFIG_NAMES, load_model, save_safetensors
from policies import evict, full
from runner import Runner

FILLER_PROMPT = "The old farmer carried the"
RETRIEVAL_PROMPT = (
    "The access code of Marlow is K7421. The quiet baker waited by the harbour. The secret word of"
    " Calton is falcon.\nQuestion: what is the access code of Marlow?\nAnswer:")
TOKENIZER_TEXTS = (
    "Hello, world!",
    "It's 12345 o'clock;  two  spaces\n\nnew line\ttab",
    "The access code of Marlow is K7421.\nQuestion: what?\nAnswer:",
)


def write_json(path, content, indent):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, indent=indent)


def special_ids(tokenizer):
    return {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos,
            "pad_token_id": tokenizer.pad}


def write_configs(folder, config, tokenizer):
    """config.json, generation_config.json, tokenizer_config.json."""
    content = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False,
        "initializer_range": 0.02, "pretraining_tp": 1, "rope_scaling": None,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
        **special_ids(tokenizer),
        **{key: getattr(config, field) for field, key in CONFIG_NAMES.items()},
    }
    write_json(os.path.join(folder, "config.json"), dict(sorted(content.items())), 2)
    write_json(os.path.join(folder, "generation_config.json"),
               {**special_ids(tokenizer), "do_sample": False}, 2)
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN,
                "eos_token": END, "pad_token": PAD, "add_bos_token": True,
                "clean_up_tokenization_spaces": False,
                "model_max_length": config.max_position}, 2)


def record(runner, text, ids, note, length):
    """What the model says after these ids, from two forward passes that must agree."""
    model = runner.model
    logits = model.logits(model.hidden(torch.tensor([ids]))[0, -1])
    next_logits, states = runner.prefill(ids)
    assert (next_logits - logits).abs().max() < 1e-3
    cache = evict(full, states, len(ids), 0)
    greedy = []
    for i in range(length):
        token = int(next_logits.argmax())
        greedy.append(token)
        if token == runner.tokenizer.eos:
            break
        next_logits = runner.step(token, len(ids) + i, cache)
    best = logits.topk(10)
    return {
        "note": note, "text": text, "ids": ids, "top_ids": best.indices.tolist(),
        "top_logits": [round(float(value), 5) for value in best.values],
        "logits_sum": float(logits.double().sum()), "greedy_ids": greedy,
        "greedy_text": runner.tokenizer.decode(greedy),
    }


def write_golden(folder, tokenizer):
    torch.set_grad_enabled(False)
    runner = Runner(load_model(folder), tokenizer)

    def with_begin(text):
        return [tokenizer.bos] + tokenizer.encode(text)

    ids, answer, text, depth = make_prompt(tokenizer, random.Random(2024), 512, 6)
    prompts = [
        record(runner, FILLER_PROMPT, with_begin(FILLER_PROMPT), "short filler", 8),
        record(runner, RETRIEVAL_PROMPT, with_begin(RETRIEVAL_PROMPT), "short retrieval", 6),
        record(runner, text, ids, f"512 tokens, 6 needles, expected {answer}, depth {depth:.2f}",
               6),
    ]
    dtype = "logits in f32, weights bf16-rounded as stored in model.safetensors"
    write_json(os.path.join(folder, "golden.json"), {"dtype": dtype, "prompts": prompts}, 1)
    write_json(os.path.join(folder, "tok_golden.json"),
               [{"text": text, "ids": tokenizer.encode(text)} for text in TOKENIZER_TEXTS], 1)


def main():
    parser = argparse.ArgumentParser(description="make a model folder of a checkpoint")
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("folder")
    parser.add_argument("--golden", action="store_true", help="only the recorded logits and ids")
    args = parser.parse_args()
    if args.golden == bool(args.checkpoint):
        parser.error("give a checkpoint, or --golden")

    tokenizer = load_tokenizer(os.path.join(HERE, "tokenizer.json"))
    if args.checkpoint:
        checkpoint = torch.load(args.checkpoint, map_location="cpu")
        model = Model(Config(**checkpoint["config"]))
        model.load_state_dict(checkpoint["model"])
        os.makedirs(args.folder, exist_ok=True)
        save_safetensors(os.path.join(args.folder, "model.safetensors"), model)
        write_configs(args.folder, model.config, tokenizer)
        target = os.path.join(args.folder, "tokenizer.json")
        if os.path.abspath(args.folder) != HERE:
            shutil.copy(os.path.join(HERE, "tokenizer.json"), target)
    write_golden(args.folder, tokenizer)


if __name__ == "__main__":
    main()
