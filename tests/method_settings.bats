#!/usr/bin/env bats
# Settings of the scripts in examples/methods: where they come from, and what they do to the pipeline

load helper

@test "without settings of its own a model gets layers by its number of layers, and the papers' windows and stop" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	stub_programs
	other_model other
	calls fastkv -m other
	assert_line --partial '--select tsp layer=14 rate=0.2 window=8 kernel=7 pool=max --observe 8'
	assert_line --partial 'kv-decode -q -m other -n 32 -o'
	calls fastkv-fused -m other
	assert_line --partial '--select tsp layer=14 rate=0.2 window=8 kernel=7 pool=max --observe 8 --score snapkv kernel=7 pool=max --evict rate=0.1 of=tokens'
	calls gemfilter -m other
	assert_line --partial '--select gemfilter layer=12 '
	calls snapkv -m other
	assert_line --partial '--observe 32'
	assert_line --partial '--kernel 7 --pool max'
	calls clusterkv -m other
	assert_line --partial '--cluster-count 12'
	calls shadowkv -m other
	assert_line --partial '--rank 96 --outliers 6'
	calls chunked-patched -m other -r 0.2
	assert_line --partial '--observe 24'
	[ "$(wc -l <line)" -eq 1 ]
}

@test "settings come from the model's file, those for a method after those for all, and options after them" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	stub_programs
	calls fastkv
	assert_line --partial '--select tsp layer=2 rate=0.2 window=8 '
	assert_line --partial ' -n 12 --stop . '
	calls snapkv
	assert_line --partial '--observe 16'
	calls fastkv -l 3 -n 9 -S END -s window=5
	assert_line --partial '--select tsp layer=3 rate=0.2 window=5 '
	assert_line --partial ' -n 9 --stop END '
	printf 'window=4\n# comment\nfastkv.window=6\nstop=a\\nb' >conf
	calls fastkv -C conf
	assert_line --partial '--select tsp layer=1 rate=0.2 window=6 '
	assert_line --partial '-n 32 --stop a'
	assert_line --regexp '^b -o '
}

@test "what the papers ablate is a setting: the share of TSP, rows of a group and of a page, the policy of chunks" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	stub_programs
	other_model other
	for name in fastkv fastkv-fused; do
		calls $name -m other -s tsp_rate=0.4
		assert_line --partial '--select tsp layer=14 rate=0.4 window=8 '
	done
	calls fier -m other
	assert_line --partial 'kv-quantize1b --group 32 '
	calls fier -m other -s group=128
	assert_line --partial 'kv-quantize1b --group 128 '
	for name in quest quest-eval; do
		calls $name -m other
		assert_line --partial 'kv-index --pages --page 16 '
		calls $name -m other -s page=32
		assert_line --partial 'kv-index --pages --page 32 '
	done
	for name in chunked-naive chunked-patched; do
		calls $name -m other -r 0.2
		assert_line --partial 'kv-evict --policy uniform --rate 0.2 --since 0 '
		calls $name -m other -r 0.2 -s policy=pyramid
		assert_line --partial 'kv-evict --policy pyramid --rate 0.2 --since 0 '
	done
	mkdir adapter
	calls lookaheadkv -m other -s adapter=adapter
	assert_line --partial 'kernel=7 pool=max --evict rate=0.1 '
	calls lookaheadkv -m other -s adapter=adapter -s kernel=1 -s 'budgets=my file.tsv'
	assert_line --regexp "kernel=1 pool=max --evict budgets='?my.* file.tsv'? sink=4 "
	mkdir gate
	calls kvzap -m other -s gate=gate
	assert_line --partial 'kv-evict --policy global --rate 0.1 --recent 128 '
	calls kvzap -m other -s gate=gate -s threshold=-3
	assert_line --partial 'kv-evict --threshold -3 --recent 128 '
	calls kvzap -m other -s gate=gate -s 'budgets=my file.tsv' -s recent=4
	assert_line --partial 'kv-evict --budgets my file.tsv --recent 4 '
	printf 'tsp_rate=0.3\nfier.group=16\n' >conf
	calls fastkv -m other -C conf
	assert_line --partial ' rate=0.3 '
	calls fier -m other -C conf
	assert_line --partial 'kv-quantize1b --group 16 '
	run -2 sh "$ROOT/examples/methods/quest.sh" -m other -s group=32
	assert_output 'quest.sh: this method has no setting group'
}

