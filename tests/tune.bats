#!/usr/bin/env bats
# bats file_tags=slow,nosan
# experiments/tune.py: from a limit to the pipeline whose text is nearest to the full cache's

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	quoted=$("$PYTHON" -c 'import shlex, sys; print(shlex.quote(sys.argv[1]))' "$DEMO")  # as it stands in what is printed
	"$PYTHON" "$ROOT/experiments/make_task.py" niah_single_2 -m "$DEMO" --chat none -n 5 --tokens 300 --seed 3 >niah.jsonl
}

# tune OPTION ...
tune() {
	"$PYTHON" "$ROOT/experiments/tune.py" -m "$DEMO" --chat none --runs runs.jsonl --table table.md --table table.tsv --tokens 12 "$@" niah.jsonl
}

@test "the better half runs on twice as many prompts, until a few have run on all, and a second run measures nothing" {
	run -0 --separate-stderr tune --limit bytes=10% --only snapkv-16 --only keydiff
	assert_regex "${stderr_lines[0]}" '^tune.py: 22 pipelines on 2 prompts: [0-9]+ beyond the limits, least KL [0-9.]+: '
	assert_regex "${stderr_lines[1]}" '^tune.py: 11 pipelines on 4 prompts: 0 beyond the limits, least KL '
	assert_regex "${stderr_lines[2]}" '^tune.py: 6 pipelines on 5 prompts: 0 beyond the limits, least KL '
	[ "${#stderr_lines[@]}" = 3 ]
	assert_regex "$output" "^kv-prefill -m $quoted .*PROMPT \| kv-score --method .* \| kv-evict --rate .* \| kv-decode -m $quoted\$"
	cp table.md first.md
	wc -l <runs.jsonl >lines
	tune --limit bytes=10% --only snapkv-16 --only keydiff
	cmp table.md first.md
	assert_equal "$(wc -l <runs.jsonl)" "$(cat lines)"
	"$PYTHON" - <<-'END'
		import collections, csv, json
		runs = [json.loads(line) for line in open("runs.jsonl")]
		count = collections.Counter(line["name"] for line in runs)
		assert sorted(set(count.values())) == [2, 4, 5], count
		kl = {name: sum(line["all"]["kl"] for line in runs if line["name"] == name) / n for name, n in count.items()}
		all_ran = [name for name, n in count.items() if n == 5]
		assert all(.05 < line["all"]["bytes"] < .1011 for line in runs if count[line["name"]] > 2)
		# the first row of the table is the best of those that ran on all prompts
		row = open("table.md").read().split("|---|")[1].split("\n")[1]
		assert row.split("|")[1].strip() == min(all_ran, key=kl.get), row
	END
}

@test "what is measured is what the printed command makes" {
	tune --limit bytes=20% --only h2o/ada/q8_0 --first 5 >command.sh
	"$PYTHON" "$ROOT/experiments/prompt_ids.py" -m "$DEMO" --chat none niah.jsonl "$("$PYTHON" -c 'import json; print(json.loads(open("niah.jsonl").readline())["id"])')" >prompt.ids
	kv-prefill -q -m "$DEMO" --ids -o full.kv prompt.ids
	kv-decode -q -m "$DEMO" --ids --ignore-eos -n 12 full.kv >text.ids
	kv-decode -q -m "$DEMO" --ids --json --force text.ids --logits full.npy full.kv >/dev/null
	sed 's/ PROMPT/ --ids prompt.ids/; s/ | kv-decode.*/ >kept.kv/' command.sh >made.sh
	sh made.sh
	kv-decode -q -m "$DEMO" --ids --json --force text.ids --against full.npy kept.kv >forced
	kv-info --json kept.kv >kept
	kv-info --json full.kv >full
	"$PYTHON" - <<-'END'
		import json
		forced, kept, full = (json.load(open(name)) for name in ("forced", "kept", "full"))
		got = json.loads(open("runs.jsonl").readline())["all"]
		assert got["kl"] == forced["kl"] and got["bytes"] == kept["kv_bytes"] / full["kv_bytes"], (got, forced["kl"])
	END
}

