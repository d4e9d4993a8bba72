#!/usr/bin/env python3
"""Records which rows the presses of NVIDIA's kvpress keep, for tests/kvpress.bats.

    python3 -m venv venv
    venv/bin/pip install torch==2.5.1 transformers==5.2.0 kvpress==0.5.5
    venv/bin/python tests/oracle/kvpress_kept.py

These commands made the files in tests/fixtures/kvpress, on a CPU (x86-64). The tests need none of
these packages. Each press runs as kvpress has it on the demo model, which transformers runs in f32
over prompt.txt, and PRESS.json says what it keeps:

    press       how it is constructed: r is the compression ratio, N = max(1, int(T * (1 - r)))
    versions    of kvpress, transformers and torch; attention: which implementation
    tokens      T, the length of the prompt
    epsilon     see near
    runs        one for each compression ratio:
      ratio     the compression ratio r
      kept      [layer][KV head], the positions that are kept as a hexadecimal number in which
                position p is the bit 1 << p
      near      [layer][KV head], the positions whose scores are so close to the boundary between
                kept and dropped rows that rounding decides: at most epsilon times the score at the
                boundary away from it
      ids       where the press works while decoding: the tokens that were generated
      keys      where keys are rotated anew: [layer], the last key of KV head 0

Scores of kvpress and kvpipe were found to differ by at most 4e-5 of a score (KeyDiff, whose scores
are cosines: by 5e-6) and in KVzip by 2e-4. It runs tokens at positions twice as high, and
transformers has the angles of rotary embedding in f32.
"""

import argparse
import itertools
import json
import math
import pathlib
import shutil
import sys
import tempfile
from importlib.metadata import version

import numpy
import torch
import transformers
from kvpress import (AdaKVPress, BlockPress, CapPress, ChunkKVPress, ChunkPress, CompactorPress,
                     ComposedPress, CompressionRatioDecodingPress, CriticalAdaKVPress,
                     CriticalKVPress, CURPress, DecodingPress, DMSPress, DuoAttentionPress,
                     EntropyGatedChunkKVPress, ExpectedAttentionPress,
                     ExpectedAttentionStatsPress, FastKVzipPress, FinchPress, KeyDiffPress,
                     KeyRerotationPress, KnormPress, KVComposePress, KVzapPress, KVzipPress,
                     LagKVPress, LeverageScorePress, LUKVPress, NonCausalAttnPress,
                     ObservedAttentionPress, PerLayerCompressionPress, PrefillDecodingPress,
                     PyramidKVPress, QFilterPress, SimLayerKVPress, SnapKVPress,
                     StreamingLLMPress, TOVAPress)
from kvpress.presses.fastkvzip_press import FastKVzipGate
from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel

import gaussian
import sine_filters

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bin"))
import mkgate  # noqa: E402

RATIOS = (0.3, 0.5, 0.75, 0.9, 0.95)
EPSILON, EPSILON_KVZIP = 1e-4, 5e-4
STEPS = 8       # tokens that are generated where a press works while decoding
WINDOW = 16     # FINCH: tokens of the question

# A model that follows instructions ends a turn with a special token, and KVzip's instruction ends
# with what the template has there.
CHAT_TEMPLATE = "{{ messages[0]['content'] }}<|end_of_text|>"


def rows_left(tokens, ratio):
    """N, as kvpress counts."""
    return max(1, int(tokens * (1 - ratio)))


def decoding(press, ratio, tokens, interval=1):
    """As many rows after the prompt as after each token, or after every few."""
    return PrefillDecodingPress(press(ratio), DecodingPress(
        press(), compression_interval=interval, target_size=rows_left(tokens, ratio)))


def decoding_ratio(press, ratio, tokens):
    return PrefillDecodingPress(press(ratio), CompressionRatioDecodingPress(
        press(), compression_interval=1, target_compression_ratio=ratio))


def duo_attention(ratio, tokens):
    """kvpress fetches sinks, recent rows and head scores for models that it knows by name."""
    table = numpy.loadtxt(ROOT / "examples/demo-model/duoattention.tsv")
    DuoAttentionPress.load_attention_pattern = staticmethod(lambda model: (128, 256, table))
    return DuoAttentionPress(head_compression_ratio=ratio)


