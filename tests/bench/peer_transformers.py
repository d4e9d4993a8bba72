"""peer_transformers.py - transformers on PyTorch, for peer.py: one thread, attention by sdpa"""

import time

import torch
import transformers

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def open_model(folder, dtype):
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=TYPES[dtype],
                                                              attn_implementation="sdpa")
    return model.eval()


def start(folder, dtype, text):
    """Processor time from opening the model to the first token's logits"""
    # imported where they are first named
    _ = transformers.LlamaForCausalLM, transformers.PreTrainedTokenizerFast
    begin = time.process_time()
    model = open_model(folder, dtype)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    with torch.inference_mode():
        model(torch.tensor([tokenizer.encode(text)[:1]]))
    return time.process_time() - begin


def describe():
    return f"transformers {transformers.__version__}, torch {torch.__version__}"


class Peer:
    def __init__(self, folder, dtype, rows):
        del rows                              # its cache grows
        self.model = open_model(folder, dtype)
        self.rows, self.cache = 0, None
        self.prompt(48)

    def timed(self, n, cache):
        ids = torch.randint(1000, self.model.config.vocab_size, (1, n))
        with torch.inference_mode():
            begin = time.process_time()
            self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            return time.process_time() - begin

    def prompt(self, tokens):
        return self.timed(tokens, transformers.DynamicCache(config=self.model.config))

    def fill(self, rows):
        """A cache of so many random rows, behind which steps() is"""
        c, self.rows = self.model.config, rows
        shape = 2, 1, c.num_key_value_heads, rows, c.head_dim
        self.cache = transformers.DynamicCache(config=c)
        for layer in range(c.num_hidden_layers):
            k, v = torch.rand(shape, dtype=self.model.dtype) - 0.5
            self.cache.update(k, v, layer)

    def steps(self, count):
        """Seconds of each of these; the cache is cut back after them."""
        seconds = [self.timed(1, self.cache) for _ in range(count)]
        self.cache.crop(self.rows)
        return seconds
