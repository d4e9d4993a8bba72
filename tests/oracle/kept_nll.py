#!/usr/bin/env python3
"""How likely transformers finds a text behind a prompt when its tokens see only the rows
that an eviction has kept.

  kept_nll.py FORMAT MODEL PROMPT.ids TEXT.ids SNAPSHOT SAID.json ...

The whole sequence is run in f32 without a cache. In each layer a mask is added to the model's own
(causal, sliding window): a token of the text sees of the prompt the positions that SNAPSHOT has for
the KV head of the query head. Tokens of the prompt see all before them: they were run before the
eviction. SAID.json is what `kv-decode --json --force TEXT.ids SNAPSHOT` has printed. Two lines for
each snapshot: how many rows KV heads have kept, the mean NLL of both, and how far these are apart;
and the greatest absolute difference of the log-likelihood of a token. FORMAT is the folder of the
independent reader."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def read_ids(path):
    with open(path, encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def hidden_rows(layer, heads, prompt, tokens):
    """[H][T][T]: -inf where a token of the text must not see a row of the prompt, else 0."""
    mask = torch.zeros(len(layer.positions), tokens, tokens)
    for g, positions in enumerate(layer.positions):
        gone = torch.ones(prompt, dtype=torch.bool)
        gone[torch.tensor(list(positions), dtype=torch.long)] = False
        mask[g, prompt:, :prompt][:, gone] = -torch.inf
    return mask.repeat_interleave(heads // len(layer.positions), 0)


def run(model, ids, prompt, layers):
    """Log-likelihood [N] of each token behind the prompt."""
    heads = model.config.get_text_config().num_attention_heads

    def hide(layer):
        def before(module, args, kwargs):
            more = hidden_rows(layer, heads, prompt, len(ids))
            kwargs["attention_mask"] = kwargs["attention_mask"] + more[None]
            return args, kwargs
        return before

    hooks = [decoder.self_attn.register_forward_pre_hook(hide(layer), with_kwargs=True)
             for decoder, layer in zip(model.model.layers, layers, strict=True)]
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, prompt - 1:-1]
    for hook in hooks:
        hook.remove()
    said = logits.double().log_softmax(-1)
    return said.gather(1, torch.tensor(ids[prompt:])[:, None])[:, 0]


def main():
    sys.path.insert(0, sys.argv[1])
    import kvread
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(
        sys.argv[2], dtype=torch.float32, attn_implementation="eager").eval()
    prompt, text = read_ids(sys.argv[3]), read_ids(sys.argv[4])
    for path, said in zip(sys.argv[5::2], sys.argv[6::2], strict=True):
        with open(path, "rb") as file:
            layers = kvread.read(file).layers
        with open(said, encoding="utf-8") as file:
            said = json.load(file)
        assert [e["id"] for e in said["each"]] == text
        counts = [len(p) for layer in layers for p in layer.positions]
        theirs = run(model, prompt + text, len(prompt), layers)
        ours = torch.tensor([e["logprob"] for e in said["each"]], dtype=torch.float64)
        far = (ours - theirs).abs()
        print(f"{path}: {min(counts)} to {max(counts)} of {len(prompt)} rows, {len(text)} tokens, "
              f"NLL {said['nll']:.6f}, transformers {-theirs.mean():.6f}, "
              f"apart {abs(said['nll'] + theirs.mean()):.3g}")
        print(f"{path}: of a token at most {far.max():.3g}")


if __name__ == "__main__":
    main()