def finch(ratio, **named):
    """The pad token divides context and question; see Recorder.run()."""
    press = FinchPress(ratio, **named)
    press.delimiter_token_id = 1535
    return press


def lukv(ratio, tokens):
    """kvpress fetches its curves for models that it knows by name: which share of each KV head goes
    at a ratio of 0.01, 0.02, ... 0.99."""
    i, l, g = numpy.ogrid[1:100, :4, :2]
    press = LUKVPress(KeyDiffPress(), compression_ratio=ratio)
    press._budget_curves = (i / 100 * (0.5 + 37 * (2 * l + g) % 100 / 200)).astype("f4")
    return press


def qfilter(ratio, tokens):
    """kvpress fetches filters for models that it knows by name."""
    filters = torch.tensor([[[sine_filters.number(l, g, e) for e in range(32)] for g in range(2)]
                            for l in range(4)])
    QFilterPress.load_q_filters = staticmethod(lambda name: filters)
    return QFilterPress(ratio)


def leverage(ratio, width, sketch):
    """kvpress projects keys by other numbers at each call: sketch(l)[KV head] is [32][width]."""
    layers = itertools.count()
    torch.randn = lambda *shape, device, dtype: math.sqrt(width) * torch.tensor(
        sketch(next(layers)), device=device, dtype=dtype).view(shape)
    return LeverageScorePress(ratio, sketch_dimension=width)


def exact_leverage(ratio):
    """A projection that leaves keys as they are"""
    return leverage(ratio, 32, lambda l: [torch.eye(32).tolist()] * 2)


def compactor(ratio, **named):
    """With exact leverage"""
    exact_leverage(ratio)
    return CompactorPress(ratio, sketch_dimension=32, **named)


def expected_stats(ratio, tokens):
    """kvpress fetches statistics for models that it knows by name."""
    heads, width = [(l, h) for l in range(4) for h in range(4)], range(32)
    press = ExpectedAttentionStatsPress(ratio)
    press.mu = torch.tensor([[sine_filters.number(l, h, e) for e in width]
                             for l, h in heads]).view(4, 4, 32)
    press.cov = torch.tensor([[[sine_filters.covariance(l, h, i, j) for j in width]
                               for i in width] for l, h in heads]).view(4, 4, 32, 32)
    press.post_init_from_model = lambda model: None
    return press


def weights_of_gate(kind):
    """Names and tensors, as tests/bin/mkgate.py makes them"""
    config = json.loads((ROOT / "examples/demo-model/config.json").read_text())
    return {name: torch.from_numpy(x) for name, x in mkgate.tensors(kind, config).items()}


def kvzap(ratio, kind):
    """kvpress fetches gates for models that it knows by name."""
    press = KVzapPress(ratio, model_type=kind)
    press.kvzap_model = KVzapModel(KVzapConfig(
        input_dim=128, output_dim=2, n_modules=4,
        hidden_dim=mkgate.HIDDEN["mlp"] if kind == "mlp" else None))
    press.kvzap_model.load_state_dict(weights_of_gate(kind))
    press.post_init_from_model = lambda model: None
    return press


def fastkvzip(ratio, **named):
    """As for KVzap"""
    press, width = FastKVzipPress(ratio, **named), mkgate.HIDDEN["fastkvzip"]
    press.gates = [FastKVzipGate(l, 128, 2, 2, torch.float32, width, mkgate.SINKS)
                   for l in range(4)]
    weights = weights_of_gate("fastkvzip")
    for l, gate in enumerate(press.gates):
        gate.load_state_dict({name: weights[f"layers.{l}.{name}"].view(x.shape)
                              for name, x in gate.state_dict().items()})
    return press


