"""Files around the training: fingerprints of models, data sets, adapter folders.

A data set is a file of JSON lines: a head that names the model, then a group in each line: ids of a
document (`prefix`), and of each question about it (`tail`) with the model's answer (`response`).
Or nothing is asked, and there is a snapshot with scores of the document's rows (`scored`, a path
from the data set's folder).
"""

import functools
import hashlib
import json
import os
import pathlib
import struct
import sys

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from failures import BrokenFile, Refused
from lookahead_model import MODULES, file_name

DATA_FORMAT = "lookahead data"
DATA_VERSION = 1
ADAPTER_VERSION = 1
CONFIG_NAME, WEIGHTS_NAME = "adapter_config.json", "adapter_model.safetensors"
SPLITS = ("train", "heldout")


def write_atomically(path, write):
    """Calls write(temporary path), and gives the file its name when it is whole."""
    temporary = f"{path}.part"
    write(temporary)
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_bytes(path, data):
    def write(temporary):
        with open(temporary, "wb") as file:
            file.write(data)
    write_atomically(path, write)


def write_text(path, text):
    write_bytes(path, text.encode())


def save_folder(folder, tensors, config, weights="model.safetensors", configuration="config.json"):
    """Writes tensors by their names, and what is to be known of them."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise BrokenFile(f"{name} has values that are not finite")
    os.makedirs(folder, exist_ok=True)
    # not save_file(): newer ones make files that nobody else may read
    data = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": "pt"})
    write_bytes(os.path.join(folder, weights), data)
    write_text(os.path.join(folder, configuration), json.dumps(config, indent=2) + "\n")


# ---- models ----

PIECE = 1 << 20


def hashed_bytes(file, start, size):
    """What the fingerprint has of all bytes of a tensor."""
    file.seek(start)
    out = struct.pack("<Q", size)
    for at in range(0, size, PIECE):
        out += xxhash.xxh3_128_digest(file.read(min(PIECE, size - at)))
    return out


def sampled_bytes(file, start, size):
    """What older versions had in place of them."""
    out = b""
    for offset, length in [(0, size)] if size <= 65536 else [(i * (size - 4096) // 15, 4096)
                                                             for i in range(16)]:
        file.seek(start + offset)
        out += file.read(length)
    return out


def tensor_piece(file, start, name, entry, take):
    """What the fingerprint has of one tensor, formats/kv-snapshot.md section 6."""
    begin, end = entry["data_offsets"]
    shape = entry["shape"]
    piece = name.encode() + b"\0" + entry["dtype"].encode() + b"\0"
    piece += struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return piece + take(file, start + begin, end - begin)


@functools.lru_cache(maxsize=4)
def fingerprint(folder, take=hashed_bytes):
    """The "weights" hash of a model folder, 32 hexadecimal digits: all of it is read."""
    folder, pieces = pathlib.Path(folder), {}
    files = [folder / "model.safetensors"]
    if not files[0].exists():
        files = sorted(folder.glob("model-*.safetensors"))
    if not files:
        raise BrokenFile(f"{folder}: there is no model.safetensors")
    try:
        for path in files:
            with open(path, "rb") as file:
                length = struct.unpack("<Q", file.read(8))[0]
                for name, entry in json.loads(file.read(length)).items():
                    if name != "__metadata__":
                        pieces[name.encode()] = tensor_piece(file, 8 + length, name, entry, take)
    except (OSError, ValueError, KeyError, struct.error) as problem:
        raise BrokenFile(f"{path}: {problem}") from problem
    return xxhash.xxh3_128_hexdigest(b"".join(pieces[name] for name in sorted(pieces)))


def check_weights(given, folder, what):
    """Refuses what was made with another model than the one in this folder. given: a fingerprint,
    or a list of some."""
    weights, given = fingerprint(folder), given if isinstance(given, list) else [given]
    if weights in given:
        return
    given = given[0] if given else None
    if given != fingerprint(folder, sampled_bytes):
        raise Refused(f"{what} another model (weights {given}, these are {weights})")
    print(f"{what} a model that is this one as far as samples of its weights tell: an older "
          "version wrote it", file=sys.stderr)


def tokenizer_digest(folder):
    """SHA-256 of tokenizer.json."""
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError as problem:
        raise BrokenFile(f"{path}: {problem.strerror}") from problem


# ---- data sets ----

def data_head(folder, settings):
    """The first line of a data set for the model in this folder."""
    return {"format": DATA_FORMAT, "version": DATA_VERSION, "weights": fingerprint(folder),
            "tokenizer": tokenizer_digest(folder), "settings": settings}


def check_head(head, place, model, tokenizer):
    if not isinstance(head, dict) or head.get("format") != DATA_FORMAT:
        raise BrokenFile(f"{place}: not the head of a data set")
    if head.get("version") != DATA_VERSION:
        raise Refused(f"{place}: version {head.get('version')} of the format, not {DATA_VERSION}")
    if head.get("tokenizer") != tokenizer:
        raise Refused(f"{place}: made with another tokenizer")
    check_weights(head.get("weights"), model, f"{place}: made with")


def check_ids(value, name, place, vocabulary):
    if not isinstance(value, list) or not value:
        raise BrokenFile(f"{place}: {name} is not a list of ids")
    for one in value:
        if type(one) is not int or not 0 <= one < vocabulary:
            raise BrokenFile(f"{place}: {name} has {json.dumps(one)[:40]}, which is no id of the "
                             f"vocabulary of {vocabulary}")


def check_group(group, place, vocabulary):
    """Refuses a line that training could not use."""
    if not isinstance(group, dict):
        raise BrokenFile(f"{place}: not an object")
    if group.get("split") not in SPLITS:
        raise BrokenFile(f"{place}: split is neither train nor heldout")
    check_ids(group.get("prefix"), "prefix", place, vocabulary)
    if "scored" in group:
        for name in ("scored", "sha256"):
            if not isinstance(group.get(name), str):
                raise BrokenFile(f"{place}: {name} is no text")
        return
    questions = group.get("questions")
    if not isinstance(questions, list) or not questions:
        raise BrokenFile(f"{place}: there are no questions")
    for number, question in enumerate(questions, 1):
        if not isinstance(question, dict):
            raise BrokenFile(f"{place}: question {number} is not an object")
        for name in ("tail", "response"):
            check_ids(question.get(name), f"question {number}: {name}", place, vocabulary)


def load_data(paths, folder, vocabulary):
    """Groups of data sets that were made with the model in this folder, in their order."""
    tokenizer, groups = tokenizer_digest(folder), []
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().split("\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise BrokenFile(f"{path}: {problem}") from problem
        if lines[-1]:
            raise BrokenFile(f"{path}:{len(lines)}: cut off in the middle of a line")
        for number, line in enumerate(lines[:-1], 1):
            place = f"{path}:{number}"
            try:
                value = json.loads(line)
            except ValueError as problem:
                raise BrokenFile(f"{place}: no JSON: {problem}") from problem
            if number == 1:
                check_head(value, place, folder, tokenizer)
            else:
                check_group(value, place, vocabulary)
                if "scored" in value:
                    value["scored"] = os.path.join(os.path.dirname(path), value["scored"])
                groups.append(value)
        if len(lines) < 2:
            raise BrokenFile(f"{path}: empty")
    return groups


def data_digest(paths):
    """SHA-256 of the data sets, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


