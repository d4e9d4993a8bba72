"""XXH3 and LZ4 blocks: by the Python packages xxhash and lz4 where they are installed, otherwise by
the C libraries of these names, which the programs of kvpipe are linked with: of the system, or
those that a wheel has brought."""

from __future__ import annotations

TYPE_CHECKING = False       # typing takes time to load, ctypes too
if TYPE_CHECKING:
    import ctypes
    from typing import Union
    Bytes = Union[bytes, bytearray, memoryview]

try:
    import xxhash       # type: ignore
except ImportError:
    xxhash = None


def library(name: str) -> ctypes.CDLL:
    import ctypes
    import importlib
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        cause = error
    try:
        return ctypes.CDLL(str(importlib.import_module('kvpipe').library(name)))
    except (ImportError, OSError):
        pass
    raise ImportError(f'neither {name} nor the Python package of that name is there') from cause


if TYPE_CHECKING:
    def xxh3(data: Bytes) -> int: ...
    def xxh3_128(data: Bytes) -> bytes: ...
elif xxhash is not None:
    xxh3, xxh3_128 = xxhash.xxh3_64_intdigest, xxhash.xxh3_128_digest
else:
    import ctypes

    class Hash128(ctypes.Structure):
        _fields_ = [('low', ctypes.c_uint64), ('high', ctypes.c_uint64)]

    c_xxhash = library('libxxhash.so.0')
    for function, result in ((c_xxhash.XXH3_64bits, ctypes.c_uint64),
                             (c_xxhash.XXH3_128bits, Hash128)):
        function.restype, function.argtypes = result, (ctypes.c_char_p, ctypes.c_size_t)

    def xxh3(data):
        return c_xxhash.XXH3_64bits(bytes(data), len(data))

    def xxh3_128(data):
        """The 16 bytes of the canonical form."""
        value = c_xxhash.XXH3_128bits(bytes(data), len(data))
        return value.high.to_bytes(8, 'big') + value.low.to_bytes(8, 'big')


def lz4_block(data: bytes, size: int) -> bytes:
    """The content of an LZ4 block, at most size bytes. ValueError: it is none."""
    try:
        import lz4.block        # type: ignore
    except ImportError:
        return c_lz4_block(data, size)
    try:
        content: bytes = lz4.block.decompress(data, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(str(error)) from None
    return content


def c_lz4_block(data: bytes, size: int) -> bytes:
    import ctypes
    content = ctypes.create_string_buffer(size)
    n = library('liblz4.so.1').LZ4_decompress_safe(ctypes.c_char_p(data), content, len(data), size)
    if n < 0:
        raise ValueError('no block')
    return content.raw[:n]