# name of the file: how the press is constructed, as text and in fact
PRESSES = {
    "KnormPress": ("KnormPress(r)", lambda r, T: KnormPress(r)),
    "KeyDiffPress": ("KeyDiffPress(r)", lambda r, T: KeyDiffPress(r)),
    "LagKVPress": ("LagKVPress(r)", lambda r, T: LagKVPress(r)),
    "LagKVPress-cross": (
        "LagKVPress(r, cross_scoring=True)", lambda r, T: LagKVPress(r, cross_scoring=True)),
    "CURPress": ("CURPress(r)", lambda r, T: CURPress(r)),
    "CURPress-kv_avg": (
        "CURPress(r, leverage_type='kv_avg', use_local_approximation=False)",
        lambda r, T: CURPress(r, leverage_type="kv_avg", use_local_approximation=False)),
    "QFilterPress": (
        "QFilterPress(r), filters of tests/oracle/sine_filters.py", qfilter),
    "ExpectedAttentionPress": (
        "ExpectedAttentionPress(r)", lambda r, T: ExpectedAttentionPress(r)),
    "ExpectedAttentionPress-plain": (
        "ExpectedAttentionPress(r, n_future_positions=64, use_covariance=False, use_vnorm=False)",
        lambda r, T: ExpectedAttentionPress(r, n_future_positions=64, use_covariance=False,
                                            use_vnorm=False)),
    "AdaKVPress-ExpectedAttentionPress": (
        "AdaKVPress(ExpectedAttentionPress(r, epsilon=0.01))",
        lambda r, T: AdaKVPress(ExpectedAttentionPress(r, epsilon=0.01))),
    "ExpectedAttentionStatsPress": (
        "ExpectedAttentionStatsPress(r), statistics of tests/oracle/sine_filters.py",
        expected_stats),
    "LeverageScorePress": (
        "LeverageScorePress(r, sketch_dimension=32), which multiplies keys by the unit matrix",
        lambda r, T: exact_leverage(r)),
    "LeverageScorePress-16": (
        "LeverageScorePress(r, sketch_dimension=16), which multiplies keys by the numbers of "
        "tests/oracle/gaussian.py, seed 3",
        lambda r, T: leverage(r, 16, lambda l: [gaussian.sketch(3, l, g, 32, 16)
                                                for g in range(2)])),
    "AdaKVPress-LeverageScorePress": (
        "AdaKVPress(LeverageScorePress(r, sketch_dimension=32)), which multiplies keys by the "
        "unit matrix", lambda r, T: AdaKVPress(exact_leverage(r))),
    "NonCausalAttnPress": ("NonCausalAttnPress(r)", lambda r, T: NonCausalAttnPress(r)),
    "CompactorPress": (
        "CompactorPress(r, sketch_dimension=32), which multiplies keys by the unit matrix",
        lambda r, T: compactor(r)),
    "AdaKVPress-CompactorPress": (
        "AdaKVPress(CompactorPress(r, sketch_dimension=32, blending=0.35)), which multiplies keys "
        "by the unit matrix", lambda r, T: AdaKVPress(compactor(r, blending=0.35))),
    "CapPress": ("CapPress(r)", lambda r, T: CapPress(r)),
    "SimLayerKVPress": (
        "SimLayerKVPress(lazy_threshold=r, n_recent=100)",
        lambda r, T: SimLayerKVPress(lazy_threshold=r, n_recent=100)),
    "StreamingLLMPress": ("StreamingLLMPress(r)", lambda r, T: StreamingLLMPress(r)),
    "SnapKVPress": ("SnapKVPress(r)", lambda r, T: SnapKVPress(r)),
    "TOVAPress": ("TOVAPress(r)", lambda r, T: TOVAPress(r)),
    "ObservedAttentionPress": (
        "ObservedAttentionPress(r)", lambda r, T: ObservedAttentionPress(r)),
    "PyramidKVPress": ("PyramidKVPress(r)", lambda r, T: PyramidKVPress(r)),
    "PyramidKVPress-window-4": (
        "PyramidKVPress(r, window_size=4)", lambda r, T: PyramidKVPress(r, window_size=4)),
    "AdaKVPress": ("AdaKVPress(SnapKVPress(r))", lambda r, T: AdaKVPress(SnapKVPress(r))),
    "CriticalKVPress": (
        "CriticalKVPress(SnapKVPress(r))", lambda r, T: CriticalKVPress(SnapKVPress(r))),
    "CriticalKVPress-ExpectedAttentionPress": (
        "CriticalKVPress(ExpectedAttentionPress(r, use_vnorm=False), first_stage_ratio=0.3)",
        lambda r, T: CriticalKVPress(ExpectedAttentionPress(r, use_vnorm=False),
                                     first_stage_ratio=0.3)),
    "CriticalAdaKVPress": (
        "CriticalAdaKVPress(SnapKVPress(r))", lambda r, T: CriticalAdaKVPress(SnapKVPress(r))),
    "KeyRerotationPress": (
        "KeyRerotationPress(SnapKVPress(r))", lambda r, T: KeyRerotationPress(SnapKVPress(r))),
    "FinchPress": (
        f"FinchPress(r, normalize_scores=False), a question of {WINDOW} tokens",
        lambda r, T: finch(r, normalize_scores=False)),
    "FinchPress-normalized": (
        f"FinchPress(r), a question of {WINDOW} tokens", lambda r, T: finch(r)),
    "KVzipPress": ("KVzipPress(r)", lambda r, T: KVzipPress(r)),
    "KVzipPress-layerwise": (
        "KVzipPress(r, layerwise=True)", lambda r, T: KVzipPress(r, layerwise=True)),
    "KVComposePress": ("KVComposePress(compression_ratio=r)",
                       lambda r, T: KVComposePress(compression_ratio=r)),
    "KVComposePress-unstructured": (
        "KVComposePress(structured=False, compression_ratio=r)",
        lambda r, T: KVComposePress(structured=False, compression_ratio=r)),
    "KVzipPress-plus": (
        "KVzipPress(r, kvzip_plus_normalization=True)",
        lambda r, T: KVzipPress(r, kvzip_plus_normalization=True)),
    "KVzapPress": (
        "KVzapPress(r, model_type='mlp'), weights of tests/bin/mkgate.py",
        lambda r, T: kvzap(r, "mlp")),
    "KVzapPress-linear": (
        "KVzapPress(r, model_type='linear'), weights of tests/bin/mkgate.py",
        lambda r, T: kvzap(r, "linear")),
    "DMSPress-KVzapPress": (
        "DMSPress(KVzapPress(model_type='mlp'), threshold=0.8 r - 0.5), weights of "
        "tests/bin/mkgate.py",
        lambda r, T: DMSPress(kvzap(0, "mlp"), threshold=0.8 * r - 0.5)),
    "FastKVzipPress": (
        "FastKVzipPress(r), weights of tests/bin/mkgate.py", lambda r, T: fastkvzip(r)),
    "FastKVzipPress-layerwise": (
        "FastKVzipPress(r, layerwise=True), weights of tests/bin/mkgate.py",
        lambda r, T: fastkvzip(r, layerwise=True)),
    "DuoAttentionPress": (
        "DuoAttentionPress(r), 128 sinks, 256 recent rows, examples/demo-model/duoattention.tsv",
        duo_attention),
    "ComposedPress": (
        "ComposedPress([KeyDiffPress(0.25), KnormPress(r)])",
        lambda r, T: ComposedPress([KeyDiffPress(0.25), KnormPress(r)])),
    "PerLayerCompressionPress": (
        "PerLayerCompressionPress(KeyDiffPress(), [r, r, 0.25, 0.25])",
        lambda r, T: PerLayerCompressionPress(KeyDiffPress(), [r, r, 0.25, 0.25])),
    "BlockPress": (
        "BlockPress(KeyDiffPress(r), block_size=120)",
        lambda r, T: BlockPress(KeyDiffPress(r), block_size=120)),
    "ChunkKVPress": (
        "ChunkKVPress(KeyDiffPress(r), chunk_length=20)",
        lambda r, T: ChunkKVPress(KeyDiffPress(r), chunk_length=20)),
    "ChunkKVPress-SnapKVPress": (
        "ChunkKVPress(SnapKVPress(r), chunk_length=14)",
        lambda r, T: ChunkKVPress(SnapKVPress(r), chunk_length=14)),
    "EntropyGatedChunkKVPress": (
        "EntropyGatedChunkKVPress(KeyDiffPress(r))",
        lambda r, T: EntropyGatedChunkKVPress(KeyDiffPress(r))),
    "EntropyGatedChunkKVPress-SnapKVPress": (
        "EntropyGatedChunkKVPress(SnapKVPress(r), chunk_length=14, low_entropy_chunk_length=3)",
        lambda r, T: EntropyGatedChunkKVPress(SnapKVPress(r), chunk_length=14,
                                              low_entropy_chunk_length=3)),
    "LUKVPress": (
        "LUKVPress(KeyDiffPress(), r), of KV head g in layer l goes the share "
        "r (0.5 + (37 (2 l + g) mod 100) / 200)", lukv),
    "DMSPress": (
        "DMSPress(KnormPress(), threshold=8 r - 14)",
        lambda r, T: DMSPress(KnormPress(), threshold=8 * r - 14)),
    "ChunkPress": (
        "ChunkPress(KeyDiffPress(r), chunk_length=240)",
        lambda r, T: ChunkPress(KeyDiffPress(r), chunk_length=240)),
    "PrefillDecodingPress": (
        "PrefillDecodingPress(TOVAPress(r), DecodingPress(TOVAPress(), 1, N))",
        lambda r, T: decoding(TOVAPress, r, T)),
    "PrefillDecodingPress-KeyDiffPress": (
        "PrefillDecodingPress(KeyDiffPress(r), DecodingPress(KeyDiffPress(), 1, N))",
        lambda r, T: decoding(KeyDiffPress, r, T)),
    "PrefillDecodingPress-3": (
        "PrefillDecodingPress(KeyDiffPress(r), DecodingPress(KeyDiffPress(), 3, N))",
        lambda r, T: decoding(KeyDiffPress, r, T, 3)),
    "CompressionRatioDecodingPress": (
        "PrefillDecodingPress(KeyDiffPress(r), "
        "CompressionRatioDecodingPress(KeyDiffPress(), r, 1))",
        lambda r, T: decoding_ratio(KeyDiffPress, r, T)),
}