# ---- adapters ----

def save_adapter(state, settings, folder, base, weights, dtype):
    """Writes an adapter folder, man/kv-adapter.5, from the state and the settings of an Adapter."""
    config = {
        "peft_type": "LORA", "base_model_name_or_path": base, "r": settings["rank"],
        "lora_alpha": settings["alpha"], "target_modules": list(settings["modules"]),
        "bias": "none", "lora_dropout": 0.0, "use_rslora": False, "fan_in_fan_out": False,
        "task_type": "CAUSAL_LM", "inference_mode": True,
        "lookahead": {"version": ADAPTER_VERSION, "tokens": settings["tokens"],
                      "weights": weights},
    }
    tensors = {file_name(name): tensor.to(dtype).cpu() for name, tensor in state.items()}
    save_folder(folder, tensors, config, WEIGHTS_NAME, CONFIG_NAME)


def adapter_settings(folder, model):
    """The settings of Adapter() for an adapter folder; refuses one of another model than that in
    the folder `model`."""
    path = os.path.join(folder, CONFIG_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        ours = config["lookahead"]
        settings = {"tokens": int(ours["tokens"]), "rank": int(config["r"]),
                    "alpha": config["lora_alpha"],
                    "modules": tuple(config["target_modules"] or ())}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise BrokenFile(f"{path}: {problem!r}") from problem
    if ours.get("version") != ADAPTER_VERSION:
        raise Refused(f"{path}: version {ours.get('version')} of the format")
    check_weights(ours.get("weights"), model, f"{path}: an adapter of")
    for name in settings["modules"]:
        if name not in MODULES:
            raise Refused(f"{path}: LoRA of {name} is not handled")
    return settings


def fill_adapter(adapter, folder):
    """Puts the tensors of an adapter folder into an adapter of the same settings."""
    path = os.path.join(folder, WEIGHTS_NAME)
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as problem:
        raise BrokenFile(f"{path}: {problem}") from problem
    for name, tensor in adapter.tensors().items():
        if name not in found:
            raise BrokenFile(f"{path}: there is no {name}")
        if found[name].shape != tensor.shape:
            raise BrokenFile(f"{path}: {name} is {list(found[name].shape)}, "
                             f"not {list(tensor.shape)}")
        tensor.copy_(found[name])
