"""True and guessed scores of a document with questions, the loss between them, and what they keep.

A group is a document and questions about it: `prefix`, ids that all prompts begin with, and for
each question a `tail` behind it and the `response` of the model to prefix + tail. The questions of
a group run side by side, so that the document runs once. Their tails have different lengths:
columns behind a shorter one hold something else, and are masked.

Letters as in lookahead_model.py; C = columns of the prompts: len(prefix) + the longest tail.
"""

import torch
from torch.nn import functional

from lookahead_model import Cache, GrowingCache

# Between the two in the logarithms: no score is exactly zero in theory, in f32 it may be.
EPSILON = 1e-9
POOL = 7


def pad(lists, device):
    """Lists of ids of different lengths as [Q, N], with zeros behind."""
    rows = torch.zeros(len(lists), max(map(len, lists)), dtype=torch.long)
    for row, ids in zip(rows, lists):
        row[:len(ids)] = torch.as_tensor(ids)
    return rows.to(device)


def as_bias(visible, dtype):
    """What is added to logits: 0 where a row sees a column, -inf where not."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(
        ~visible, float("-inf"))


class Prompts:
    """The frozen part of a group: the cache of its prompts, and which columns each prompt has.

    lengths [Q]: T of each prompt; visible [Q, C].
    """

    def __init__(self, model, prefix, tails):
        self.model, self.prefix, self.tails = model, prefix, tails
        self.own_columns = max(map(len, tails))
        self.columns = len(prefix) + self.own_columns
        self.lengths = torch.tensor([len(prefix) + len(tail) for tail in tails],
                                    device=model.device)
        self.visible = torch.arange(self.columns, device=model.device) < self.lengths[:, None]
        self.cache = None

    @torch.no_grad()
    def read(self, responses=None, whole=False, window=0):
        """Runs the prompts, and the responses behind them.

        whole: run all of the last layer, so that its values are in the cache.
        window: give the scores of the last so many rows of each tail, too.
        Returns hidden [Q, D] of each prompt's last token when there are no responses. Otherwise
        the true scores [L, Q, H, C]: the mean attention of the response's rows to the prompt,
        response keys in the softmax; zero behind a shorter prompt. With a window (these, and the
        same of its rows).
        """
        model = self.model
        document = model.prefix(self.prefix)
        rows = [t + (r if responses else []) for t, r in zip(self.tails, responses or self.tails)]
        ids = pad(rows, model.device)
        start, count = len(self.prefix), ids.shape[1]
        positions = start + torch.arange(count, device=model.device)
        mask = as_bias(positions <= positions[:, None], model.wide).expand(len(rows), -1, -1)
        found, shares = [], None
        if responses:
            shares = torch.zeros(len(rows), 2, count, dtype=model.wide, device=model.device)
            for share, tail, response in zip(shares, self.tails, responses):
                share[0, len(tail):len(tail) + len(response)] = 1 / len(response)
                first = max(len(tail) - window, 0)
                share[1, first:len(tail)] = 1 / (len(tail) - first or 1)

        def see(_layer, _q, _k, attention):
            scores = shares[:, None, :1 + (window > 0)] @ attention
            found.append([by_head(one) * self.visible[:, None]
                          for one in scores[..., :self.columns].unbind(3)])

        hidden, made = model.run(model.embed(ids), positions.expand(len(rows), -1),
                                 Cache(document), mask, see=see if responses else None,
                                 until_scores=not whole)
        columns = self.own_columns
        self.cache = Cache(document, [(k[:, :, :columns], None if v is None else v[:, :, :columns])
                                      for k, v in made])
        if not responses:
            last = torch.tensor([len(tail) - 1 for tail in self.tails], device=model.device)
            return hidden[torch.arange(len(rows), device=model.device), last]
        scores = [torch.stack(one) for one in zip(*found)]
        return tuple(scores) if window else scores[0]

    def guess(self, adapter, see=None):
        """Scores [L, Q, H, C] of the learned rows behind each prompt, with gradient.

        see: as in FrozenModel.run().
        """
        model, count = self.model, adapter.tokens
        x = adapter.P.to(model.dtype).expand(len(self.tails), -1, -1)
        steps = torch.arange(count, device=model.device)
        own = (steps <= steps[:, None]).expand(len(self.tails), -1, -1)
        tails = self.visible[:, None, len(self.prefix):].expand(-1, count, -1)
        visible = torch.cat([tails, own], 2)
        scores = []

        def collect(layer, q, k, attention):
            scores.append(by_head(attention.mean(3)[..., :self.columns]))
            if see is not None:
                see(layer, q, k, attention)

        model.run(x, self.lengths[:, None] + steps, self.cache, as_bias(visible, model.wide),
                  adapter, collect, store=False, until_scores=True)
        return torch.stack(scores)


def by_head(scores):
    """[G, Q, R, C] -> [Q, H, C]."""
    return scores.transpose(0, 1).flatten(1, 2)


def divergence(truth, guess):
    """KL(truth || guess) of scores [L, Q, H, C], each normalised over its prompt: [Q], the mean
    over layers and query heads (equation 4 of the paper)."""
    truth = truth / truth.sum(-1, keepdim=True)
    guess = guess / guess.sum(-1, keepdim=True)
    terms = truth * ((truth + EPSILON).log() - (guess + EPSILON).log())
    return terms.sum(-1).mean((0, 2))


def pooled(scores, kv_heads):
    """Scores [L, Q, H, C] as rows are ranked by them, [L, Q, G, C]: the greatest of 7 neighbours
    for each query head, then the mean over the query heads of a KV head (appendix F)."""
    layers, questions, heads, columns = scores.shape
    spread = functional.max_pool1d(scores.reshape(-1, 1, columns), POOL, 1, POOL // 2)
    return spread.view(layers, questions, kv_heads, heads // kv_heads, columns).mean(3)


def grouped_mean(scores, kv_heads):
    """[L, Q, H, C] -> [L, Q, G, C]: the mean over the query heads of a KV head, no pooling."""
    layers, questions, heads, columns = scores.shape
    return scores.view(layers, questions, kv_heads, heads // kv_heads, columns).mean(3)


def row_budget(length, rate):
    """Rows that a KV head keeps of a prompt."""
    return max(1, int(length * rate + 1e-9))


def best_rows(ranking, length, rate):
    """The columns of the greatest of a ranking [..., C] of one prompt: [..., k]."""
    return ranking[..., :length].topk(row_budget(length, rate), -1).indices


def found_rows(truth, ranking, length, rate):
    """Which of the truly best rows of one prompt are among the best of a ranking, both [L, G, C]:
    [L, G, k]."""
    wanted = best_rows(truth, length, rate)
    kept = torch.zeros_like(ranking, dtype=torch.bool)
    kept.scatter_(-1, best_rows(ranking, length, rate), True)
    return kept.gather(-1, wanted)


def recall(truth, guess, prompts, rates):
    """Share of the truly best rows that the guess keeps, mean over layers and KV heads: [Q][rates].
    """
    kv_heads = prompts.model.kv_heads
    true_ranking, ranking = grouped_mean(truth, kv_heads), pooled(guess, kv_heads)
    return [[found_rows(true_ranking[:, number], ranking[:, number], length, rate)
             .float().mean().item() for rate in rates]
            for number, length in enumerate(prompts.lengths.tolist())]


def evicted(prompts, ranking, rate):
    """A cache with the best rows by a ranking [L, Q, G, C], and which columns of it hold a row."""
    lengths = prompts.lengths.tolist()
    most = max(row_budget(length, rate) for length in lengths)
    columns = torch.zeros(*ranking.shape[:3], most, dtype=torch.long, device=ranking.device)
    visible = torch.zeros(len(lengths), most, dtype=torch.bool, device=ranking.device)
    for number, length in enumerate(lengths):
        kept = best_rows(ranking[:, number], length, rate)
        columns[:, number, :, :kept.shape[-1]] = kept
        visible[number, :kept.shape[-1]] = True
    pairs = []
    for layer, index in enumerate(columns):
        document, own = prompts.cache.document[layer], prompts.cache.own[layer]
        index = index[..., None].expand(-1, -1, -1, own[0].shape[-1])
        pairs.append(tuple(
            torch.cat([one.expand(len(many), -1, -1, -1), many], 2).gather(2, index)
            for one, many in zip(document, own)))
    return Cache(None, pairs), visible


@torch.no_grad()
def decode(model, cache, visible, first, positions, limits, stops):
    """Greedy answers of Q questions side by side.

    cache: with values in every layer; visible [Q, S]: which of its own rows are there;
    first: the first token of each answer; positions: where it stands in the text; limits: how many
    tokens each answer may have.
    Returns lists of ids without the stop token.
    """
    growing = GrowingCache(cache, max(limits))
    token = torch.as_tensor(first, device=model.device)
    positions = torch.as_tensor(positions, device=model.device).clone()
    answers, live = [[] for _ in first], [True] * len(first)
    while True:
        for number, one in enumerate(token.tolist()):
            live[number] = live[number] and one not in stops
            if live[number]:
                answers[number].append(one)
                live[number] = len(answers[number]) < limits[number]
        if not any(live):
            return answers
        visible = functional.pad(visible, (0, 1), value=True)
        hidden, _ = model.run(model.embed(token[:, None]), positions[:, None], growing,
                              as_bias(visible, model.wide)[:, None], store=False)
        growing.used += 1
        positions += 1
        token = model.logits(hidden[:, 0]).argmax(-1)


@torch.no_grad()
def respond(model, prefix, tails, limits):
    """The model's own greedy answers to the prompts of a group."""
    prompts = Prompts(model, prefix, tails)
    first = model.logits(prompts.read(whole=True)).argmax(-1)
    return decode(model, prompts.cache, prompts.visible[:, len(prefix):], first.tolist(),
                  prompts.lengths, limits, model.stop_ids())