# how many of the prompt's tokens, where not all: chunks of attention without a mask are whole, as
# the last one is otherwise filled up with rows of zeros
TOKENS = {"NonCausalAttnPress": 3 * 256, "CompactorPress": 8 + 3 * 256 + 4,
          "AdaKVPress-CompactorPress": 8 + 3 * 256 + 4}


def stages(press):
    """The presses whose hooks change the cache."""
    if isinstance(press, ComposedPress):
        return [stage for inner in press.presses for stage in stages(inner)]
    if isinstance(press, PerLayerCompressionPress):
        return stages(press.press)
    if isinstance(press, PrefillDecodingPress):
        return [press.prefilling_press, press.decoding_press]
    if isinstance(press, (KVzipPress, FastKVzipPress, KVComposePress)):     # see watch_...()
        return []
    return [press]


def scorer(press):
    """The press that scores for one of the stages, or None."""
    while not hasattr(press, "score") and hasattr(press, "press"):
        press = press.press
    if isinstance(press, DecodingPress):
        press = press.base_press
    return press if hasattr(press, "score") else None


def places_of(after, before):
    """Where each row of after stands in before; no two keys of a head are the same."""
    place = {row.tobytes(): i for i, row in enumerate(before.numpy())}
    assert len(place) == len(before)
    return [place[row.tobytes()] for row in after.numpy()]