# KVCache-Factory's integers: of B = C - W rows the last layer has B/20, the first one the rest of 2B, and W more are the window that scores
@test "chunks share their budgets among the layers as PyramidKV does with each of them alone, and their rows stay" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	for name in chunked-naive chunked-patched; do
		sh "$ROOT/examples/methods/$name.sh" -r 0.2 -s chunks=3 -s window=8 -s policy=pyramid -o "$name.kv"
		"$PYTHON" - "$FORMAT" "$name.kv" <<-'END'
			import sys
			sys.path.insert(0, sys.argv[1])
			import kvread
			layers = kvread.read(open(sys.argv[2], "rb")).layers
			tokens, L = 982, len(layers)
			size = -(-tokens // 3)
			for first in range(0, tokens, size):
			    n = min(size, tokens - first)
			    # a patch is no row of the chunk that it scores
			    W = 0 if "patched" in sys.argv[2] and first + n < tokens else 8
			    B = n // 5 - W
			    least = B // 20
			    most = 2 * B - least
			    step = (most - least) // (L - 1)
			    for l, layer in enumerate(layers):
			        for positions in layer.positions:
			            kept = [p for p in positions if first <= p < first + n]
			            assert len(kept) == most - l * step + W, (first, l, len(kept))
			            assert kept[len(kept) - W:] == list(range(first + n - W, first + n)), kept
			    assert step > 10
		END
	done
	run -2 sh "$ROOT/examples/methods/chunked-naive.sh" -s policy=piramid
	assert_output --partial "kv-evict: --policy: there is no 'piramid'"
}

@test "a setting that does not exist is refused, in a file with the number of its line" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	local line
	for line in windw=3 fastvk.window=3 window; do
		printf '# comment\n%s\n' "$line" >conf
		run -2 sh "$ROOT/examples/methods/snapkv.sh" -C conf
		assert_output --partial 'snapkv.sh: conf: line 2'
	done
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -s windw=3
	assert_output 'snapkv.sh: -s windw: there is no such setting'
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -s window
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -l 3
	assert_output 'snapkv.sh: this method has no setting layer'
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -C nowhere
}

@test "a script that needs what it does not know of the model says so" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	other_model other
	run -2 sh "$ROOT/examples/methods/duoattention.sh" -m other
	assert_output 'duoattention.sh: other has no head mask: name one with -H'
	echo '{}' >other/config.json
	run -2 sh "$ROOT/examples/methods/fastkv.sh" -m other
	assert_output 'fastkv.sh: other/config.json does not say num_hidden_layers'
}

@test "every script says with -h what it does and what its settings are for the model" {
	local script name
	for script in "$ROOT"/examples/methods/*.sh; do
		name=$(basename "$script" .sh)
		[ "$name" != common ] || continue
		run -0 sh "$script" -h
		assert_line --index 0 --partial "usage: $name.sh "
		assert_line '    answer=12'
		assert_line "$(sed -n '2s/^# //p' "$script")"
	done
	run -0 sh "$ROOT/examples/methods/fastkv.sh" -h
	assert_line '    layer=2'
}

@test "DuoAttention keeps about the rate with any mask, of numbers from 0 to 1" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf '# a mask\n1 0.2 # one\n0.6,0\n0 0\n\n0\t0.4\n' >mask
	for rate in 0.3 0.5; do
		run -0 sh "$ROOT/examples/methods/duoattention.sh" -H mask -r $rate
		awk -v rate=$rate '{ exit !($2 < 100 * rate + 0.2 && $2 > 100 * rate - 0.2) }' <<<"$output" || fail "$output"
	done
}

# Eight heads, 982 rows: with f of them whole and 64 rows in the others f/8 + (1 - f/8) * 64/982 are kept. The rate lies above that of the
# f heads that the name says, and below that of one more.
@test "with a number of recent rows, as many heads of a mask stream as the rate asks for" {
	local rate f
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf '0.9 0.2\n0.6,0\n0.1 0.7\n0.3\t0.4\n' >mask
	for method in duoattention prulong; do
		while read -r rate f; do
			run -0 --separate-stderr sh "$ROOT/examples/methods/$method.sh" -H mask -s sink=4 -s recent=60 -r "$rate"
			awk -v f="$f" 'function near(a, b) { return a - b < 0.01 && b - a < 0.01 }
				{ exit !near($2, 100 * (f / 8 + (1 - f / 8) * 64 / 982)) }' <<<"$output" || fail "$rate: $output"
		done <<-'END'
			0.05 0
			0.18 0
			0.19 1
			0.5 3
			0.9999 7
			1 8
		END
	done
}

@test "with chunk, streaming heads lose rows while the prompt is read: as many stay, at a smaller footprint" {
	local method kept footprint chunked
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf '0.9 0.2\n0.6,0\n0.1 0.7\n0.3\t0.4\n' >mask
	for method in duoattention prulong; do
		run -0 --separate-stderr sh "$ROOT/examples/methods/$method.sh" -H mask -s sink=4 -s recent=60 -r 0.5
		read -r _ kept footprint _ <<<"$output"
		run -0 --separate-stderr sh "$ROOT/examples/methods/$method.sh" -H mask -s sink=4 -s recent=60 -r 0.5 -s chunk=200 -o x.kv
		assert_equal "$(kv-info --json x.kv | json - '"%.2f" % (100 * o["share_kept"])')" "$kept"
		chunked=$(kv-footprint --json x.kv | json - '100 * o["footprint"]')
		awk -v a="$chunked" -v b="$footprint" 'BEGIN { exit !(a < 0.8 * b) }' || fail "$method: $chunked, $footprint"
	done
}
