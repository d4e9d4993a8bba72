"""transformers' logits with its quantised cache, for quantised_rows.py. Needs transformers, and
optimum-quanto or hqq for their settings.

QuantizedCache keeps no row of the prompt in full, only its pass reads them. Later rows are full
until there are `residual` of them; then all rows are quantised anew, the old from their quantised
values. A pass of so many tokens reads the rows that they read one at a time, and so the second half
runs. Here weights, products, scales and full rows are float32.
"""

from task_records import TaskError

BITS = {"quanto": ("2", "4"), "hqq": ("1", "2", "3", "4", "8")}
# by word: its name in QuantizedCache
WORDS = {"axis_key": "axis_key", "axis_value": "axis_value", "group": "q_group_size",
         "residual": "residual_length"}
# its defaults; then keys by channel and values by token (KIVI), which was best of quanto on one
# passage, and both by token, which was best of hqq
ROWS = ("fp8", "hqq 8", "hqq 4", "hqq 2", "quanto 4", "quanto 2", "quanto 4 axis_key=-1",
        *(f"quanto 4 axis_key=-1 {more}" for more in ("group=32", "group=32 residual=32",
                                                      "group=16")),
        "quanto 2 axis_key=-1 group=32", "hqq 4 axis_key=1 axis_value=1 group=32")


def read(options):
    """Arguments of QuantizedCache"""
    backend, *words = options.split()
    if backend == "fp8" and not words:
        return {"backend": backend}
    bits, *rest = words or [None]
    pairs = [word.partition("=") for word in rest]
    if bits not in BITS.get(backend, ()) or not all(name in WORDS and is_number(value)
                                                    for name, _, value in pairs):
        raise TaskError(f"--rows {options}: not fp8, nor quanto or hqq, BITS and words of " +
                        ", ".join(f"{word}=N" for word in WORDS))
    return {"backend": backend, "nbits": int(bits),
            **{WORDS[name]: int(value) for name, _, value in pairs}}


def is_number(text):
    return text.removeprefix("-").isdecimal()


def bytes_of(part):
    """Of all tensors in it. What is float32 here counts 2 bytes, as in a model of bf16. So in b
    bits with a scale and a zero point for each group of g: b/8 + 4/g bytes a number, of 2."""
    if isinstance(part, (tuple, list)):
        return sum(bytes_of(one) for one in part)
    if isinstance(part, dict):
        return bytes_of(list(part.values()))
    if hasattr(part, "__tensor_flatten__"):             # of quanto: codes, scale, shift
        return sum(bytes_of(getattr(part, name)) for name in part.__tensor_flatten__()[0])
    if not hasattr(part, "element_size"):
        return 0
    return part.numel() * (2 if str(part.dtype) == "torch.float32" else part.element_size())


def cache_bytes(cache):
    return sum(bytes_of([layer.keys, layer.values, getattr(layer, "_quantized_keys", None),
                         getattr(layer, "_quantized_values", None)]) for layer in cache.layers)


class Transformers:
    full = "full"

    def __init__(self, folder):
        import torch
        import transformers
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa").eval()
        config = self.model.config
        self.row = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim

    def cache(self, options):
        import transformers
        if options == self.full:
            return transformers.DynamicCache(config=self.model.config)
        return transformers.QuantizedCache(config=self.model.config, **read(options))

    def forced(self, ids, half, options):
        """[tokens][vocabulary], after each of the tokens of the second half; shares of bytes: after
        the first half, and the mean over the second half, with the rows that are full then"""
        import torch
        later, shares = [], []
        try:
            cache = self.cache(options)
            window = max(1, getattr(cache.layers[0], "residual_length", 1))
            with torch.inference_mode():
                self.logits(ids[:half], cache, 1)
                held = first = cache_bytes(cache)
                for start in range(half, len(ids), window):
                    piece = ids[start:start + window]
                    later.append(self.logits(piece, cache, 0))
                    shares += [(held / self.row + i) / (start + i) for i in range(1, len(piece))]
                    held = cache_bytes(cache)
                    shares.append(held / self.row / (start + len(piece)))
        except ValueError as error:                     # of the cache, of an axis or a group
            raise TaskError(f"--rows {options}: {error}") from error
        return torch.cat(later).numpy(), {"bytes": first / self.row / half,
                                          "later_bytes": sum(shares) / len(shares)}

    def logits(self, ids, cache, count):
        """[count, all for 0][vocabulary]"""
        import torch
        return self.model(torch.tensor([ids]), past_key_values=cache, use_cache=True,
                          logits_to_keep=count).logits[0]
