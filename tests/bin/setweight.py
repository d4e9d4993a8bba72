"""Sets one element of a tensor in a safetensors file, in place: setweight.py FILE TENSOR INDEX
VALUE (nan, inf, -inf or a number)."""
import json
import struct
import sys


def main():
    path, name, index, value = sys.argv[1:]
    with open(path, 'r+b') as f:
        size, = struct.unpack('<Q', f.read(8))
        entry = json.loads(f.read(size))[name]
        bits, = struct.unpack('<I', struct.pack('<f', float(value)))
        if entry['dtype'] == 'F16':
            data = struct.pack('<e', float(value))
        else:
            data = {'BF16': struct.pack('<H', bits >> 16),
                    'F32': struct.pack('<I', bits)}[entry['dtype']]
        f.seek(8 + size + entry['data_offsets'][0] + int(index) * len(data))
        f.write(data)


main()
