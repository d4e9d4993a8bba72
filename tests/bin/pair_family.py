"""pair_family - a family of tiny models with its snapshots, the programs run on them, and what may
be said of their results; for pairs.py"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess

import numpy as np

import kvread
import llama
import mkadapter
import mkfamily
import mkgate
import mkhead
import mkmodel
import sine_filters

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parent.parent / "examples" / "demo-model"
# The families whose arithmetic differs in what a row, attention or a network is; families.bats and
# experts.bats have all others beside transformers. GGUF files and -bf16 run with activations
# rounded as a user has them.
FAMILIES = ("llama", "mixtral", "qwen3_moe", "olmoe", "granitemoe", "glm4_moe", "ernie4_5_moe",
            "dots1", "deepseek_v2-64", "deepseek_v3-experts", "gpt_oss", "ministral3-window",
            "olmo3-yarn", "exaone4", "glm4", "cohere2", "gemma2", "smollm3", "phi3-longrope",
            "minicpm3", "stablelm-12b", "falcon-40b", "mixtral-bf16",
            "q4_0.gguf", "q8_0.gguf", "q4_k.gguf")
# Their widths are part of the case; heads of all others have 32 channels, as blocks of rows want.
NARROW = ("olmoe", "phi3-longrope", "minicpm-longrope", "gpt_neox", "falcon", "phimoe")
# Families without a matrix of queries alone
TOGETHER = ("falcon", "gpt_neox", "internlm2")
ROWS, WINDOW = 44, 8


def with_sinks(rng, tensor, shape, values=mkfamily.values):
    """mkfamily's, but learned sinks get a part of the attention that matters"""
    return values(rng, tensor, shape) + np.float32(9 if tensor.endswith(".sinks") else 0)


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Fault(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Fault(text)


class Family:
    def __init__(self, name, folder):
        self.name, self.folder = name, folder / name.replace(".", "-")
        self.folder.mkdir(exist_ok=True)
        self.environment = dict(os.environ, KV_THREADS="1", KV_DEVICE="cpu")
        if name.endswith(("-bf16", ".gguf")):
            self.environment.pop("KV_PRODUCTS", None)
        self.rounds = "KV_PRODUCTS" not in self.environment
        self.dtype = "f32" if not self.rounds else "f16" if name == "q8_0.gguf" else "bf16"
        if name.endswith(".gguf"):
            self.model, self.config = self.blocks(name[:-5])
        else:
            self.model, self.numbers = "model", self.folder / "model"
            mkfamily.WIDTH = 12 if name.startswith(NARROW) else 32
            mkfamily.values = with_sinks
            if not (self.folder / "model").exists():
                mkfamily.write(name, self.folder / "model", DEMO / "tokenizer.json")
            self.config = mkfamily.config(name)
            # Falcon's is four times the width where it does not say
            self.config.setdefault("intermediate_size", 4 * self.config["hidden_size"])
        self.latent = "kv_lora_rank" in self.config
        r = random.Random(7)
        self.ids = [r.randrange(8, 1500) for _ in range(300)]
        self.text("ids", self.ids[:ROWS])

    def blocks(self, kind):
        """A model whose matrices are in blocks: its file, and its configuration"""
        folder = self.numbers = self.folder / "numbers"
        if not folder.exists():
            random_model = self.folder / "random"
            self.python(HERE / "mkmodel.py", random_model, "--vocab", 1536, "--tokenizer",
                        DEMO / "tokenizer.json", "--heads", 8, "--kv-heads", 2, "--head-dim", 32,
                        "--hidden", 256, "--ffn", 256, "--seed", 5, "--layers", 2, "--std", 0.08)
            self.python(HERE / "mkblocks.py", random_model, kind, self.folder / "model.gguf",
                        folder)
        return "model.gguf", json.loads((folder / "config.json").read_text(encoding="utf-8"))

    def python(self, *words):
        subprocess.run([os.environ["PYTHON"], *map(str, words)], check=True, cwd=self.folder)

    def path(self, name):
        return self.folder / name

    def text(self, name, ids):
        self.path(name).write_text(" ".join(map(str, ids)), encoding="ascii")
        return name

    # ---- programs ----

    def ran(self, *words):
        """What a program prints. Refused: it ends with 1 to 5 and one line; a Fault if it dies,
        says more, or leaves a file behind."""
        words = [str(word) for word in words]
        out = self.path(words[words.index("-o") + 1]) if "-o" in words else None
        if out and out.is_file():
            out.unlink()
        done = subprocess.run(words, cwd=self.folder, env=self.environment, text=True,
                              errors="replace", capture_output=True, check=False)
        said, line = done.stderr.strip(), " ".join(words)
        need("Sanitizer" not in said and "runtime error" not in said, f"{line}: {said}")
        need(0 <= done.returncode <= 5, f"{line}: ended with {done.returncode}: {said}")
        if done.returncode == 0:
            return done.stdout
        need(said, f"{line}: ended with {done.returncode} without a reason")
        need(not (out and out.is_file()), f"{line}: refused, and wrote {out}")
        raise Refused(done.returncode, said)

    def made(self, name, *words):
        """The snapshot NAME, which the program has made: read by other code, with finite numbers"""
        self.ran(*words[:1], "-q", *words[1:], "-o", name)
        return self.read(name)

    def prefill(self, name, *words, text="ids", dtype=""):
        return self.made(name, "kv-prefill", "-m", self.model, "--ids", "--dtype",
                         dtype or self.dtype, *words, text)

    def printed(self, *words):
        """What a program prints, without a number that is none"""
        said = self.ran(*words)
        need(not re.search(r"\b-?(nan|NaN)\b", said), f"{words}: {said}")
        return said

    def decoded(self, name, *words, n=4):
        """Ids of a text that follows the snapshot"""
        said = self.ran("kv-decode", "-q", "-m", self.model, "--ids", "--ignore-eos", "-n", n,
                        *words, name)
        ids = [int(word) for word in said.split()]
        need(len(ids) == n and all(0 <= i < self.config["vocab_size"] for i in ids),
             f"kv-decode {name}: {said}")
        return ids

    # ---- snapshots ----

    def read(self, name):
        """Fault where it breaks a rule of the format or has numbers that are none"""
        try:
            with open(self.path(name), "rb") as file:
                s = kvread.read(file)
        except kvread.Bad as e:
            raise Fault(f"{name}: {e}") from e
        need(s.logits is None or np.isfinite(s.logits).all(), f"{name}: logits")
        for l, layer in enumerate(s.layers):
            for g in range(len(layer.positions)):
                for what in ("keys", "values"):
                    need(np.isfinite(s.array(l, what, g)).all(), f"{name}: {what} of layer {l}")
            if layer.scores:
                need(not any(np.isnan(x).any() or np.isneginf(x).any()
                             for x in map(np.array, layer.scores.values)), f"{name}: scores")
        return s

    def once(self, name, make):
        """The name of a snapshot that later pairs find, too"""
        if not self.path(name).exists():
            make("being-made.kv")
            self.path("being-made.kv").rename(self.path(name))
        return name

    def full(self):
        """The snapshot with all that methods read"""
        return self.once("full.kv", lambda name: self.prefill(
            name, *self.collect(), "--gate", self.gate("linear")))

    @staticmethod
    def collect():
        return "--observe", WINDOW, "--mass", "--query-stats", "--noncausal", 0, "--value-norms"

    def plain(self):
        return self.once("plain.kv", lambda name: self.prefill(name))

    def evicted(self, of=None, name="evicted.kv"):
        """Half of the rows"""
        def make(out):
            self.made("knorm.kv", "kv-score", "--method", "knorm", of or self.full())
            self.made(out, "kv-evict", "--rate", 0.5, "--keep-queries", "knorm.kv")
        return self.once(name, make)

    # ---- what is trained for a model ----

    def shape(self):
        with open(self.path(self.plain()), "rb") as file:
            return kvread.read(file).model

    def gate(self, kind):
        folder = self.path(f"gate-{kind}")
        if not folder.exists():
            config = dict(self.config, num_key_value_heads=self.shape()["kv_heads"])
            made = mkgate.tensors(kind, config, 0)
            folder.mkdir()
            sine_filters.write(folder / "model.safetensors",
                               [(name, list(x.shape), x.ravel()) for name, x in made.items()])
        return folder.name

    def filters(self):
        model = self.shape()
        if not self.path("filters").exists():
            sine_filters.write(self.path("filters"), sine_filters.tensors(
                model["layers"], model["kv_heads"], model["head_width"], False))
        return "filters"

    def adapter(self, tokens=()):
        """Learned tokens with LoRA of attention; with tokens, their embeddings and a LoRA of
        zeros. Of a model that can have none, another model's."""
        folder = self.path("adapter-of-tokens" if tokens else "adapter")
        if self.latent or self.config["model_type"] in TOGETHER:
            return DEMO / "lookahead"
        if not folder.exists():
            linears = mkadapter.LINEARS[:4]
            o = argparse.Namespace(modules=linears, tokens=len(tokens) or 5, rank=3, seed=0,
                                   std=0 if tokens else 0.2, all_of_last=False, drop="",
                                   reshape="", dtype="f32", value=("", "0"))
            tensors = dict(mkadapter.tensors(o, self.config))
            if tokens:
                weights = llama.load_tensors(self.numbers)
                name = next(n for n in weights if n.endswith(("embed_tokens.weight")))
                tensors["lookahead.embeddings"] = weights[name][list(tokens)].astype("<f4")
            folder.mkdir()
            (folder / "adapter_config.json").write_text(json.dumps(
                {"peft_type": "LORA", "r": 3, "lora_alpha": 6.0, "bias": "none",
                 "target_modules": linears, "lora_dropout": 0.0, "use_rslora": False,
                 "task_type": "CAUSAL_LM", "lookahead": {
                     "version": 1, "tokens": o.tokens, "weights": self.shape()["weights"]}}),
                encoding="ascii")
            mkmodel.write_tensors(folder / "adapter_model.safetensors", [
                (name, mkmodel.NAMES["f32"], x) for name, x in tensors.items()])
        return folder.name

    def head(self):
        """A retrieval head with layers of the model in front"""
        folder = self.path("head")
        if not folder.exists():
            model = self.shape()
            L = model["layers"]
            # with latent attention each query head chooses rows
            heads = model["query_heads"] if model.get("latent_rank") else 2 * model["kv_heads"]
            o = argparse.Namespace(heads=heads, kv_heads=model["kv_heads"],
                                   head_dim=8, hidden=None, theta=10000.0, layers="", set=[],
                                   set_own=[["feature_layers", json.dumps([0, L // 2, L - 1])],
                                            ["target_weights", json.dumps(model["weights"])]],
                                   alone=L < 3, embedding=False, more=False, seed=0, std=0.2,
                                   dtype="f32", reshape="", drop="")
            if o.alone:
                o.set_own = []
            config = mkhead.configuration(o, self.config)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(config), encoding="ascii")
            mkmodel.write_tensors(folder / "model.safetensors", [
                (name, "F32", x) for name, x in mkhead.tensors(o, config, self.config)])
        return "head"


def same(a, b, *what):
    """Of two snapshots: positions, keys and values to the byte, and what is named"""
    for l, (x, y) in enumerate(zip(a.layers, b.layers, strict=True)):
        for g, (p, q) in enumerate(zip(x.positions, y.positions, strict=True)):
            need(list(p) == list(q), f"layer {l} KV head {g}: rows {list(p)} and {list(q)}")
        for name in ("keys", "values"):
            need(bytes(getattr(x, name)) == bytes(getattr(y, name)), f"layer {l}: other {name}")
    need(list(a.tokens) == list(b.tokens), "other tokens")
    for name in what:
        need(np.array_equal(getattr(a, name), getattr(b, name)), f"other {name}")


def queries(s, l, what="data"):
    """Observation queries of a layer, or (own) the keys of their tokens that are not stored"""
    return kvread.widen(getattr(s.layers[l].queries, what), s.head["dtype"])


def near(a, b, limit, what="logits"):
    """Of two arrays, by the largest number"""
    a, b = np.array(a, dtype=float), np.array(b, dtype=float)
    need(a.shape == b.shape, f"{what}: shapes {a.shape} and {b.shape}")
    far = np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30)
    need(far <= limit, f"{what}: {far:.2g} apart, limit {limit:.2g}")


def near_rows(a, b, limit):
    """Of two snapshots with the same rows: keys and values"""
    for l, (x, y) in enumerate(zip(a.layers, b.layers, strict=True)):
        for g, (p, q) in enumerate(zip(x.positions, y.positions, strict=True)):
            need(list(p) == list(q), f"layer {l} KV head {g}: rows {list(p)} and {list(q)}")
            for name in ("keys", "values"):
                near(a.array(l, name, g), b.array(l, name, g), limit, f"{name} of layer {l}")
