#!/usr/bin/env python3
"""The demo model's golden file (logits and greedy ids,
made with another program) as lines for shell tests.

    golden.py GOLDEN count              number of prompts
    golden.py GOLDEN ids N              token ids of prompt N
    golden.py GOLDEN greedy N           its greedy continuation
    golden.py GOLDEN error N SNAPSHOT   relative error (L2) of the snapshot's logits, over the ten
                                        golden ones and their total
"""

import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "format"))
import kvread  # noqa: E402


def error(prompt, path):
    with open(path, "rb") as file:
        logits = kvread.read(file).logits
    got = [logits[i] for i in prompt["top_ids"]] + [math.fsum(logits) / len(logits)]
    want = prompt["top_logits"] + [prompt["logits_sum"] / len(logits)]
    return math.dist(got, want) / math.hypot(*want)


def main(path, what, n="0", snapshot=None):
    prompts = json.loads(pathlib.Path(path).read_text())["prompts"]
    prompt = prompts[int(n)]
    if what == "count":
        print(len(prompts))
    elif what == "ids":
        print(*prompt["ids"])
    elif what == "greedy":
        print(*prompt["greedy_ids"], sep="\n")
    elif what == "error":
        print(f"{error(prompt, snapshot):.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
