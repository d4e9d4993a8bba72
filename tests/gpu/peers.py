#!/usr/bin/env python3
"""peers.py - the speed of other libraries on this GPU, one JSON object a line, as bench_gpu prints

usage: peers.py [--tiny] [part ...]     parts: ceilings attend decode top generate

ceilings: copies, a sum, a product of bf16 matrices, pinned transfers, launches in a CUDA graph.
attend: PyTorch's scaled_dot_product_attention, its flash and its cuDNN backend, each by itself.
decode: the same for one query, calls in a CUDA graph. top: torch.topk. generate: Hugging Face
transformers on a model folder (MODEL in the environment), prefill and decode; where the folder
LOGITS has logits.N, what ours has said after the same N tokens, it is compared, and the program
fails where that is another model's. Needs PyTorch; generate also transformers. What is missing is
skipped and said on standard error.
"""

import importlib.util
import json
import os
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("peers.py: no PyTorch")

ROUNDS = 5
TINY = "--tiny" in sys.argv
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def measure(call, seconds=0.05):
    """Median, least and most seconds of a call, as bench_gpu measures them."""
    call(0)
    sync()
    start = time.perf_counter()
    call(1)
    sync()
    once = time.perf_counter() - start
    n = 5 if TINY else max(5, min(4096, int(seconds / once)))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(n):
            call(i)
        sync()
        times.append((time.perf_counter() - start) / n)
    return statistics.median(times), min(times), max(times)


def report(what, call, bytes_=0, flop=0, calls=1):
    """One line; call does calls times what is named."""
    try:
        median, least, most = (t / calls for t in measure(call))
    except (RuntimeError, NotImplementedError) as e:
        print(f"peers.py: {what}: {str(e).splitlines()[0]}", file=sys.stderr)
        return
    print(json.dumps({"what": what, "us": round(median * 1e6, 2), "least": round(least * 1e6, 2),
                      "most": round(most * 1e6, 2), "GB/s": round(bytes_ / median * 1e-9, 1),
                      "TFLOP/s": round(flop / median * 1e-12, 2)}), flush=True)


def graphed(call, n):
    """What does call(0) to call(n - 1) without Python in between, and how many those are."""
    if DEVICE != "cuda":
        return call, 1
    try:
        for i in range(3):
            call(i)
        sync()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(n):
                call(i)
    except RuntimeError as e:
        print(f"peers.py: no graph: {str(e).splitlines()[0]}", file=sys.stderr)
        return call, 1
    return lambda i: graph.replay(), n


