#!/usr/bin/env bats
# What a refusal ends with (kvpipe(7), EXIT STATUS): 5 where model or snapshot is right, and the program cannot do this with it; 2 where
# the command line is wrong; 1 where a part is missing that another program adds. What goes with what is in pairs.bats.
load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" mistral-window windows "$DEMO/tokenizer.json"
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" deepseek_v2-64 latent "$DEMO/tokenizer.json"
	"$PYTHON" "$ROOT/tests/bin/mkfamily.py" phi3-longrope switch "$DEMO/tokenizer.json"
	"$PYTHON" "$ROOT/tests/bin/mkhead.py" head --model "$DEMO" --hidden 32 --embedding --layers 0,1,2 --head-dim 16
	seq 5 54 >50.ids
	head -n 20 50.ids >20.ids
	head -n 5 50.ids >5.ids
	ln -s "$DEMO" demo
	for model in demo windows latent; do
		kv-prefill -q -m $model --ids --dtype f32 -o $model.kv 50.ids
	done
	kv-prefill -q -m demo --ids --observe 8 --mass -o full.kv 50.ids
	kv-merge -q -o merged.kv demo.kv demo.kv
	kv-merge -q -o merged.windows.kv windows.kv windows.kv
	kv-quantize --keys q8_0 --values q8_0 --residual 32 -o residual.kv full.kv
	kv-quantize --keys q8_0 --values q8_0 -o q8.kv demo.kv
	kv-score -q --method knorm full.kv | kv-evict -q --rate 0.5 -o few.kv
	kv-score -q --method knorm full.kv | kv-evict -q --rate 0.5 --positions compact -o compact.kv
	kv-prefill -q -m switch --ids --dtype f32 -o short.kv 5.ids
	mksnapshot -H 4 -G 2 -E 80 -N 9 -o wide.kv
}

# holds <TABLE: on each line, with bars between: the status, words of the message, the command>
holds() {
	local want words command faults=0
	cd "$BATS_FILE_TMPDIR" || return
	while IFS='|' read -r want words command; do
		run --separate-stderr bash -o pipefail -c "$command"
		[[ $status -eq $want && $stderr == *"$words"* && ! -e o.kv ]] || {
			echo "$command: $status, $stderr"
			faults=$((faults + 1))
			rm -f o.kv
		}
	done
	assert_equal $faults 0
}

