#!/usr/bin/env bats
# bats file_tags=nosan
# experiments/quantised_rows.py: the loss of a model that reads quantised rows

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export PYTHONPATH=$ROOT/experiments
	small_talk 40 >text
}

loss() {
	"$PYTHON" "$ROOT/experiments/quantised_rows.py" -m "$DEMO" "$@"
}

# measure TABLE.tsv NAME MEASURE: its mean
measure() {
	awk -F '\t' -v name="$2" -v measure="$3" '$1 == name && $2 == measure { print $4 }' "$1"
}

@test "rows that are not quantised lose nothing, and fewer bits lose more" {
	run -0 --separate-stderr loss --text text -n 2 --tokens 300 --rows 'same=--keys bf16' --rows 'q8=--keys q8_0 --values q8_0' \
	    --rows 'q4=--keys q4_0 --values q4_0' --rows 'ends=--keys q4_0 --values q4_0 --skip-layers 0,3' --table x.tsv --table x.md
	assert_line --regexp '^\| q8 \| -?[0-9.]+ \[-?[0-9.]+, -?[0-9.]+\] \| 0\.[0-9]+ .*\| 53\.1 \[53\.1, 53\.1\] \|$'
	assert_equal "$output" "$(cat x.md)"
	assert_equal "$(measure x.tsv same loss) $(measure x.tsv same same) $(measure x.tsv same bytes)" "0 1 1"
	less "$(measure x.tsv same divergence)" 1e-7
	less 0 "$(measure x.tsv q8 divergence)"
	less "$(measure x.tsv q8 divergence)" "$(measure x.tsv ends divergence)"
	less "$(measure x.tsv ends divergence)" "$(measure x.tsv q4 divergence)"
	assert_equal "$(measure x.tsv q4 bytes) $(measure x.tsv ends bytes)" "0.28125 0.640625"
}

@test "loss, divergence and agreement are those of the distributions, by hand" {
	run -0 "$PYTHON" -c '
import math, numpy
import quantised_rows
full = numpy.array([[0, math.log(3)], [0, 0], [5, 5]], dtype="f4")
small = numpy.array([[0, 0], [math.log(3), 0], [7, 1]], dtype="f4")
got = quantised_rows.Full(full, [9, 1, 0]).compare(small)
# token 1 after row 0: 3/4, 1/2; token 0 after row 1: 1/2, 3/4
print(*(round(got[what], 6) for what in ("loss", "divergence", "same")))
divergence = (.25 * math.log(.25 / .5) + .75 * math.log(.75 / .5) + .5 * math.log(.5 / .75) + .5 * math.log(.5 / .25)) / 2
print(round(divergence, 6))'
	assert_line --index 0 "0.0 ${lines[1]} 0.5"
}

@test "settings of transformers are those of its cache, and bytes those that it stores" {
	run -0 "$PYTHON" -c '
import quantised_transformers as t
for words in t.ROWS:
    t.read(words)
print(t.read("quanto 2 axis_key=-1 group=32"))
class Tensor:
    def __init__(self, numbers, dtype, size):
        self.numbers, self.dtype, self.size = numbers, dtype, size
    def numel(self): return self.numbers
    def element_size(self): return self.size
class Wrapped:
    codes, scale = Tensor(32, "torch.uint8", 1), Tensor(1, "torch.float32", 4)
    def __tensor_flatten__(self): return ["codes", "scale"], {}
print(t.bytes_of([None, (Tensor(3, "torch.bfloat16", 2), {"scale": Tensor(1, "torch.float32", 4), "bits": 4})]), t.bytes_of(Wrapped()))'
	assert_line --index 0 "{'backend': 'quanto', 'nbits': 2, 'axis_key': -1, 'q_group_size': 32}"
	assert_line --index 1 "8 34"
}

@test "with --in-prompt the prompt attends to quantised rows, too" {
	run -0 --separate-stderr loss --text text -n 1 --tokens 300 --rows 'q4=--keys q4_0 --values q4_0' --table after.tsv
	run -0 --separate-stderr loss --text text -n 1 --tokens 300 --rows 'q4=--keys q4_0 --values q4_0' --in-prompt --table in.tsv
	assert_equal "$(measure in.tsv q4 bytes)" "$(measure after.tsv q4 bytes)"
	less "$(measure after.tsv q4 divergence)" "$(measure in.tsv q4 divergence)"
}

@test "a text that is too short, and rows that are no options, are refused" {
	run -2 loss --text text -n 9 --tokens 2000
	assert_output --regexp '^quantised_rows\.py: --text: [0-9]+ tokens are not 9 passages of 2000$'
	run -2 loss --text text -n 1 --tokens 60 --rows q8
	assert_output 'quantised_rows.py: --rows q8: not NAME=OPTIONS'
	run -2 loss --text text -n 1 --tokens 60 --rows 'q9=--keys q9_0'
	assert_line 'quantised_rows.py: kv-quantize ended with status 2'
	run -2 loss --text text -n 1 --tokens 60 --rows 'q4=q4_2 rotated' --llama x.gguf
	assert_output 'quantised_rows.py: --rows q4_2 rotated: not TYPE [TYPE] [rotated] of f16, q4_0, q4_1, q5_0, q8_0'
	for words in 'quanto 3' 'quanto 8' 'fp8 4' 'hqq' 'q4_0' 'hqq 4 axis_key=' 'hqq 4 group' 'quanto 4 width=8'; do
		run -2 loss --text text -n 1 --tokens 60 --rows "q4=$words" --transformers
		assert_output "quantised_rows.py: --rows $words: not fp8, nor quanto or hqq, BITS and words of axis_key=N, axis_value=N, group=N, residual=N"
	done
	run -2 loss --text text --transformers --llama x.gguf
	assert_line --partial 'not allowed with argument'
	run -2 loss --text text --table x.txt
	assert_output 'quantised_rows.py: x.txt: the name of a table ends in .md or .tsv'
}
