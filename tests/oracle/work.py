"""What a run costs, counted once more from config.json and the rules of kvpipe(7), REPORTS,
token by token.

work.py CONFIG SCHEDULE ...: prints products, attention, weights, rows_read and rows_written.
Schedules: prefill N TILE; tsp N TILE LAYER KEPT; decode N STEPS; bf16 weights and rows."""
import json
import sys


class Count:
    """Of a model, with rows that are cached at the positions of each layer"""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            c = json.load(file)
        self.D, self.F, self.V = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
        self.H = c["num_attention_heads"]
        self.G = c.get("num_key_value_heads", self.H)
        self.E = c.get("head_dim") or self.D // self.H
        self.L = c["num_hidden_layers"]
        kinds = c.get("layer_types", ["full_attention"] * self.L)
        self.window = [c["sliding_window"] if k == "sliding_attention" else None for k in kinds]
        self.cached = [[] for _ in range(self.L)]
        self.products = self.attention = self.weights = self.read = self.written = 0

    def matrix(self, n, rows, columns):
        """n rows times a matrix"""
        self.products += 2 * n * rows * columns
        self.weights += 2 * rows * columns

    def layer(self, layer, positions):
        """These tokens together through a layer"""
        n, q, kv = len(positions), self.H * self.E, self.G * self.E
        for rows, columns in ((q, self.D), (kv, self.D), (kv, self.D), (self.D, q),
                              (self.F, self.D), (self.F, self.D), (self.D, self.F)):
            self.matrix(n, rows, columns)
        self.cached[layer] += positions
        self.written += n * self.G * 2 * self.E * 2
        seen = set()
        window = self.window[layer]
        for p in positions:
            mine = [r for r in self.cached[layer] if r <= p and (window is None or r > p - window)]
            self.attention += self.H * len(mine) * 4 * self.E
            seen.update(mine)
        self.read += len(seen) * self.G * 2 * self.E * 2

    def layers(self, first, end, positions, tile):
        """Tile after tile through these layers"""
        for at in range(0, len(positions), tile):
            for layer in range(first, end):
                self.layer(layer, positions[at:at + tile])


def main():
    """Counts, prints."""
    c, schedule = Count(sys.argv[1]), sys.argv[2]
    numbers = [int(word) for word in sys.argv[3:]]
    if schedule == "prefill":
        c.layers(0, c.L, list(range(numbers[0])), numbers[1])
        c.matrix(1, c.V, c.D)
    elif schedule == "decode":
        c.cached = [list(range(numbers[0])) for _ in range(c.L)]
        for step in range(numbers[1]):
            c.layers(0, c.L, [numbers[0] + step], 1)
            c.matrix(1, c.V, c.D)
    elif schedule == "tsp":                     # which tokens go on does not change sums
        n, tile, layer, kept = numbers
        c.layers(0, layer + 1, list(range(n)), tile)
        c.layers(layer + 1, c.L, list(range(n - kept, n)), tile)
        c.matrix(1, c.V, c.D)
    else:
        sys.exit(f"no schedule {schedule}")
    print(c.products, c.attention, c.weights, c.read, c.written)


if __name__ == "__main__":
    main()
