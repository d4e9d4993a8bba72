"""llama.cpp's logits with quantised rows, for quantised_rows.py. Needs llama-cpp-python.

llama.cpp quantises each row when it is made, and rotates quantised rows by a Hadamard transform
where LLAMA_ATTN_ROT_DISABLE is not set.
"""

import os

from task_records import TaskError

# by name: ggml's number of the type, bytes of 32 channels
TYPES = {"f16": (1, 64), "q4_0": (2, 18), "q4_1": (3, 20), "q5_0": (6, 22), "q8_0": (8, 34)}
ROWS = ("q8_0", "q8_0 rotated", "q5_0", "q5_0 rotated", "q4_1", "q4_1 rotated", "q4_0",
        "q4_0 rotated", "q8_0 q4_0", "q8_0 q4_0 rotated")
DISABLE = "LLAMA_ATTN_ROT_DISABLE"


def read(options):
    """(type of keys, type of values, rotated) of `TYPE [TYPE] [rotated]`"""
    words = options.split()
    rotated = words[-1:] == ["rotated"]
    kinds = words[:len(words) - rotated]
    if not 1 <= len(kinds) <= 2 or not set(kinds) <= TYPES.keys():
        raise TaskError(f"--rows {options}: not TYPE [TYPE] [rotated] of {', '.join(TYPES)}")
    return kinds[0], kinds[-1], rotated


class Llama:
    full = "f16"

    def __init__(self, gguf, tokens):
        self.gguf, self.tokens = gguf, tokens

    def forced(self, ids, half, options):
        """[tokens][vocabulary], after each of the tokens of the second half; shares of bytes"""
        import llama_cpp
        keys, values, rotated = read(options)
        os.environ.pop(DISABLE, None)
        if not rotated:
            os.environ[DISABLE] = "1"
        llama = llama_cpp.Llama(self.gguf, n_ctx=self.tokens, n_batch=512, n_ubatch=512,
                                logits_all=True, flash_attn=True, type_k=TYPES[keys][0],
                                type_v=TYPES[values][0], verbose=False)
        llama.eval(ids)
        return (llama.scores[half:len(ids)],
                {"bytes": self.bytes_of(options) / self.bytes_of(self.full)})

    @staticmethod
    def bytes_of(options):
        keys, values, _ = read(options)
        return TYPES[keys][1] + TYPES[values][1]