def random(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def ceilings():
    n = (1 << 20) if TINY else (1 << 30)
    a, b = (torch.empty(n, dtype=torch.uint8, device=DEVICE).random_(0, 255) for _ in range(2))
    report("ceiling: copy, read + write", lambda i: b.copy_(a), 2 * n)
    f = a.view(torch.float32)
    report("ceiling: sum", lambda i: f.sum(), n)
    m = 256 if TINY else 8192
    x, y = random(m, m), random(m, m)
    report("ceiling: product of bf16, 8192^3", lambda i: x @ y, 0, 2 * m ** 3)
    host = torch.empty(n, dtype=torch.uint8)
    if DEVICE == "cuda":
        host = host.pin_memory()
    report("ceiling: pinned memory to device", lambda i: a.copy_(host, non_blocking=True), n)
    report("ceiling: device to pinned memory", lambda i: host.copy_(a, non_blocking=True), n)
    if DEVICE == "cuda":
        small = torch.zeros(32, device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        small += 1
        sync()
        with torch.cuda.graph(graph):
            for _ in range(100):
                small += 1
        report("ceiling: 100 launches in a graph", lambda i: graph.replay())
        report("ceiling: a launch", lambda i: small.add_(1))


def backends():
    from torch.nn.attention import SDPBackend
    return (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION))


def attend():
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    for E in (128, 64):
        for N in (80,) if TINY else (8192, 16384, 32768):
            q, k, v = random(1, 32, N, E), random(1, 8, N, E), random(1, 8, N, E)
            for name, backend in backends():
                with sdpa_kernel([backend]):
                    report(f"{name} prefill 32/8 E {E} N {N}",
                           lambda i: sdpa(q, k, v, is_causal=True, enable_gqa=True), 0,
                           2 * 32 * E * N * N)


def decode():
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    for H, G, S in ((32, 8, 8192), (32, 8, 32768), (32, 8, 131072), (32, 32, 32768)):
        S = 300 if TINY else S
        size = G * S * 128 * 4
        copies = 1 if TINY else min(16, int(8e8 / size) + 1)
        q = random(1, H, 1, 128)
        kv = [(random(1, G, S, 128), random(1, G, S, 128)) for _ in range(copies)]
        for name, backend in backends():
            with sdpa_kernel([backend]):
                call, calls = graphed(lambda i: sdpa(q, *kv[i % copies], enable_gqa=True), 16)
                report(f"{name} decode {H}/{G} E 128 S {S}", call, size, 0, calls)
        del kv


def top():
    for rows in (8, 32):
        n = 5000 if TINY else 65536
        x = torch.randn(rows, n, device=DEVICE)
        k = n * 11 // 100
        report(f"torch.topk, {rows} x {n}, k {k}", lambda i: torch.topk(x, k), 4 * rows * n)


def load():
    """The model of the folder MODEL, on the device; None: why not has been said."""
    folder = os.environ.get("MODEL")
    if folder is None:
        print("peers.py: generate: MODEL is not set", file=sys.stderr)
        return None
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        print("peers.py: generate: no transformers", file=sys.stderr)
        return None
    there = {"device_map": DEVICE} if importlib.util.find_spec("accelerate") else {}
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16,
                                                 attn_implementation="sdpa", **there)
    model = model.to(DEVICE).eval()
    sync()
    print(json.dumps({"what": "transformers weights", "s": round(time.perf_counter() - start, 2)}),
          flush=True)
    return model


def compare(logits, N):
    """With what ours has written, where it has; False where that is far away."""
    path = os.path.join(os.environ.get("LOGITS", ""), f"logits.{N}")
    if not os.path.exists(path):
        return True
    with open(path, "rb") as f:
        ours = torch.frombuffer(bytearray(f.read()), dtype=torch.float32)
    theirs = logits.float().cpu()
    away = ((ours - theirs).norm() / theirs.norm()).item()
    print(json.dumps({"what": f"logits {N}", "away from transformers": round(away, 5),
                      "same first": bool(ours.argmax() == theirs.argmax())}), flush=True)
    return away < 0.2


def generate():
    model, near = load(), True
    for N in () if model is None else (400,) if TINY else (8192, 32768, 131072):
        ids = torch.tensor([[(i * 7919 + 13) % 1400 for i in range(N)]], device=DEVICE)
        steps, prefill = 4 if TINY else 32, []
        with torch.inference_mode():
            for _ in range(1 if N > 32768 else 3):
                out = None
                sync()
                start = time.perf_counter()
                out = model(ids, use_cache=True, logits_to_keep=1)
                sync()
                prefill.append(time.perf_counter() - start)
            near &= compare(out.logits[0, -1], N)
            cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
            for i in range(steps + 4):
                if i == 4:
                    sync()
                    start = time.perf_counter()
                out = model(token, past_key_values=cache, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
            sync()
            step = (time.perf_counter() - start) / steps
        del out, cache
        print(json.dumps({"what": f"transformers full {N}",
                          "prefill ms": round(statistics.median(prefill) * 1e3, 2),
                          "step ms": round(step * 1e3, 3)}), flush=True)
    if not near:
        sys.exit("peers.py: our logits are not those of transformers")


PARTS = {"ceilings": ceilings, "attend": attend, "decode": decode, "top": top,
         "generate": generate}


def main():
    named = [a for a in sys.argv[1:] if a != "--tiny"]
    for a in named:
        if a not in PARTS:
            sys.exit(f"peers.py: no part '{a}'")
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda,
                "cudnn": torch.backends.cudnn.version() if DEVICE == "cuda" else None,
                "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"}
    print(json.dumps(versions), flush=True)
    for name, part in PARTS.items():
        if not named or name in named:
            part()


if __name__ == "__main__":
    main()
