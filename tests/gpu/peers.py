#!/usr/bin/env python3
"""peers.py - the speed of other libraries on this GPU, one JSON object a line, as bench_gpu prints

usage: peers.py [--tiny] [--beside BENCH_GPU] [part ...]
parts: ceilings attend mass decode top backends generate

ceilings: copies, a sum, a product of bf16 matrices, pinned transfers, launches in a CUDA graph;
what moves memory or multiplies also for three seconds on end. attend, decode:
PyTorch's scaled_dot_product_attention for many queries and for one, each backend that there is by
itself, and the one that PyTorch chooses; backends names the kernels of each. top: torch.topk.

With --beside, attend, mass, decode and top run bench_gpu, whose rows are passed on: before each of
its rounds every peer of the same shape runs one of its own. Rounds are measured as bench_gpu does
it: replays of a CUDA graph of up to 64 calls behind a filler, between events; three calls and a
round to warm up, the median of five rounds.

generate: Hugging Face transformers on a model folder (MODEL in the environment), prefill and
decode, a step at a time as generate() does it and replayed from a CUDA graph; where the folder
LOGITS has logits.N, what ours has said after the same N tokens, it is compared, and the program
fails where that is another model's. Needs PyTorch; generate also transformers. What is missing
is skipped and said on standard error.
"""

import contextlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("peers.py: no PyTorch")

ROUNDS, WARM, LEAST_CALLS, MOST_CALLS, MOST_IN_GRAPH = 5, 3, 5, 4096, 64
ROUND, LEAST_FILLER, MOST_FILLER, SUSTAINED = 0.05, 2e-4, 0.02, 3.0        # seconds
FILLER_HZ = 2e9                # torch.cuda._sleep() counts cycles of about this rate
TINY = "--tiny" in sys.argv
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FAILURES = (RuntimeError, NotImplementedError)


def say(**row):
    print(json.dumps(row), flush=True)


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def rates(seconds, bytes_, flop):
    return {"GB/s": round(bytes_ / seconds * 1e-9, 1), "TFLOP/s": round(flop / seconds * 1e-12, 2)}


