# bats file_tags=nosan
# The snapshot format: the document, a reader and a writer made from it alone, and the vectors.
# None of our C is run here.

check() {
	"${PYTHON:-/usr/bin/python3}" "$BATS_TEST_DIRNAME/format/check_vectors.py" "$1"
}

@test "every passed vector is accepted and prints its dump" { check passed; }
@test "every failed vector is refused with its exit code and its word" { check failed; }
@test "make.py writes exactly the vectors in the tree" { check regenerate; }
@test "a snapshot cut after any byte is refused as truncated" { check truncation; }
@test "a snapshot with one false bit in any byte is refused as damaged" { check flipped; }
@test "codecs, padding and ancillary sections do not change the logical digest" { check logical; }
@test "two plain blocks hold what the compressed ones hold and stand on pages" { check blocks; }
@test "the reader returns what the writer was given" { check content; }
@test "quantised rows and their numbers are, to the bit, what a writer without NumPy makes of them" { check rows; }
@test "quantised rows are those that ggml and ml_dtypes have made of the same numbers" { check recorded; }
@test "rows with full ones behind, of KIVI's types too, and their numbers are, to the bit, what a writer without NumPy makes of them" { check residual; }
@test "what may not be in quantised rows is refused with its place, and what is in full rows behind them is free" { check residual_refused; }
@test "rows of KIVI's types are those that its authors' functions have made of the same numbers" { check kivi_recorded; }
@test "rows that KIVI's types cannot hold are refused with their place" { check kivi_refused; }
@test "query statistics are, to the bit, what the writer was given, in layers in which other channels are rotated too" { check query_stats; }
@test "means and covariances of query statistics are those of the queries" { check query_stats_arrays; }
@test "norms of value outputs are what the writer was given, in KV heads without rows too" { check value_norms; }
@test "norms of value outputs are arrays for each KV head" { check value_norms_arrays; }
@test "gate scores are what the writer was given, in KV heads without rows too" { check gate_scores; }
@test "gate scores are arrays for each KV head" { check gate_scores_arrays; }
@test "non-causal attention is what the writer was given, in KV heads without rows too" { check noncausal; }
@test "non-causal attention is arrays for each KV head" { check noncausal_arrays; }
@test "learned sinks are what the writer was given, where layers have them" { check sinks; }
@test "learned sinks take their part of the attention that the Python module computes" { check sinks_arrays; }
@test "values that are channels of keys are those that the writer put into the keys, and have no bytes" { check latent; }
@test "the indexes of the vectors are what numpy makes of their keys" { check indexes; }
@test "kvread.py exits with 0, 1, 2, 3 or 5" { check program; }
