#!/usr/bin/env python3
"""Tables of KV heads that nobody trained, to compare trained ones with.

    head_baselines.py random -m MODEL --seed 1      numbers drawn at random
    head_baselines.py norm -m MODEL                 heads whose keys are long need the whole text
    head_baselines.py norm -m MODEL --reverse       heads whose keys are short do
    head_baselines.py even -m MODEL                 all the same: `kv-evict --sparsity` then lets
                                                    the first layers stream

To standard output, as heads.py writes them and `kv-evict --heads` reads them; numbers are ranks
from 0 to 1. The length of a head's keys is the mean L2 norm over windows of plain text (--texts,
else manual pages). Exit status as of heads.py.
"""

import argparse
import random
import sys

from failures import exit_status
from head_tables import format_table


def ranks(rows, reverse):
    """The numbers of a table as places in their order, from 0 to 1."""
    flat = sorted((value, layer, head) for layer, row in enumerate(rows)
                  for head, value in enumerate(row))
    table = [[0.0] * len(row) for row in rows]
    for place, (_, layer, head) in enumerate(reversed(flat) if reverse else flat):
        table[layer][head] = place / max(1, len(flat) - 1)
    return table


def key_norms(model, tokenizer, args):
    """[layer][KV head]: mean norm of keys over windows of text; a turn of positions keeps it."""
    import torch
    from head_data import Texts, Windows
    windows = Windows(Texts(args.texts, tokenizer, 40 * args.length, args.seed), tokenizer,
                      args.length)
    total = 0
    with torch.no_grad():
        for number in range(args.windows):
            ids = torch.tensor([windows.draw(args.seed, number).ids])
            cache = model(ids, use_cache=True).past_key_values
            total = total + torch.stack([layer.keys[0].float().norm(dim=-1).mean(-1)
                                         for layer in cache.layers])
    return (total / args.windows).tolist()


def make(args):
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(args.model, local_files_only=True)
    layers, heads = config.num_hidden_layers, config.num_key_value_heads
    if args.kind == "norm":
        model = transformers.AutoModelForCausalLM.from_pretrained(args.model,
                                                                  local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model, local_files_only=True)
        rows = ranks(key_norms(model.eval(), tokenizer, args), args.reverse)
    elif args.kind == "random":
        r = random.Random(f"heads {args.seed}")
        rows = ranks([[r.random() for _ in range(heads)] for _ in range(layers)], False)
    else:
        rows = [[1.0] * heads for _ in range(layers)]
    sys.stdout.write(format_table(rows, 6))


def main():
    head, _, tail = __doc__.partition("\n")
    p = argparse.ArgumentParser(description=head, epilog=tail,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=("random", "norm", "even"))
    p.add_argument("-m", "--model", required=True, help="a folder as Hugging Face has it")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--reverse", action="store_true", help="short keys in place of long ones")
    p.add_argument("--texts", nargs="+", metavar="PATH", help="as of heads.py")
    p.add_argument("--length", type=int, default=1024, help="tokens of a window (1024)")
    p.add_argument("--windows", type=int, default=4, help="how many (4)")
    return exit_status("head_baselines.py", make, p.parse_args())


if __name__ == "__main__":
    sys.exit(main())