class Timing:
    """Rounds of calls of one function, made in a context; bytes and flop are those of a call."""

    def __init__(self, what, call, bytes_=0, flop=0, graph=True, within=contextlib.nullcontext):
        self.what, self.call, self.bytes, self.flop, self.within = what, call, bytes_, flop, within
        self.times, self.in_graph, self.replay, self.filler = [], 0, None, 0
        for i in range(1 if TINY else WARM):
            start = time.perf_counter()
            with within():
                call(i)
            sync()
            once = time.perf_counter() - start
        self.calls = 1 if TINY else max(LEAST_CALLS, min(MOST_CALLS, int(ROUND / once)))
        if graph and DEVICE == "cuda":
            self.capture()
        start = time.perf_counter()
        self.queue()
        self.filler = min(MOST_FILLER, 2 * (time.perf_counter() - start) + LEAST_FILLER)
        sync()

    def capture(self):
        n = min(self.calls, MOST_IN_GRAPH)
        try:
            graph = torch.cuda.CUDAGraph()
            with self.within(), torch.cuda.graph(graph):
                for i in range(n):
                    self.call(i)
        except FAILURES as e:
            print(f"peers.py: {self.what}: no graph: {str(e).splitlines()[0]}", file=sys.stderr)
            return
        self.in_graph, self.replay = n, graph
        self.calls = -(-self.calls // n) * n

    def queue(self):
        for _ in range(self.calls // self.in_graph if self.replay else 0):
            self.replay.replay()
        with self.within():
            for i in range(0 if self.replay else self.calls):
                self.call(i)

    def round(self):
        """Seconds of a call, kept for row()."""
        if DEVICE != "cuda":
            start = time.perf_counter()
            self.queue()
            self.times.append((time.perf_counter() - start) / self.calls)
            return
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(self.filler * FILLER_HZ))
        first.record()
        self.queue()
        last.record()
        last.synchronize()
        self.times.append(first.elapsed_time(last) * 1e-3 / self.calls)

    def sustained(self):
        """Seconds of a call in the last of SUSTAINED seconds."""
        self.round()
        n = 3 if TINY else max(3, int(SUSTAINED / (self.times.pop() * self.calls)))
        if DEVICE != "cuda":
            return statistics.median([(self.round(), self.times[-1])[1] for _ in range(n)])
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for i in range(n):
            if i == n - n // 3:
                first.record()
            self.queue()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e-3 / (n // 3 * self.calls)

    def row(self):
        t = statistics.median(self.times)
        say(what=self.what, us=round(t * 1e6, 2), least=round(min(self.times) * 1e6, 2),
            most=round(max(self.times) * 1e6, 2), **rates(t, self.bytes, self.flop),
            graph=self.in_graph, calls=self.calls)


def kernels(call):
    """Names of the kernels that a call runs, shortened; or why they are not known."""
    call(0)
    if DEVICE != "cuda":
        return "on the CPU"
    try:
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            call(0)
            sync()
        names = {e.key[:100] for e in p.key_averages() if e.key and "Memcpy" not in e.key}
        return "; ".join(sorted(n for n in names if not n.startswith("cuda"))) or "not known"
    except Exception as e:                             # of the profiler, never of the benchmark
        return f"not known: {str(e).splitlines()[0] if str(e) else type(e).__name__}"


def timing(what, *args, **options):
    """A Timing; None: why not has been said."""
    try:
        return Timing(what, *args, **options)
    except FAILURES as e:
        say(what=what, failed=(str(e).splitlines() or ["?"])[0])
        return None


def report(what, call, bytes_=0, flop=0, sustained=False, **options):
    t = timing(what, call, bytes_, flop, **options)
    for _ in range(1 if TINY else ROUNDS) if t else ():
        t.round()
    if t:
        t.row()
    if t and sustained:
        seconds = t.sustained()
        say(**{"what": f"{what}, {SUSTAINED:g} s", "us": round(seconds * 1e6, 2),
               "least": round(seconds * 1e6, 2), "most": round(seconds * 1e6, 2),
               **rates(seconds, bytes_, flop), "graph": t.in_graph, "calls": t.calls})


def random(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def ceilings():
    n = (1 << 20) if TINY else (1 << 30)
    a, b = (torch.empty(n, dtype=torch.uint8, device=DEVICE).random_(0, 255) for _ in range(2))
    report("ceiling: copy, read + write", lambda i: b.copy_(a), 2 * n, sustained=True)
    f = torch.randn(n // 4, device=DEVICE)
    report("ceiling: sum", lambda i: f.sum(), n, sustained=True)
    m = 256 if TINY else 8192
    x, y = random(m, m), random(m, m)
    z = torch.empty_like(x)
    report("ceiling: product of bf16, 8192^3", lambda i: torch.mm(x, y, out=z), 0, 2 * m ** 3,
           sustained=True)
    host = torch.empty(n, dtype=torch.uint8)
    if DEVICE == "cuda":
        host = host.pin_memory()
    report("ceiling: pinned memory to device", lambda i: a.copy_(host, non_blocking=True), n,
           graph=False)
    report("ceiling: device to pinned memory", lambda i: host.copy_(a, non_blocking=True), n,
           graph=False)
    if DEVICE == "cuda":
        small = torch.zeros(32, device=DEVICE)
        report("ceiling: a launch in a graph", lambda i: small.add_(1))
        report("ceiling: a launch", lambda i: small.add_(1), graph=False)


# ---- peers of what bench_gpu measures, by its name ----

def backends_of(*names):
    """Name and context of each backend of attention"""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    for name, member in (("flash", "FLASH_ATTENTION"), ("cuDNN", "CUDNN_ATTENTION"),
                         ("efficient", "EFFICIENT_ATTENTION"), ("math", "MATH"),
                         ("PyTorch's", None)):
        if name in names and (not member or hasattr(SDPBackend, member)):
            one = getattr(SDPBackend, member) if member else None
            yield name, (lambda one=one: sdpa_kernel([one])) if one else contextlib.nullcontext


PREFILL, DECODE = ("flash", "cuDNN", "efficient", "PyTorch's"), ("flash", "cuDNN", "efficient",
                                                                 "math", "PyTorch's")


def prefill_peers(what, H, G, E, N):
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    q, k, v = random(1, H, N, E), random(1, G, N, E), random(1, G, N, E)
    for name, within in backends_of(*PREFILL):
        yield timing(f"{name} {what}", lambda i: sdpa(q, k, v, is_causal=True, enable_gqa=True), 0,
                     2 * H * E * N * N, within=within)


def decode_peers(what, H, G, E, S):
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    size = G * S * E * 4
    copies = 1 if TINY else min(16, int(8e8 / size) + 1)
    q = random(1, H, 1, E)
    kv = [(random(1, G, S, E), random(1, G, S, E)) for _ in range(copies)]
    for name, within in backends_of(*DECODE):
        yield timing(f"{name} {what}", lambda i: sdpa(q, *kv[i % copies], enable_gqa=True), size, 0,
                     within=within)


def name_backends():
    """Which kernels each backend runs. Comes last: what follows a profiler may be slower."""
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    for E in (128, 64):
        for kind, N, S, names in (("prefill", 4096, 4096, PREFILL), ("decode", 1, 32768, DECODE)):
            N, S = (min(N, 80), 80) if TINY else (N, S)
            q, k, v = random(1, 32, N, E), random(1, 8, S, E), random(1, 8, S, E)
            for name, within in backends_of(*names):
                try:
                    with within():
                        ran = kernels(lambda i: sdpa(q, k, v, is_causal=N > 1, enable_gqa=True))
                except FAILURES as e:
                    ran = f"refused: {str(e).splitlines()[0]}"
                say(what=f"{name} {kind} E {E}", ran=ran)


def topk_peers(what, rows, n, k):
    x = torch.randn(rows, n, device=DEVICE)
    yield timing(f"torch.topk, {what}", lambda i: torch.topk(x, k), 4 * rows * n)


SHAPES = ((r"attend (prefill (\d+)/(\d+) E (\d+) N (\d+))", prefill_peers),
          (r"attend (decode (\d+)/(\d+) E (\d+) S (\d+))", decode_peers),
          (r"top, ((\d+) x (\d+), k (\d+))", topk_peers))


def peers_of(what):
    """The peers of a row of ours, ready to run"""
    for pattern, peers in SHAPES:
        m = re.fullmatch(pattern, what)
        if m:
            try:
                return [t for t in peers(m[1], *map(int, m.groups()[1:])) if t]
            except FAILURES as e:                      # no memory for the inputs
                say(what=f"peers of {what}", failed=str(e).splitlines()[0])
    return []


def beside(bench, parts):
    """Runs bench_gpu; before each of its rounds its peers run theirs. Returns its exit status."""
    ours = subprocess.Popen([bench, *(["--tiny"] if TINY else []), "--turns", *parts],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    what, peers = None, []
    for line in ours.stdout:
        row = json.loads(line)
        if "turn" not in row:
            print(line, end="", flush=True)
            if row.get("what") == what:
                for t in peers:
                    t.row()
                what, peers = None, []
            continue
        if row["turn"] != what:
            peers = []                                 # frees their memory first
            what, peers = row["turn"], peers_of(row["turn"])
        for t in peers:
            t.round()
        ours.stdin.write("\n")
        ours.stdin.flush()
    return ours.wait()


# ---- a whole model ----

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
    say(what="transformers weights", s=round(time.perf_counter() - start, 2))
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
    say(**{"what": f"logits {N}", "away from transformers": round(away, 5),
           "same first": bool(ours.argmax() == theirs.argmax())})
    return away < 0.2


def prompt(N):
    return torch.tensor([[(i * 7919 + 13) % 1400 for i in range(N)]], device=DEVICE)


def step_replayed(model, full, N, steps):
    """Seconds of a step behind the first N rows of a cache, replayed from a CUDA graph over a
    static cache: without the part of the host, which is most of a step of generate()."""
    from transformers import StaticCache
    cache = StaticCache(config=model.config, max_cache_len=N + steps + 8)
    for to, of in zip(cache.layers, full.layers):
        to.lazy_initialization(of.keys, of.values)
        to.keys[:, :, :N], to.values[:, :, :N] = of.keys[:, :, :N], of.values[:, :, :N]
        to.cumulative_length.fill_(N)
    token, at = prompt(1), torch.full((1, 1), N, device=DEVICE)

    def step():
        out = model(token, past_key_values=cache, use_cache=True, position_ids=at)
        token.copy_(out.logits[:, -1:].argmax(-1))
        at.add_(1)

    step()
    if DEVICE == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        step = graph.replay
    step()
    sync()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    sync()
    return (time.perf_counter() - start) / steps


def generate_after(model, N):
    """A prompt of N tokens and steps behind it; False where our logits are another model's."""
    ids, steps, prefill = prompt(N), 4 if TINY else 32, []
    for _ in range(1 if N > 32768 else 3):
        out = None
        sync()
        start = time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        sync()
        prefill.append(time.perf_counter() - start)
    near = compare(out.logits[0, -1], N)
    cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
    for i in range(steps + 4):
        if i == 4:
            sync()
            start = time.perf_counter()
        out = model(token, past_key_values=cache, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
    sync()
    step = (time.perf_counter() - start) / steps
    say(**{"what": f"transformers full {N}",
           "prefill ms": round(statistics.median(prefill) * 1e3, 2), "step ms": round(step * 1e3,
               3)})
    try:
        step = step_replayed(model, cache, N, steps)
        say(**{"what": f"transformers replayed {N}", "step ms": round(step * 1e3, 3)})
    except (*FAILURES, AttributeError, TypeError, ImportError) as e:
        say(what=f"transformers replayed {N}", failed=(str(e).splitlines() or ["?"])[0])
    return near


def generate():
    model, near = load(), True
    if model is None:
        return
    with torch.inference_mode():
        warm = prompt(64)
        model(warm, use_cache=True, logits_to_keep=1)
        for N in (400,) if TINY else (8192, 32768, 131072):
            try:
                near &= generate_after(model, N)
            except FAILURES as e:
                say(what=f"transformers full {N}", failed=str(e).splitlines()[0])
        say(what="transformers prefill", ran=kernels(lambda i: model(warm, logits_to_keep=1)))
    if not near:
        sys.exit("peers.py: our logits are not those of transformers")


NAMES = {"attend": ["attend prefill 32/8 E 128 N %d" % (80 if TINY else 16384)],
         "decode": ["attend decode 32/8 E 128 S %d" % (300 if TINY else 131072)], "mass": [],
         "top": ["top, 8 x 5000, k 550" if TINY else "top, 8 x 65536, k 7208"]}


def alone(part):
    """Some shapes of a part, without ours"""
    for what in NAMES[part]:
        for t in peers_of(what):
            for _ in range(ROUNDS):
                t.round()
            t.row()


def main():
    words = [a for a in sys.argv[1:] if a != "--tiny"]
    bench = words.pop(words.index("--beside") + 1) if "--beside" in words else None
    parts = ("ceilings", *NAMES, "backends", "generate")
    named = [a for a in words if a != "--beside"] or parts
    for a in named:
        if a not in parts:
            sys.exit(f"peers.py: no part '{a}'")
    say(torch=torch.__version__, cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version() if DEVICE == "cuda" else None,
        device=torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu")
    if "ceilings" in named:
        ceilings()
    ours = [a for a in named if a in NAMES]
    status = beside(bench, ours) if bench and ours else 0
    for part in ours if not bench else ():
        alone(part)
    if "backends" in named:
        name_backends()
    if "generate" in named:
        generate()
    sys.exit(status)


if __name__ == "__main__":
    main()
