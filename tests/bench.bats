#!/usr/bin/env bats
# bats file_tags=nosan
# make bench-peers: what holds where nothing of what it measures beside is there

load helper

bench=$BATS_TEST_DIRNAME/bench

@test "a peer that is not there is a row that says so, and no failure" {
	cd "$BATS_TEST_TMPDIR"
	run -0 "$PYTHON" "$bench/peers_table.py" "$O" here --llama none/python --models some/model \
		--parts prompt step row-types start batch
	assert_line 'llama.cpp: not there: no none/python'
	for part in prompt step row-types start batch; do
		assert_line "| $part | model | | llama.cpp | not there: no none/python | |"
	done
	assert_line '| step | model | | transformers | not there: no Python named | |'
}

@test "fetch_peers.sh names the Pythons that it is told, and fetches none with FETCH=0" {
	cd "$BATS_TEST_TMPDIR"
	LLAMA_PYTHON=/a/python FETCH=0 run -0 sh "$bench/fetch_peers.sh" peers
	assert_output '/a/python peers/torch/bin/python'
	[ ! -e peers ]
}

@test "figures are medians of rounds in turns, and a ratio above 1 says that we are faster" {
	run -0 "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import figures
order = []
def way(name, seconds):
    order.append(name)
    return (next(seconds), 1.0)
a, b = iter([0.2, 9, 0.1]), iter([3, 1, 2])
found = figures.in_turns(3, {"a": lambda: way("a", a), "b": lambda: way("b", b)})
print("".join(order), found)
figures.row("work", "model", found["a"][0], "peer", found["b"][0])' "$bench"
	assert_line "ababab {'a': (0.2, 1.0), 'b': (2, 1.0)}"
	assert_line '| work | model | 200.00 ms | peer | 2.000 s | 10.00 |'
}
