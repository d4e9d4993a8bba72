#!/usr/bin/env python3
"""Retrieval by a retrieval head with latent attention, in double precision,
against kv-decode --retrieve specontext.

    latent_retrieve.py [--limit X] < lines "MODEL HEAD BEFORE.kv AFTER.kv STATS.json", with tabs

BEFORE is what kv-decode has read, AFTER what it has written (-o), STATS its report (--stats), which
also says what was asked for. The tokens that AFTER has more than BEFORE are run step by step. Here
keys and values of each query head are made from the latent vectors, as the papers have it
(DeepSeek-V2, section 2.1; SpeContext, section 4.3), and a query head that chooses for itself sees
those of its own rows only; kvpipe multiplies queries into the space of the vectors instead. The
residual streams of the prompt, which the head needs, are computed from the tokens of BEFORE: these
have run with all their rows.
Prints for each line the greatest relative error (L2 norm) of the new rows, the head's keys and the
logits, the greatest relative difference of a number of the report from what is computed here, and
the least relative distance of a row that was chosen from one that was not: exit 1 when one of the
first two is above the limit. Nothing here is shared with the C code. The cache has to be f32: else
a choice may turn on a rounding, as it also may where the distance is as small as the errors.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "format"), str(ROOT / "oracle")]
import draft_head  # noqa: E402
import kvread  # noqa: E402
import llama  # noqa: E402
from retrieve import best, softmax  # noqa: E402


class Latent:
    """A DeepSeek-V2 without experts. Rows are [c; rotated key]: of the rotated channels the even
    ones first, then the odd ones."""

    def __init__(self, folder):
        self.config = c = json.loads((pathlib.Path(folder) / "config.json").read_text())
        self.w = llama.load_tensors(folder)
        self.H, self.L = c["num_attention_heads"], c["num_hidden_layers"]
        self.rank, self.nope = c["kv_lora_rank"], c["qk_nope_head_dim"]
        self.rope, self.value = c["qk_rope_head_dim"], c["v_head_dim"]
        self.freq = llama.frequencies({**c, **c.get("rope_parameters", {})}, self.rope)

    def norm(self, x, name):
        # the narrow vectors have an epsilon of their own, which no file sets
        eps = 1e-6 if name.endswith("_a_layernorm.weight") else self.config["rms_norm_eps"]
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[name]

    def turn(self, x, positions):
        """x [T][...][rope]: channels 2i and 2i + 1 are a pair."""
        angle = np.outer(positions, self.freq).reshape(len(positions), *[1] * (x.ndim - 2), -1)
        a, b = x[..., ::2], x[..., 1::2]
        cos, sin = np.cos(angle), np.sin(angle)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def project(self, l, x, positions):
        """Queries [T][H][nope + rope] and rows [T][rank + rope]."""
        p = f"model.layers.{l}.self_attn."
        y = self.norm(x, f"model.layers.{l}.input_layernorm.weight")
        if self.config["q_lora_rank"]:
            q = self.norm(y @ self.w[p + "q_a_proj.weight"].T, p + "q_a_layernorm.weight")
            q = q @ self.w[p + "q_b_proj.weight"].T
        else:
            q = y @ self.w[p + "q_proj.weight"].T
        q = q.reshape(len(x), self.H, -1)
        q = np.concatenate([q[..., :self.nope], self.turn(q[..., self.nope:], positions)], -1)
        row = y @ self.w[p + "kv_a_proj_with_mqa.weight"].T
        c = self.norm(row[:, :self.rank], p + "kv_a_layernorm.weight")
        return q, np.concatenate([c, self.turn(row[:, self.rank:], positions)], -1)

    def expand(self, l, rows, h):
        """Keys and values of query head h, from these rows."""
        w = self.w[f"model.layers.{l}.self_attn.kv_b_proj.weight"].reshape(self.H, -1, self.rank)
        made = rows[:, :self.rank] @ w[h].T
        return np.concatenate([made[:, :self.nope], rows[:, self.rank:]], 1), made[:, self.nope:]

    def behind(self, l, x, o):
        """The stream behind layer l, whose attention gives o [T][H][value]."""
        p = f"model.layers.{l}."
        x = x + o.reshape(len(x), -1) @ self.w[p + "self_attn.o_proj.weight"].T
        y = self.norm(x, p + "post_attention_layernorm.weight")
        gate, up = (y @ self.w[p + f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return x + (gate / (1 + np.exp(-gate)) * up) @ self.w[p + "mlp.down_proj.weight"].T

    def logits(self, x):
        head = self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"])
        return self.norm(x, "model.norm.weight") @ head.T

    def streams(self, ids):
        """[layer][T][D] in front of each layer, of a prompt."""
        x, out = self.w["model.embed_tokens.weight"][ids], []
        hidden = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
        for l in range(self.L):
            out.append(x)
            q, rows = self.project(l, x, np.arange(len(ids)))
            o = np.empty((len(ids), self.H, self.value))
            for h in range(self.H):
                k, v = self.expand(l, rows, h)
                o[:, h] = softmax(q[:, h] @ k.T / math.sqrt(self.nope + self.rope) + hidden) @ v
            x = self.behind(l, x, o)
        return out


NUMBERS = ("rows", "of_rows", "head_rows", "index_bytes", "key_bytes", "value_bytes", "of_bytes",
           "recall", "mass", "fetched_bytes")


class Decoder:
    """The rows of BEFORE, and the steps that follow."""

    def __init__(self, model, head, before, report):
        self.model, self.head, self.report = model, head, report
        L = range(model.L)
        self.rows = [before.array(l, "keys", 0).astype(float) for l in L]
        self.positions = [list(before.layers[l].positions[0]) for l in L]
        self.stored = [len(p) for p in self.positions]
        self.size = 4 * (model.rank + model.rope)
        self.sums = [dict.fromkeys(NUMBERS, 0.0) | {"overlap": []} for _ in L]
        self.last, self.loaded = [None] * model.L, [set()] * model.L
        keys, self.feature = head.text(before.tokens, model.streams(before.tokens))
        self.head_keys = list(keys.transpose(1, 0, 2))
        self.lists = model.H if report["per"] == "query-head" else 1
        self.closest = math.inf

    def join(self, weights):
        how = {"max": np.max, "mean": np.mean, "sum": np.sum}[self.report["reduce"]]
        return how(weights.reshape(self.lists, -1, weights.shape[-1]), axis=1)

    def look_ahead(self, token, position):
        """Scores [lists][positions]."""
        q, k = self.head.row(token, position, self.feature)
        self.head_keys.append(k)
        keys, R = np.array(self.head_keys), self.head.H // self.head.G
        logits = np.array([keys[:, h // R] @ q[h] for h in range(self.head.H)])
        self.ahead = self.join(softmax(logits / math.sqrt(self.head.E)))
        self.ahead[:, :self.report["sinks"]] = np.inf
        self.ahead[:, len(keys) - self.report["recent"]:] = np.inf
        self.unread = keys.size * 4                     # the first layer that chooses counts it

    def attend(self, l, q):
        """[H][value] of queries [H][nope + rope]."""
        m, n = self.model, len(self.positions[l])
        every = np.arange(n)
        whole = l < self.report["dense_layers"] or n <= self.report["budget"]
        lists = [every] * self.lists if whole else [
            self.best(scores[self.positions[l]], self.report["budget"]) for scores in self.ahead]
        of, out, found, mass = m.H // self.lists, np.empty((m.H, m.value)), [], []
        true = []
        for h in range(m.H):
            logits = q[h] @ self.expanded(l, h)[0].T / math.sqrt(m.nope + m.rope)
            chosen = lists[h // of]
            out[h] = softmax(logits[chosen]) @ self.expanded(l, h)[1][chosen]
            true.append(softmax(logits))
            mass.append(true[-1][chosen].sum())
        for chosen, scores in zip(lists, self.join(np.array(true))):
            found.append(len(np.intersect1d(chosen, self.best(scores, len(chosen)))) / len(chosen))
        read = set(np.concatenate(lists).tolist())
        got = dict(rows=len(read), of_rows=n, head_rows=sum(map(len, lists)) * of,
                   index_bytes=0 if whole else self.unread, key_bytes=len(read) * self.size,
                   value_bytes=0, of_bytes=n * self.size, recall=np.mean(found),
                   mass=np.mean(mass), fetched_bytes=self.fetched(l, read))
        for name in NUMBERS:
            self.sums[l][name] += got[name]
        if not whole:
            self.unread = 0
        now = read if len(read) < n else None
        if now and self.last[l]:
            self.sums[l]["overlap"].append(len(now & self.last[l]) / len(now))
        self.last[l] = now
        return out

    def best(self, scores, n):
        ranked = np.sort(scores)[::-1]
        if n < len(ranked) and ranked[n - 1] < np.inf:
            self.closest = min(self.closest, 1 - ranked[n] / ranked[n - 1])
        return best(scores, n)

    def expanded(self, l, h):
        return self.model.expand(l, self.rows[l], h)

    def fetched(self, l, read):
        """Rows of the file that the step before has not read."""
        if l < self.report["dense_layers"]:
            return 0
        far = {row for row in read if row < self.stored[l]}
        new = len(far - self.loaded[l])
        self.loaded[l] = far
        return new * self.size

    def step(self, token, position):
        m = self.model
        x = m.w["model.embed_tokens.weight"][[token]]
        self.look_ahead(token, position)
        streams = []
        for l in range(m.L):
            streams.append(x[0])
            q, row = m.project(l, x, np.array([position]))
            self.rows[l] = np.vstack([self.rows[l], row.astype("f4")])
            self.positions[l].append(position)
            x = m.behind(l, x, self.attend(l, q[0])[None])
        self.feature = self.head.feature(streams)
        return m.logits(x[0])


def difference(report, decoder, steps):
    """The greatest relative difference of a number of the report."""
    worst = abs(report["steps"] - steps)
    dense = report["dense_layers"]
    pairs = [(report["all"], decoder.sums), (report["retrieving"], decoder.sums[dense:])]
    pairs += [(layer, [decoder.sums[l]]) for l, layer in enumerate(report["layers"])]
    for said, of in pairs:
        n = steps * len(of)
        want = {name: sum(s[name] for s in of) / n for name in NUMBERS if name in said}
        want["share"] = (want["index_bytes"] + want["key_bytes"]) / want["of_bytes"]
        shares = [share for s in of for share in s["overlap"]]
        want["overlap"] = sum(shares) / len(shares) if shares else None
        for name, value in want.items():
            if said[name] is None or value is None:
                worst = max(worst, math.inf if said[name] != value else 0)
            else:
                worst = max(worst, abs(said[name] - value) / max(abs(value), 1e-30))
    return worst


def compare(model, head, before, after, stats):
    """The two errors of one run, and the closest choice."""
    with open(before, "rb") as a, open(after, "rb") as b:
        before, after = kvread.read(a), kvread.read(b)
    assert before.head["dtype"] == "f32"
    report = json.loads(pathlib.Path(stats).read_text())
    decoder = Decoder(model, draft_head.Head(head, model), before, report)
    new = after.tokens[len(before.tokens):]
    for i, token in enumerate(new):
        logits = decoder.step(token, before.head["next_position"] + i)
    pairs = [(after.logits, logits),
             (draft_head.stored(after), np.array(decoder.head_keys).transpose(1, 0, 2))]
    for l in range(model.L):
        assert list(after.layers[l].positions[0]) == decoder.positions[l], f"layer {l}: other rows"
        pairs.append((after.array(l, "keys", 0)[-len(new):], decoder.rows[l][-len(new):]))
    return (max(llama.relative([p]) for p in pairs), difference(report, decoder, len(new)),
            decoder.closest)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=1e-5)
    limit = parser.parse_args().limit
    worst = 0
    for line in sys.stdin:
        model, *files = line.rstrip("\n").split("\t")
        rows, said, closest = compare(Latent(model), *files)
        print(f"{line.strip()}: rows {rows:.1e} report {said:.1e} closest {closest:.1e}")
        worst = max(worst, rows, said)
    sys.exit(not worst < limit)


if __name__ == "__main__":
    main()
