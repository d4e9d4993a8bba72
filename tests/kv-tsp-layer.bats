#!/usr/bin/env bats
# kv-tsp-layer: the search for the layer of token-selective propagation, against a forward pass in double precision

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	kv-tokenize -m "$DEMO" "$ROOT/examples/prompts/harbour.txt" >all.ids
	export PYTHONPATH=$FORMAT
}

@test "the search for a TSP layer prints the curve of equation 3 and chooses the least" {
	random_model random --layers 5 --hidden 48 --heads 6 --kv-heads 2 --head-dim 10 --ffn 72 --dtype f32 --seed 5 --std 0.3
	head -n 200 all.ids >a.ids
	tail -n +201 all.ids | head -n 300 >b.ids
	for p in a b; do
		"$PYTHON" "$ORACLE/selecting.py" find random $p.ids 0.2 8 7 max 4 >$p.want
	done
	kv-tsp-layer -m random --ids --max-layer 3 a.ids b.ids >table
	paste a.want b.want | awk '{ print $1, ($2 + $5) / 2, ($3 + $6) / 2 }' >want
	sed '1d; $d' table >have
	paste want have | awk 'function far(a, b) { return (a - b)^2 > (1e-4 * a)^2 }
	    $1 != $4 || far($2, $5) || far($3, $6) { print; bad = 1 } END { exit bad || NR != 4 }'
	assert_equal "$(tail -n 1 table)" "tsp-layer $(sort -g -k 2 want | head -n 1 | cut -d ' ' -f 1)"
	kv-tsp-layer -m random --ids --max-layer 3 --json a.ids b.ids >table.json
	run -0 json table.json '" ".join(map(str, (o["prompts"], o["tsp_layer"], *("%d %.6g %.6g" % (l["layer"], l["last"], l["surviving"]) for l in o["layers"]))))'
	assert_output "2 $(tail -n 1 table | cut -d ' ' -f 2) $(tr -s ' \n' ' ' <have | sed 's/^ //; s/ $//')"
	# a tolerance that takes in everything chooses the first layer
	assert_equal "$(kv-tsp-layer -m random --ids --max-layer 3 --tol 1000 a.ids | tail -n 1)" "tsp-layer 0"
	# half of the layers, from standard input
	assert_equal "$(kv-tsp-layer -m random --ids <a.ids | wc -l)" 5
}

@test "settings of the selection change the curve, and those that cannot be are refused" {
	kv-tsp-layer -m "$DEMO" --ids all.ids >plain
	kv-tsp-layer -m "$DEMO" --ids --rate 0.2 --window 8 --kernel 7 --pool max all.ids | cmp - plain
	for option in '--rate 0.6' '--window 40' '--kernel 1' '--pool avg'; do
		# shellcheck disable=SC2086 # two words
		! kv-tsp-layer -m "$DEMO" --ids $option all.ids | cmp -s - plain || fail "$option changes nothing"
	done
	assert_equal "$(kv-tsp-layer -m "$DEMO" --ids -c 33 -j 1 all.ids | tail -n 1)" "$(tail -n 1 plain)"
	refused() {
		run -2 --separate-stderr kv-tsp-layer -m "$DEMO" --ids "${@:2}" all.ids
		# shellcheck disable=SC2154 # bats sets it
		assert_regex "$stderr" "$1"
	}
	refused 'want an odd number' --kernel 4
	refused 'want avg or max' --pool sum
	refused 'not a share' --rate 2
	refused '--max-layer 4: the model has layers 0 to 3' --max-layer 4
	refused 'tsp: window=5000, and the prompt has [0-9]* tokens' --window 5000
	refused 'less than nothing' --tol -0.5
	refused 'want bf16, f16 or f32' --dtype int8
	run -3 kv-tsp-layer -m "$DEMO" --ids <<<'17 x'
}

@test "layers whose sliding window is shorter than the prompt are not tried, and the others are as without it" {
	local shape="--layers 4 --hidden 48 --heads 6 --kv-heads 2 --head-dim 10 --ffn 72 --dtype f32 --seed 5 --std 0.3"
	# a window of 200 limits no token of 200
	# shellcheck disable=SC2086 # words
	random_model plain $shape && window_model alternate 200 sfsf $shape && window_model all 200 ssss $shape
	head -n 200 all.ids >a.ids
	kv-tsp-layer -m plain --ids --max-layer 3 a.ids >every
	kv-tsp-layer -m alternate --ids --max-layer 3 a.ids >some
	diff <(grep '^ *[13] ' every) <(grep '^ *[0-9] ' some)
	assert_equal "$(tail -n 1 some)" "tsp-layer $(grep '^ *[13] ' every | sort -g -k 2 | head -n 1 | awk '{ print $1 }')"
	run -5 --separate-stderr kv-tsp-layer -m all --ids --max-layer 3 a.ids
	assert_equal "$stderr" "kv-tsp-layer: tsp: layer 0 has a sliding window of 200 tokens, and the prompt has 200: it cannot choose among tokens that it does not see"
	assert_equal "$(head -n 199 a.ids | kv-tsp-layer -m all --ids --max-layer 3 | wc -l)" 6
}