@test "a limit of bytes read tries indexes, too, and a pipeline of one's own is one of them" {
	tune --limit read=40% --only fier --only quest --only all --pipeline 'mine=kv-score -q --method knorm | kv-evict -q --rate 0.2' --first 5 2>/dev/null >command.sh
	for name in fier/bf16 quest/bf16 all/q4_0; do
		grep -q "^| $name | 5 |" table.md
	done
	run -0 --separate-stderr tune --limit bytes=30% --only nothing --pipeline 'mine=kv-score -q --method knorm | kv-evict -q --rate 0.2' --first 5
	assert_equal "$output" "kv-prefill -m $quoted PROMPT | kv-score --method knorm | kv-evict --rate 0.2 | kv-decode -m $quoted"
}

@test "with --question after the pipelines do not see the question" {
	run -0 --separate-stderr tune --limit bytes=10% --question after --only snapkv-16/uniform/bf16 --first 5
	assert_equal "$output" "kv-prefill -m $quoted --observe 16 PROMPT | kv-score --method snapkv --kernel 7 --pool max | kv-evict --rate 0.1 | kv-prefill -m $quoted -r - QUESTION | kv-decode -m $quoted"
	cp runs.jsonl after.jsonl
	rm runs.jsonl
	tune --limit bytes=10% --only snapkv-16/uniform/bf16 --first 5 >/dev/null
	"$PYTHON" - <<-'END'
		import json
		after, inside = ([json.loads(line)["all"]["kl"] for line in open(name)] for name in ("after.jsonl", "runs.jsonl"))
		assert sum(after) > sum(inside), (after, inside)
	END
}

@test "when nothing keeps to the limits the nearest pipeline is told, and the status is 1" {
	run -1 --separate-stderr tune --limit bytes=10% --limit peak=50% --only keydiff/uniform
	assert_regex "$stderr" "3 pipelines on 2 prompts: none keeps to the limits"
	assert_regex "$stderr" "tune.py: no pipeline keeps to the limits; the nearest is keydiff/uniform/[a-z0-9_]+, 1\.98 times what it may be"
	assert_regex "$output" "^kv-prefill -m $quoted PROMPT \| kv-score --method keydiff"
}

@test "operations are those that the programs of a pipeline report, and a limit of them leaves KVzip out, which runs the text again" {
	run -0 --separate-stderr tune --limit bytes=10% --limit flops=150% --only kvzip/global/bf16 --only snapkv-16/uniform/bf16 --first 5
	assert_regex "$stderr" "2 pipelines on 5 prompts: 1 beyond the limits, least KL [0-9.]+: snapkv-16/uniform/bf16"
	"$PYTHON" "$ROOT/experiments/prompt_ids.py" -m "$DEMO" --chat none niah.jsonl "$("$PYTHON" -c 'import json; print(json.loads(open("niah.jsonl").readline())["id"])')" >prompt.ids
	kv-prefill -q -m "$DEMO" --ids --report full -o full.kv prompt.ids
	kv-decode -q -m "$DEMO" --ids --ignore-eos -n 12 full.kv >text.ids
	kv-decode -q -m "$DEMO" --ids --json --force text.ids --report full full.kv >/dev/null
	kv-prefill -q -m "$DEMO" --ids --observe 16 --report snapkv prompt.ids | kv-score -q --method snapkv --kernel 7 --pool max --report snapkv | kv-evict -q --rate 0.1 -o snapkv.kv
	kv-decode -q -m "$DEMO" --ids --json --force text.ids --report snapkv snapkv.kv >/dev/null
	kv-observe -q -m "$DEMO" --repeat-context --report kvzip full.kv | kv-score -q --method kvzip --report kvzip | kv-evict -q --rate 0.1 --policy global -o kvzip.kv
	kv-decode -q -m "$DEMO" --ids --json --force text.ids --report kvzip kvzip.kv >/dev/null
	head -n 1 full >>kvzip
	"$PYTHON" - <<-'END'
		import json
		def flops(name):
		    return sum(sum(json.loads(line).get("flops", {}).values()) for line in open(name))
		runs = [json.loads(line) for line in open("runs.jsonl")]
		first = {line["name"].split("/")[0]: line["all"] for line in runs if line["id"] == runs[0]["id"]}
		for name, key in (("snapkv", "snapkv-16"), ("kvzip", "kvzip")):
		    assert first[key]["flops"] == flops(name) / flops("full"), (name, first[key])
		assert 1 < first["snapkv-16"]["flops"] < 1.5 < first["kvzip"]["flops"]
		assert all(line["all"]["seconds"] > 0 for line in runs)
	END
	grep -q '^| pipeline .* flops | seconds |$' table.md
	# without such a limit nothing is counted, and what was measured with one is of another kind
	tune --limit bytes=10% --only snapkv-16/uniform/bf16 --first 5 >/dev/null
	grep -q '^| pipeline .* footprint | peak |$' table.md
}

