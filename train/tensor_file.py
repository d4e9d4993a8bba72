"""tensor_file - writes NumPy arrays as a safetensors file."""

import json


def save(path, arrays):
    """arrays: name -> array, stored as f32"""
    head, data = {}, []
    for name, array in arrays.items():
        at = sum(map(len, data))
        data.append(array.astype("<f4").tobytes())
        head[name] = {"dtype": "F32", "shape": list(array.shape),
                      "data_offsets": [at, at + len(data[-1])]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + b"".join(data))