@test "a model or snapshot that is right, and with which the program cannot do this, is unsupported: 5" {
	holds <<-'END'
		5|have not kept the rows that tokens of a text of 100 would see|kv-recompute -m windows --first 2 -o o.kv merged.windows.kv
		5|rows were renumbered, or are of selected tokens|kv-merge -q compact.kv full.kv | kv-recompute -m demo --first 2 -o o.kv
		5|rows were renumbered, or are of selected tokens|kv-merge --prefix 2 -o o.kv full.kv compact.kv
		5|store their rows in different types|kv-merge -o o.kv demo.kv q8.kv
		5|rows were renumbered, or are of selected tokens|kv-prefill -m demo --ids --reuse compact.kv -o o.kv 50.ids
		5|a prompt that runs from its beginning has them all|kv-prefill -m demo --ids --reuse few.kv -o o.kv 50.ids
		5|it can be continued, but not cut back|kv-prefill -m windows --ids --dtype f32 --reuse windows.kv -o o.kv 20.ids
		5|no single row can be dropped|kv-evict --rate 0.5 -o o.kv residual.kv
		5|no single row can be dropped|kv-score --method knorm -o o.kv residual.kv
		5|do not move: merge before kv-quantize|kv-merge -o o.kv residual.kv residual.kv
		5|no index finds single rows|kv-index --pages -o o.kv residual.kv
		5|no index finds single rows|kv-quantize1b -o o.kv residual.kv
		5|no single row can be read|kv-decode -m demo -n 2 --ids --retrieve 'quest budget=8' residual.kv
		5|probe tokens are not run on them|kv-observe -m demo --ids-from 5.ids -o o.kv residual.kv
		5|a prompt runs with full rows|kv-prefill -m demo --ids --reuse residual.kv -o o.kv 50.ids
		5|no single row of theirs can be replaced|kv-recompute -m demo --first 2 -o o.kv residual.kv
		5|which is no multiple of 32: use int8 or fp8|kv-quantize --keys q8_0 -o o.kv wide.kv
		5|has a sliding window, whose rows are dropped one by one|kv-quantize --keys int8 --residual 32 -o o.kv windows.kv
		5|KIVI quantises keys by channel|kv-quantize --keys kivi2 --values kivi2 -o o.kv latent.kv
		5|which --keys is for|kv-quantize --values q8_0 -o o.kv latent.kv
		5|no rows stay full with latent attention|kv-quantize --keys q8_0 --residual 8 -o o.kv latent.kv
		5|have 32 full ones behind them|kv-quantize --keys q4_0 --residual 16 -o o.kv residual.kv
		5|KV heads have different rows|kv-index --low-rank -o o.kv few.kv
		5|rows out of its sliding windows are gone|kv-prefill -m windows --ids --store s --chunk 8 --once --score knorm --evict rate=0.5 -o o.kv 50.ids
		5|does not go with --store: tokens whose rows are there already|kv-prefill -m demo --ids --retrieval-head head --store s -o o.kv 50.ids
		5|tokens' positions are unknown|kv-observe -m demo --repeat-context -o o.kv compact.kv
		5|the tokens of the rows are unknown|kv-info --ids --kept any compact.kv
		5|rows of the same token are unknown|kv-score -q --method knorm compact.kv -o c.kv; kv-score -q --method knorm full.kv -o f.kv; kv-diff --scores f.kv c.kv
		5|not renumbered or selected ones|kv-decode -m demo -n 2 --ids --retrieve 'specontext budget=8 head=head' compact.kv
		5|is on the other side of that limit|kv-prefill -m switch --ids --dtype f32 --reuse short.kv -o o.kv 50.ids
		5|which is unknown|kv-prefill -q -m demo --ids --mass --select 'tsp layer=1 window=2 rate=0.5' 50.ids | kv-score --method meanmass -o o.kv
		5|a row is that of all query heads|kv-convert --per-query-head -o o.kv latent.kv
	END
}

@test "a command line that no input suits, or that names what this input does not have, is wrong usage: 2" {
	holds <<-'END'
		2|which tokens run again?|kv-recompute -m demo -o o.kv merged.kv
		2|--layer 99: merged.kv has the layers 0 to 3|kv-recompute -m demo --rate 0.5 --layer 99 -o o.kv merged.kv
		2|and none after them|kv-merge --prefix 50 -o o.kv demo.kv demo.kv
		2|there is no layer 99|kv-info --ids --kept 99 full.kv
		2|holds only 8 observation queries|kv-score --method snapkv --window 9 -o o.kv full.kv
		2|rows that are not quantised are f32 here|kv-quantize --keys bf16 -o o.kv demo.kv
		2|--keys, --values: q8.kv holds q8_0: kv-quantize changes their types|kv-prefill -m demo --ids -r q8.kv --keys q4_0 -o o.kv 5.ids
		2|--skip-layers: there is no layer 9|kv-score -q --method knorm full.kv | kv-evict --rate 0.5 --skip-layers 9 -o o.kv
		2|want a multiple of 32|kv-quantize --keys kivi2 --residual 48 -o o.kv demo.kv
		2|as in the KIVI paper, a prompt runs with full rows|kv-prefill -m demo --ids --keys kivi2 -o o.kv 50.ids
	END
}

@test "a part that is not in the snapshot, and that another program or option adds, is an error while running: 1" {
	holds <<-'END'
		1|no documents that were prefilled apart: merge some with kv-merge|kv-recompute -m demo --first 2 -o o.kv demo.kv
		1|add them with kv-index --pages|kv-decode -m demo -n 2 --ids --retrieve 'quest budget=8' full.kv
		1|make the snapshot with kv-prefill --observe|kv-score --method snapkv -o o.kv demo.kv
		1|make the snapshot with kv-prefill --mass|kv-score --method h2o -o o.kv demo.kv
		1|run kv-score first|kv-evict --rate 0.5 -o o.kv demo.kv
	END
}