def of_chunks(scores, length):
    """Every row of a chunk has the chunk's score, in all KV heads."""
    chunks = [scores[:, i:i + length] for i in range(0, scores.shape[1], length)]
    return numpy.concatenate([numpy.full_like(chunk, chunk.sum(axis=0).mean())
                              for chunk in chunks], axis=1)


class Recorder:
    """Runs a press, and follows the positions of the rows through the hooks."""

    def __init__(self, model, press):
        self.model, self.press = model, press
        config = model.config
        self.layers, self.heads = config.num_hidden_layers, config.num_key_value_heads
        self.rows = self.table(list)        # positions, in the order of the cache
        self.near = self.table(set)
        self.seen = [0] * self.layers       # the next position
        self.scores = self.turned = None    # of the stage that runs
        for stage in stages(press):
            self.watch(stage)

    def table(self, what):
        return [[what() for _ in range(self.heads)] for _ in range(self.layers)]

    def watch(self, stage):
        hook = stage.forward_hook
        stage.forward_hook = lambda *arguments: self.hook(hook, *arguments)
        by = scorer(stage)
        if by is not None:
            score = by.score

            def watched(*arguments, **named):
                self.scores = score(*arguments, **named)
                return self.scores

            by.score = watched

    def hook(self, original, module, inputs, kwargs, output):
        """In place of a stage's forward_hook(): notes what it drops."""
        l, layer = module.layer_idx, kwargs["past_key_values"].layers[module.layer_idx]
        before = layer.keys[0]
        new = before.shape[1] - len(self.rows[l][0])
        for rows in self.rows[l]:
            rows += range(self.seen[l], self.seen[l] + new)
        self.seen[l] += new
        self.scores = self.turned = None
        output = original(module, inputs, kwargs, output)
        masked = getattr(module, "masked_key_indices", None)
        if masked is None:
            places = [self.turned[0, g].tolist() if self.turned is not None else
                      places_of(layer.keys[0, g], before[g]) for g in range(self.heads)]
        else:
            places = self.unmasked(masked, before.shape[1])
        if self.scores is not None and self.scores.shape[2] == before.shape[1]:
            self.note_near(l, places, masked is not None and not isinstance(self.press, LUKVPress))
        for g in range(self.heads):
            self.rows[l][g] = [self.rows[l][g][i] for i in places[g]]
        return output

    def unmasked(self, masked, count):
        """Presses that drop more rows in one head than in another mask them at each step."""
        _, heads, places = masked
        dropped = [set(places[heads == g].tolist()) for g in range(self.heads)]
        return [[i for i in range(count) if i not in dropped[g]] for g in range(self.heads)]

    def note_near(self, l, places, together):
        scores = self.scores[0].double().numpy()
        if isinstance(self.press, EntropyGatedChunkKVPress):
            return      # rows, means and entropies compete; none was close enough to matter
        if isinstance(self.press, ChunkKVPress):
            scores = of_chunks(scores, self.press.chunk_length)
        if isinstance(self.press, DMSPress):
            for g, i in numpy.argwhere(abs(scores / self.press.threshold - 1) <= EPSILON):
                self.near[l][g].add(self.rows[l][g][i])
            return
        groups = [range(self.heads)] if together else [[g] for g in range(self.heads)]
        for group in groups:
            stay = {(g, i) for g in group for i in places[g]}
            go = {(g, i) for g in group for i in range(scores.shape[1])} - stay
            for g, i in close_to_boundary(stay, go, lambda row: scores[row]):
                self.near[l][g].add(self.rows[l][g][i])

    def run(self, ids):
        if isinstance(self.press, FinchPress):
            self.press.window_size = None
            ids = torch.cat([ids[:, :-WINDOW], torch.tensor([[self.press.delimiter_token_id]]),
                             ids[:, -WINDOW:]], dim=1)
        for layer in self.model.model.layers:
            layer.self_attn.masked_key_indices = None
        cache = transformers.DynamicCache()
        rerotate = KeyRerotationPress.rerotate_keys

        def turning(module, indices, keys):
            self.turned = indices
            return rerotate(module, indices, keys)

        KeyRerotationPress.rerotate_keys = staticmethod(turning)
        with self.press(self.model):
            if isinstance(self.press, (KVzipPress, FastKVzipPress)):
                self.watch_kvzip(self.press)
            if isinstance(self.press, KVComposePress):
                self.watch_kvcompose(self.press)
            generated = self.generate(ids, cache)
        KeyRerotationPress.rerotate_keys = staticmethod(rerotate)
        result = {
            "kept": [["%x" % sum(1 << p for p in rows) for rows in heads] for heads in self.rows],
            "near": [[sorted(near) for near in heads] for heads in self.near],
        }
        if isinstance(self.press, PrefillDecodingPress):
            result["ids"] = generated
        if isinstance(self.press, (KeyRerotationPress, FinchPress)):
            result["keys"] = [[round(x, 4) for x in layer.keys[0, 0, -1].tolist()]
                              for layer in cache.layers]
        return result

    def generate(self, ids, cache):
        """The prompt, and further tokens where the press works while decoding."""
        logits = self.model(input_ids=ids, past_key_values=cache, logits_to_keep=1).logits
        generated = []
        if isinstance(self.press, PrefillDecodingPress):
            for i in range(STEPS):
                generated.append(int(logits[0, -1].argmax()))
                logits = self.model(
                    input_ids=torch.tensor([generated[-1:]]), past_key_values=cache,
                    position_ids=torch.tensor([[ids.shape[1] + i]])).logits
        return generated

    def watch_kvzip(self, press):
        """KVzip and Fast KVzip say when the prompt has run which rows are masked."""
        compress = press.compress_post

        def watched(model):
            compress(model)
            scores = press.score_val[:, 0].double().numpy()
            count = scores.shape[2]
            places = [self.unmasked(layer.self_attn.masked_key_indices, count)
                      for layer in model.model.layers]
            self.rows = [[list(rows) for rows in heads] for heads in places]
            every = [(l, g, i) for l in range(self.layers) for g in range(self.heads)
                     for i in range(count)]
            stay = {(l, g, i) for l in range(self.layers) for g in range(self.heads)
                    for i in places[l][g]}
            groups = range(self.layers) if press.layerwise else [None]
            for only in groups:
                rows = [row for row in every if only in (None, row[0])]
                for l, g, i in close_to_boundary(stay.intersection(rows), set(rows) - stay,
                                                 lambda row: scores[row], EPSILON_KVZIP):
                    self.near[l][g].add(i)

        press.compress_post = watched


    def watch_kvcompose(self, press):
        """KVCompose chooses when the prompt has run twice. Close calls are those of each KV head:
        how many rows it keeps must be the same."""
        compress = press.compress_cache

        def watched(model):
            for l, masks in enumerate(press.important_mask_per_kv_head):
                for g, mask in enumerate(masks):
                    scores, stay = press.scores[l, g].double().numpy(), mask.nonzero()[:, 0]
                    self.rows[l][g] = stay.tolist()
                    go = set(range(len(scores))) - set(self.rows[l][g])
                    self.near[l][g].update(close_to_boundary(
                        set(self.rows[l][g]), go, lambda row: scores[row], EPSILON_KVZIP))
            compress(model)

        press.compress_cache = watched


