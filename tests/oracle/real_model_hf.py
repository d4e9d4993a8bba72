#!/usr/bin/env python3
"""real_model_hf.py MODEL WORK: what transformers makes of the texts in WORK, for real_model.py

Reads WORK/*.txt, writes WORK/hf.npz: NAME.ids of each text; for those that WORK/plan.json names
also NAME.logits [64][V], behind each of the first 64 tokens; NAME.greedy, the 64 tokens that follow
the text, each the likeliest; NAME.last, the logits behind the text; NAME.keys and NAME.values
[L][G][T][E], as they lie in the cache. Weights are widened to f32, attention is "eager". Writes
WORK/chat.txt: the conversation of plan.json in the chat template.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers


def greedy(model, out, n, count):
    """The next tokens behind n of them."""
    said, cache = [], out.past_key_values
    for i in range(count):
        said.append(int(out.logits[0, -1].argmax()))
        out = model(torch.tensor([said[-1:]]), past_key_values=cache, use_cache=True,
                    position_ids=torch.tensor([[n + i]]))
    return np.array(said)


def run(model, ids, wanted, name, result):
    out = model(torch.tensor([ids]), use_cache=True)
    layers = out.past_key_values.layers
    if name in wanted["rows"]:
        for what in ("keys", "values"):
            rows = [getattr(layer, what)[0].numpy() for layer in layers]
            result[f"{name}.{what}"] = np.stack(rows)
    if name in wanted["logits"]:
        result[f"{name}.logits"] = out.logits[0, :wanted["count"]].numpy()
    result[f"{name}.last"] = out.logits[0, -1].numpy()
    if name in wanted["greedy"]:
        result[f"{name}.greedy"] = greedy(model, out, len(ids), wanted["count"])


def main():
    folder, work = sys.argv[1], pathlib.Path(sys.argv[2])
    wanted = json.loads((work / "plan.json").read_text())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    chat = tokenizer.apply_chat_template(wanted["conversation"], tokenize=False,
                                         add_generation_prompt=True)
    (work / "chat.txt").write_text(chat, encoding="utf-8")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    result = {}
    for path in sorted(work.glob("*.txt")):
        name = path.stem
        text = path.read_bytes().decode()        # with its \r\n
        result[f"{name}.ids"] = np.array(tokenizer(text)["input_ids"])
        if name in wanted["run"]:
            with torch.no_grad():
                run(model, result[f"{name}.ids"].tolist(), wanted, name, result)
    np.savez(work / "hf.npz", **result)


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    print(f"# transformers {transformers.__version__}, torch {torch.__version__}", flush=True)
    main()
