#!/usr/bin/env bats
# bats file_tags=slow
# experiments/draft_acceptance.py: what methods keep, as drafts of the full cache

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" "$ROOT/experiments/make_task.py" niah_single_2 -m "$DEMO" --chat none -n 2 --tokens 300 --seed 3 >niah.jsonl
}

# acceptance OPTION ...
acceptance() {
	"$PYTHON" "$ROOT/experiments/draft_acceptance.py" -m "$DEMO" --chat none --runs runs.jsonl --table table.md --table table.tsv "$@" niah.jsonl
}

@test "accepted tokens, likelihood and bytes are those of the programs by hand, and a second run measures nothing" {
	acceptance --methods snapkv-32,random --rates 0.1,0.3 --tokens 20
	"$PYTHON" "$ROOT/experiments/prompt_ids.py" -m "$DEMO" --chat none niah.jsonl "$("$PYTHON" -c 'import json; print(json.loads(open("niah.jsonl").readline())["id"])')" >prompt.ids
	kv-prefill -m "$DEMO" --ids --observe 64 --mass --query-stats --value-norms -o full.kv prompt.ids
	kv-decode -m "$DEMO" --ids -n 20 full.kv >text.ids
	kv-score --method snapkv --window 32 --kernel 7 --pool max full.kv | kv-evict -q --rate 0.1 -o kept.kv
	kv-decode -m "$DEMO" --ids -n 20 --draft-tokens 7 --stats stats --draft kept.kv full.kv >/dev/null
	kv-decode -m "$DEMO" --ids --json --force text.ids kept.kv >forced
	kv-info --json full.kv >full
	kv-info --json kept.kv >kept
	"$PYTHON" - <<-'END'
		import json
		stats, forced, full, kept = (json.load(open(name)) for name in ("stats", "forced", "full", "kept"))
		line = [json.loads(line) for line in open("runs.jsonl")]
		assert len(line) == 4
		got = next(one for one in line if one["name"] == "snapkv-32")["all"]["0.1"]
		each = forced["each"]
		want = {"accepted": stats["accepted"] / sum(place["judged"] for place in stats["by_place"]),
		        "tokens_per_pass": stats["tokens_per_pass"],
		        "nll": -sum(one["logprob"] for one in each) / len(each),
		        "top1": sum(one["top"] for one in each) / len(each),
		        "held": kept["kv_bytes"] / full["kv_bytes"]}
		assert got == want, (got, want)
	END
	grep -q '^## niah_single_2, 10 %, 2 questions$' table.md
	cp table.md first.md
	acceptance --methods snapkv-32,random --rates 0.1,0.3 --tokens 20
	cmp table.md first.md
	assert_equal "$(wc -l <runs.jsonl)" 4
}

@test "a method that is not there, and a pipeline that fails, are told" {
	run -2 --separate-stderr acceptance --methods nothing
	assert_regex "$stderr" "--methods nothing: there is no such method"
	run ! --separate-stderr acceptance --method 'mine=false' --methods random --rates 0.1 --tokens 8
	assert_regex "$stderr" "niah.jsonl: .*: its pipelines ended with 1"
	run -2 --separate-stderr acceptance --tokens 1
}