def close_to_boundary(stay, go, score, epsilon=EPSILON):
    """Which of the rows that stay or go rounding could exchange for one another."""
    if not stay or not go:
        return []
    low, high = min(map(score, stay)), max(map(score, go))
    reach = epsilon * min(abs(low), abs(high))
    if low - high > reach:
        return []
    return ([row for row in stay if score(row) <= high + reach] +
            [row for row in go if score(row) >= low - reach])


def load(folder, attention):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention).eval()


def record(name, folder, ids):
    text, make = PRESSES[name]
    eager = name.startswith(("ObservedAttention", "KVCompose"))
    attention = "eager" if eager else "sdpa"
    ids = ids[:, :TOKENS.get(name)]
    tokens = ids.shape[1]
    runs = [{"ratio": ratio, **Recorder(load(folder, attention), make(ratio, tokens)).run(ids)}
            for ratio in RATIOS]
    versions = {package: version(package) for package in ("kvpress", "transformers", "torch")}
    return {"press": text, "versions": {**versions, "attention": attention}, "tokens": tokens,
            "epsilon": EPSILON_KVZIP if name.startswith("KV") else EPSILON, "runs": runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=ROOT / "examples/demo-model", help="model folder")
    parser.add_argument("--out", default=ROOT / "tests/fixtures/kvpress", type=pathlib.Path,
                        help="folder that has prompt.txt and gets the JSON files")
    parser.add_argument("press", nargs="*", help="record only these: " + ", ".join(PRESSES))
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(options.model, folder, dirs_exist_ok=True)
        (pathlib.Path(folder) / "chat_template.jinja").write_text(CHAT_TEMPLATE)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids = tokenizer((options.out / "prompt.txt").read_text(), return_tensors="pt")["input_ids"]
        for name in options.press or PRESSES:
            with open(options.out / f"{name}.json", "w") as file:
                json.dump(record(name, folder, ids), file, indent=0)
                file.write("\n")


if __name__ == "__main__":
    main()
