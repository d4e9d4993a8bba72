#!/usr/bin/env bats
# bats file_tags=slow
# experiments/merged_documents.py: questions about documents that were prefilled apart

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" "$ROOT/experiments/make_task.py" niah_single_2 -m "$DEMO" --chat none -n 2 --tokens 300 --seed 3 >niah.jsonl
}

# merged OPTION ...
merged() {
	"$PYTHON" "$ROOT/experiments/merged_documents.py" -m "$DEMO" --chat none --runs runs.jsonl --table table.md --table table.tsv "$@" niah.jsonl
}

@test "likelihoods and bytes are those of the programs by hand, in both orders, and a second run measures nothing" {
	merged --methods full,apart,cacheblend-15%,q8_0-apart --documents 2,3
	cat >question.py <<-'END'
		import json, sys
		sys.path.insert(0, sys.argv[1])
		from forced_answer import answer_ids
		from run_part import write_ids
		from task_prompts import Tokenizer, find_programs
		find_programs()
		t, record = Tokenizer(sys.argv[2], "none"), json.loads(open("niah.jsonl").readline())
		for part in "context", "question":
		    write_ids(part + ".ids", t.prompt_ids(record, part))
		write_ids("right.ids", answer_ids(t, record, "question"))
		other = t.prompt_ids({**record, "context": "\n\n0"}, "context")
		print(next(i for i, (a, b) in enumerate(zip(t.prompt_ids(record, "context"), other)) if a != b))
	END
	local prefix rest
	prefix=$("$PYTHON" question.py "$ROOT/experiments" "$DEMO")
	rest=$((($(wc -l <context.ids) - prefix + 1) / 2))
	head -n $((prefix + rest)) context.ids >first.ids
	{ head -n "$prefix" context.ids; tail -n +$((prefix + rest + 1)) context.ids; } >second.ids
	for x in first second; do kv-prefill -m "$DEMO" --ids -o $x.kv $x.ids; done
	kv-merge --prefix "$prefix" first.kv second.kv | kv-recompute -m "$DEMO" --rate 0.15 -o made.kv
	kv-prefill -m "$DEMO" --ids -r made.kv -o asked.kv question.ids
	kv-decode -m "$DEMO" --ids --json --force right.ids asked.kv >forced
	kv-info --json made.kv >info
	"$PYTHON" - <<-'END'
		import json
		each = json.load(open("forced"))["each"]
		lines = [json.loads(line) for line in open("runs.jsonl")]
		assert len(lines) == 8
		got = next(one for one in lines if one["name"] == "cacheblend-15%")["all"]["2"]
		assert got["nll"] == -sum(one["logprob"] for one in each) / len(each)
		assert got["held"] == json.load(open("info"))["kv_bytes"]
		assert all(set(one["all"]) == {"2", "3"} for one in lines)
	END
	grep -q '^## niah_single_2, 3 documents, 2 questions$' table.md
	cp table.md first.md
	merged --methods full,apart,cacheblend-15%,q8_0-apart --documents 2,3
	cmp table.md first.md
	merged --methods full,apart --documents 2 --reversed
	assert_equal "$(wc -l <runs.jsonl)" 12
}

@test "every method runs" {
	merged --documents 2 --count 1
	assert_equal "$(wc -l <runs.jsonl)" "$(grep -c '^    "[a-z0-9_%+-]*": "' "$ROOT/experiments/merged_documents.py")"
}

@test "a method that is not there, and a pipeline that fails, are told" {
	run -2 --separate-stderr merged --methods nothing
	assert_regex "$stderr" "--methods nothing: there is no such method"
	run -2 --separate-stderr merged --method apart=cat
	assert_regex "$stderr" "--method apart=cat: not NAME=SHELL, or a method is called so"
	run ! --separate-stderr merged --method 'mine=false' --methods full --documents 2
	assert_regex "$stderr" "niah.jsonl: .*: its pipelines ended with 1"
	run -2 --separate-stderr merged --documents 0
}