@test "seconds are the median over prompts, of what the programs themselves took; a hundredth of the full cache's is too little for any" {
	run -1 --separate-stderr tune --limit bytes=10% --limit seconds=1% --only keydiff/uniform/bf16
	assert_output --partial "kv-score --method keydiff"
	assert_regex "$stderr" "the nearest is keydiff/uniform/bf16, [0-9.]+ times what it may be"
	"$PYTHON" - "$ROOT/experiments" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import tune
		lines = [{"name": "a", "all": {"seconds": x, "flops": x}} for x in (1, 2, 30)]
		assert tune.mean(lines, "a", "seconds") == 2 and tune.mean(lines, "a", "flops") == 11
		assert tune.over(lines, "a", [("seconds", 2)]) < 1 < tune.over(lines, "a", [("flops", 2)])
		def record(program, wall, wait, **flops):
		    return {"program": program, "seconds": {"wall": wall, "wait": {"wall": wait}}, "flops": flops}
		records = [record("kv-prefill", 3, 1, products=5, attention=2), record("kv-info", 9, 0),
			record("kv-footprint", 9, 0), record("kv-decode", 4, 0.5, products=1)]
		assert tune.work_of(records) == {"flops": 8, "seconds": 5.5}
	END
}

@test "the budgets of FIER and Quest hold the bytes of index and dense layers, too, and the printed command runs" {
	# two of the four layers are dense, half of the bytes
	tune --limit read=70% --only fier/bf16 --only quest/bf16 --only no-dense/bf16 --first 5 >command.sh
	"$PYTHON" - <<-'END'
		import json
		runs = [json.loads(line)["all"] | {"name": json.loads(line)["name"]} for line in open("runs.jsonl")]
		assert len(runs) == 20
		for name in {one["name"] for one in runs}:
		    share = [one["read"] for one in runs if one["name"] == name]
		    assert .6 < sum(share) / len(share) <= .707, (name, share)
	END
	printf 'What is this? ' >text
	sed 's/ PROMPT/ text/; s/kv-decode/& -n 2/' command.sh >made.sh
	sh made.sh
}

@test "--picture draws divergence against footprint" {
	"$PYTHON" -c 'import matplotlib' 2>/dev/null || skip "no matplotlib for $PYTHON"
	tune --limit bytes=10% --only keydiff --first 5 --picture a.svg
	grep -q 'KL(full' a.svg || grep -q '<svg' a.svg
	run -2 tune --limit bytes=10% --picture a.gif
}

@test "limits and names that mean nothing are refused" {
	for limit in bytes=0 bytes=2 rows=10% bytes=x bytes flops=0 seconds=x seconds=100001%; do
		run -2 tune --limit $limit
		assert_output --partial "--limit"
	done
	run -2 tune --limit peak=10%
	assert_output --partial "bytes or read comes first"
	run -2 tune --limit bytes=10% --only zzz
	assert_output --partial "there is no pipeline to try: --only leaves none"
	run -2 tune --limit bytes=10% --pipeline =x
	assert_output --partial "not NAME=SHELL"
	run -2 tune
}
