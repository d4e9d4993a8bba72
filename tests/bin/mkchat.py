#!/usr/bin/env python3
"""A folder with a tokenizer that has the tokens of all built-in templates, and no model.

usage: mkchat.py FOLDER [TEMPLATE [NAME=VALUE ...]]

The vocabulary is that of tests/fixtures/tokenizers/smollm; the tokens stand in
tokenizer_config.json. TEMPLATE, a file, becomes its chat_template; NAME=VALUE sets bos_token and
the like.
"""

import json
import os
import shutil
import sys

FIXTURE = os.path.join(os.path.dirname(__file__), "../fixtures/tokenizers/smollm/tokenizer.json")
FIRST = 659
# name: is it marked special?
TOKENS = {
    "<|begin_of_text|>": True,
    "<|start_header_id|>": True,
    "<|end_header_id|>": True,
    "<|eot_id|>": True,
    "<s>": True,
    "</s>": True,
    "[INST]": True,
    "[/INST]": True,
    "<|system|>": True,
    "<|user|>": True,
    "<|assistant|>": True,
    "<|end|>": True,
    "<bos>": True,
    "<start_of_turn>": True,
    "<end_of_turn>": True,
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>": True,
    "<\uff5cUser\uff5c>": False,
    "<\uff5cAssistant\uff5c>": False,
    "<\uff5cend\u2581of\u2581sentence\uff5c>": True,
    "<|start_of_role|>": True,
    "<|end_of_role|>": True,
    "<|end_of_text|>": True,
    "<think>": False,
    "</think>": False,
}


def make(folder, template=None, **tokens):
    os.makedirs(folder, exist_ok=True)
    shutil.copy(FIXTURE, os.path.join(folder, "tokenizer.json"))
    added = {
        str(FIRST + i): {"content": name, "normalized": False, "special": special}
        for i, (name, special) in enumerate(TOKENS.items())
    }
    config = {"added_tokens_decoder": added, "tokenizer_class": "PreTrainedTokenizerFast", **tokens}
    if template is not None:
        config["chat_template"] = template
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def main():
    text = None
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8", newline="") as f:
            text = f.read()
    make(sys.argv[1], text, **dict(a.split("=", 1) for a in sys.argv[3:]))


if __name__ == "__main__":
    main()
