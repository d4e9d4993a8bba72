#!/usr/bin/env bats
# bats file_tags=slow,nosan
# experiments/: scores and retrieval against what an answer looks at, the distance of a run with selected tokens

load helper

E=$ROOT/experiments

setup_file() {
	export PYTHONPATH=$E:$ROOT/python KV_THREADS=1
	cd "$BATS_FILE_TMPDIR" || exit 1
	for i in 0 1; do
		printf '{"id": "q-%d", "task": "codes", "context": "The access code of Elmford is L04%d. %s\\n", "question": "Question: what is the access code of Elmford?", "answer_prefix": "Answer:", "answers": ["L04%d", "other"], "metric": "substring_any", "new_tokens": 6}\n' \
		    $i $i "$(small_talk 8 | tr '\n' ' ')" $i
	done >task.jsonl
	head -n 1 task.jsonl >one.jsonl
	"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none task.jsonl q-0 >prompt.ids
	kv-prefill -q -m "$DEMO" --ids --observe 8 --mass -o full.kv prompt.ids
	kv-decode -q -m "$DEMO" --ids -n 6 --stop . full.kv >answer.ids
	kv-observe -q -m "$DEMO" --ids-from answer.ids -o seen.kv full.kv
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	F=$BATS_FILE_TMPDIR
}

agreement() {
	"$PYTHON" "$E/score_agreement.py" -m "$DEMO" --chat none --runs runs.jsonl "$@"
}

retrieval() {
	"$PYTHON" "$E/retrieval_recall.py" -m "$DEMO" --chat none --runs runs.jsonl "$@"
}

overlap() {
	"$PYTHON" "$E/adjacent_overlap.py" -m "$DEMO" --head "$DEMO/retrieval-head" --chat none --runs runs.jsonl "$@"
}

rows_read() {
	"$PYTHON" "$E/plot_rows_read.py" "$@"
}

distance() {
	"$PYTHON" "$E/tsp_distance.py" -m "$DEMO" --chat none --runs runs.jsonl "$@"
}

# line NAME EXPRESSION: of o, a method's first line in runs.jsonl
line() {
	"$PYTHON" -c 'import json, sys
lines = [json.loads(line) for line in open("runs.jsonl")]
o = next(line for line in lines if line["name"] == sys.argv[1])
print(eval(sys.argv[2]))' "$@"
}

# refused STATUS TEXT COMMAND ...: ends with the status and has the text in its last line; nothing is printed, and there is no table
refused() {
	run --separate-stderr "${@:3}"
	assert_equal "$status" "$1"
	assert_equal "$output" ''
	[[ ${stderr_lines[-1]} == *"$2"* ]] || fail "$stderr"
	assert_equal "$(find . -name 'out.*' -o -name '.picture*')" ''
}

@test "tau, recall, what is kept and the regret are those of attention that NumPy computes, in each layer" {
	agreement --methods snapkv-8-k1,knorm --rates 0.1,0.3 "$F/one.jsonl" >table
	"$PYTHON" - "$F" <<-'END'
		import json, math, sys
		import numpy as np
		import kvsnapshot
		full, seen = (kvsnapshot.read(f"{sys.argv[1]}/{name}.kv") for name in ("full", "seen"))
		lines = {line["name"]: line for line in map(json.loads, open("runs.jsonl"))}

		def tau_b(x, y):
		    a, b = (np.sign(np.nan_to_num(np.subtract.outer(v, v), nan=0.0)) for v in (x, y))
		    return (a * b).sum() / math.sqrt((a != 0).sum() * (b != 0).sum())

		def best(scores, n):
		    return set(np.argsort(-scores, kind="stable")[:n].tolist())

		def close(got, want):
		    assert abs(got - want) < 2e-3, (got, want)

		for layer, (a, b) in enumerate(zip(seen.layers, full.layers)):
		    heads = range(len(a.keys))
		    truth = [a.attention(g).astype(np.float64).sum(1).mean(0) for g in heads]
		    for name in lines:
		        got = lines[name]["layers"][layer]
		        if name == "knorm":
		            scores = [-np.linalg.norm(b.keys[g], axis=1) for g in heads]
		        else:
		            scores = [b.attention(g).astype(np.float64).sum(1).mean(0) for g in heads]
		            for s in scores:
		                s[-8:] = np.inf     # the window always stays
		        close(got["tau"], np.mean([tau_b(t, s) for t, s in zip(truth, scores)]))
		        for rate in (0.1, 0.3):
		            n = int(len(truth[0]) * rate)
		            chosen = [best(s, n) for s in scores]
		            close(got[f"recall@{rate}"], np.mean([len(best(t, n) & c) / n for t, c in zip(truth, chosen)]))
		            kept = sum(t[list(c)].sum() for t, c in zip(truth, chosen)) / np.sum(truth)
		            most = sum(np.sort(t)[-n:].sum() for t in truth) / np.sum(truth)
		            close(got[f"kept@{rate}"], kept)
		            close(got[f"best@{rate}"], most)
		            close(got[f"regret@{rate}"], 1 - kept / most)
	END
}

@test "the truth against itself is tau 1, recall 1 and no regret; no method has less" {
	agreement --method 'truth=answer_seen | kv-score --method snapkv --kernel 1' --rates 0.2 "$F/one.jsonl" >table
	assert_equal "$(line truth '{k: v for k, v in o["all"].items() if k[:4] not in ("kept", "best")}')" \
	    "{'tau': 1.0, 'recall@0.2': 1.0, 'regret@0.2': 0.0}"
	assert_equal "$(line truth '[min(line["all"]["regret@0.2"] for line in lines if line["name"] != "truth") > 0,
	    all(l["all"]["best@0.2"] >= l["all"]["kept@0.2"] for l in lines), len(lines)]')" "[True, True, 33]"
	# sorted by recall
	assert_equal "$(sed -n 's/^| \([a-z].*\) | 1\.00 | 100\.0 .*/\1/p;' table)" truth
	assert_equal "$(awk '/^\|---/ { getline; print $2; exit }' table)" truth
}

@test "the answer that looks is the full cache's, or the right one" {
	agreement --methods random --method 'spy=answer_ids >ids; full | kv-score --method random' "$F/one.jsonl" >table
	cmp ids "$F/answer.ids"
	agreement --answer right --methods random --method 'spy=answer_ids >ids; full | kv-score --method random' "$F/one.jsonl" >table
	printf ' L040' | kv-tokenize -m "$DEMO" --no-template --plain >right
	cmp ids right
}

@test "with the question after it methods see the context, and the truth is the attention that the answer pays to it" {
	for part in context question; do
		"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none --part $part "$F/one.jsonl" "$(json "$F/one.jsonl" 'o["id"]')" >$part
	done
	agreement --question after --methods random --method 'spy=answer_ids >ids; cp "$work/truth.kv" truth.kv; full | kv-score --method random | tee seen.kv' \
	    --method 'truth=answer_seen | kv-score --method snapkv --kernel 1 $(window_of_answer)' "$F/one.jsonl" >table
	assert_equal "$(line truth '(o["all"]["tau"], o["all"]["recall@0.1"])')" '(1.0, 1.0)'
	assert_equal "$(kv-info --json seen.kv | json - 'o["tokens"]')" "$(wc -l <context)"
	kv-prefill -q -m "$DEMO" --ids -o context.kv context
	kv-prefill -q -m "$DEMO" --ids -r context.kv -o asked.kv question
	kv-decode -q -m "$DEMO" --ids -n "$(json "$F/one.jsonl" 'o["new_tokens"]')" --stop . asked.kv | cmp - ids
	# the same attention where the question is a part of the cache
	kv-observe -q -m "$DEMO" --ids-from ids asked.kv | kv-score --method snapkv --kernel 1 -o whole.kv
	"$PYTHON" - "$FORMAT" "$(wc -l <context)" <<-'END'
		import sys
		sys.path.insert(0, sys.argv[1])
		import kvread
		import numpy as np
		a, b = (kvread.read(open(name, "rb")) for name in ("truth.kv", "whole.kv"))
		for x, y in zip(a.layers, b.layers, strict=True):
		    for p, q in zip(x.scores.values, y.scores.values, strict=True):
		        p, q = np.array(p), np.array(q)[:int(sys.argv[2])]
		        assert len(p) == len(q) and np.abs(p - q).max() < 0.01 * q.max()
	END
	agreement --methods random "$F/one.jsonl" >inside
	assert_equal "$("$PYTHON" -c 'print(sum(1 for _ in open("runs.jsonl")))')" 4
}

@test "a run that was cut off goes on, and gives the same bytes; one that is whole measures nothing" {
	agreement --methods random,snapkv-8 --table out.tsv --table out.md "$F/task.jsonl"
	cp runs.jsonl whole.jsonl
	cp out.tsv whole.tsv
	head -c -400 whole.jsonl >runs.jsonl
	agreement --methods random,snapkv-8 --table out.tsv --table out.md "$F/task.jsonl"
	cmp runs.jsonl whole.jsonl
	cmp out.tsv whole.tsv
	agreement --methods snapkv-8,random --method 'random2=full | kv-score --method random -s 2' "$F/task.jsonl" >table
	assert_equal "$(head -n 4 runs.jsonl | cmp - whole.jsonl; wc -l <runs.jsonl)" 6
	# other settings are other results
	agreement --methods random --rates 0.5 "$F/one.jsonl" >table
	assert_equal "$(wc -l <runs.jsonl)" 7
}

@test "the table has the mean of each task and layer group, its interval, and the difference from the reference" {
	sed 's/"codes"/"codes2"/; s/Elmford/Oakwick/g' "$F/one.jsonl" >second.jsonl
	agreement --methods random,snapkv-8 --reference random --groups 2 --rates 0.2 --table out.tsv --table out.md "$F/task.jsonl" second.jsonl
	"$PYTHON" - <<-'END'
		import json
		runs = [json.loads(line) for line in open("runs.jsonl")]
		head, *rows = (line.rstrip("\n").split("\t") for line in open("out.tsv"))
		rows = [dict(zip(head, row)) for row in rows]
		pick = lambda **of: [row for row in rows if all(row[k] == v for k, v in of.items())]
		for task, n in (("codes", 2), ("codes2", 1), ("all", 3)):
		    values = {name: [r["all"]["recall@0.2"] for r in runs if r["name"] == name and task in (r["task"], "all")]
		              for name in ("random", "snapkv-8")}
		    (row,) = pick(task=task, layers="all", method="snapkv-8", measure="recall@0.2")
		    mean = sum(values["snapkv-8"]) / n
		    assert row["n"] == str(n) and abs(float(row["mean"]) - mean) < 1e-5
		    assert min(values["snapkv-8"]) - 1e-5 <= float(row["low"]) <= float(row["mean"]) <= float(row["high"])
		    assert abs(float(row["difference"]) - (mean - sum(values["random"]) / n)) < 1e-5
		(row,) = pick(task="codes2", layers="2-3", method="random", measure="tau")
		taus = [l["tau"] for l in next(r for r in runs if r["task"] == "codes2" and r["name"] == "random")["layers"]]
		assert abs(float(row["mean"]) - (taus[2] + taus[3]) / 2) < 1e-6 and row["difference"] == ""
		assert [row["layers"] for row in pick(task="all", method="random", measure="tau")] == ["all", "0-1", "2-3"]
	END
	assert_equal "$(grep -c '^## ' out.md)" 9
	assert_equal "$(grep -m 1 '^## ' out.md)" '## codes, all layers, 2 questions'
}

@test "retrieval's figures are those of kv-diff --retrieve, and all rows are all there is to find" {
	retrieval --methods quest-8,fier-16 --budgets 24,10%,100% --dense-layers 1 "$F/one.jsonl" >table
	kv-index --pages --page 8 "$F/seen.kv" | kv-diff --json --retrieve 'quest budget=24 dense=1' - >quest.json
	kv-quantize1b --group 16 "$F/seen.kv" | kv-diff --json --retrieve "fier budget=$(($(wc -l <$F/prompt.ids) / 10)) dense=1" - >fier.json
	local name
	for name in "quest quest-8 24" "fier fier-16 10%"; do
		set -- $name
		assert_equal "$(line "$2" "[o['all']['$3'][k] for k in ('recall', 'mass', 'error', 'rows', 'read')]")" \
		    "$(json "$1.json" '[o["retrieving"][k] for k in ("recall", "mass", "output_error", "rows", "share")]')"
	done
	assert_equal "$(line fier-16 "o['all']['100%']['recall'], o['all']['100%']['mass'], o['all']['100%']['error']")" "(1.0, 1.0, 0.0)"
	assert_equal "$(grep -c '^| fier-16 ' table)" 3
}

@test "every method of retrieval runs, also one of the user's" {
	retrieval --method 'pages-4=quest:answer_seen | kv-index --pages --page 4' --budgets 40 --table out.tsv "$F/one.jsonl"
	assert_equal "$(cut -f 3 out.tsv | tail -n +2 | sort -u | xargs)" \
	    "clusterkv fier-128 fier-16 fier-32 fier-64 pages-4 quest-16 quest-32 quest-64 quest-8 quest-eval-16 shadowkv"
	assert_equal "$(awk -F '\t' '$4 == "recall" && ($6 <= 0 || $6 > 1)' out.tsv)" ''
}

@test "overlaps are those of kv-decode, of the same tokens for each method, and what is new is what is left" {
	overlap --budgets 40,100000 --table found.md --table found.tsv --answer right "$F/one.jsonl"
	assert_equal "$(wc -l <runs.jsonl)" 6
	kv-prefill -q -m "$DEMO" --ids --retrieval-head "$DEMO/retrieval-head" -o head.kv "$F/prompt.ids"
	# the right answer, as it goes on behind the prompt
	"$PYTHON" -c 'import forced_answer, json, sys, task_prompts
print(*forced_answer.answer_ids(task_prompts.Tokenizer(sys.argv[1], "none"), json.loads(open(sys.argv[2]).readline()), "whole"))' \
		"$DEMO" "$F/one.jsonl" >right.ids
	kv-decode -q -m "$DEMO" --ids --force right.ids --json --retrieve "specontext budget=40 head='$DEMO/retrieval-head'" head.kv >want.json
	assert_equal "$(line specontext '[l for l in o["layers"]["40"]], o["all"]["40"]["overlap"], o["steps"]["40"]')" \
		"$(json want.json '[l["overlap"] for l in o["retrieval"]["layers"]], o["retrieval"]["retrieving"]["overlap"], o["retrieval"]["steps"]')"
	assert_equal "$(line specontext 'len(set(o["layers"]["40"])), 0 < o["all"]["40"]["overlap"] < 1')" '(1, True)'
	assert_equal "$(line specontext 'o["all"]["100000"]["overlap"], o["all"]["100000"]["new"]')" '(None, None)'
	# 40 rows of all that there are: what is new is of them
	assert_equal "$(json want.json 'round(40 * (1 - o["retrieval"]["retrieving"]["overlap"]) / o["retrieval"]["retrieving"]["of_rows"], 12)')" \
		"$(line specontext 'round(o["all"]["40"]["new"], 12)')"
	# whoever always reads the first and the last rows has read most of them before
	assert_equal "$(line specontext-near "o['all']['40']['overlap'] > $(line specontext 'o["all"]["40"]["overlap"]')")" True
	assert_equal "$(grep -c '^| [a-z-]* | [0-9.]* ([0-9]* to [0-9]*) | [0-9.]* | - | - |$' found.md)" 6
	refused 2 '--methods specontext: by which retrieval head?' "$PYTHON" "$E/adjacent_overlap.py" -m "$DEMO" --chat none --runs more.jsonl \
		--methods specontext --table out.md "$F/one.jsonl"
	refused 2 '--methods snap: there is no such method' overlap --methods snap "$F/one.jsonl"
}

@test "the rows of the picture are as good as kv-diff --retrieve says, in each layer and KV head" {
	kv-index --pages --page 8 "$F/seen.kv" -o pages.kv
	kv-quantize1b --group 16 "$F/seen.kv" -o bits.kv
	kv-diff --json --retrieve 'quest budget=30 dense=0' pages.kv >quest.json
	kv-diff --json --retrieve 'fier budget=30 dense=0' bits.kv >fier.json
	local layer head query
	for layer in 0 3; do
		for head in 0 1; do
			for ((query = 0; query < $(wc -l <"$F/answer.ids"); query++)); do
				rows_read --layer $layer --head $head --query $query --budget 30 pages.kv bits.kv "$query.tsv"
			done
			"$PYTHON" - $layer $head ./*.tsv <<-'END'
				import json, sys
				for name, word in (("pages", "quest"), ("bits", "fier")):
				    recalls = []
				    for path in sys.argv[3:]:
				        rows = [line.split("\t") for line in open(path)]
				        rows = [row for row in rows if row[0] == name]
				        recalls.append(sum(int(row[4]) for row in rows) / len(rows))
				    head = json.load(open(word + ".json"))["layers"][int(sys.argv[1])]["heads"][int(sys.argv[2])]
				    want, got = head["recall"], sum(recalls) / len(recalls)
				    # sums in f32 there: a row of one query may change places with the next one
				    assert abs(want - got) < 1.01 / 24 / len(recalls), (name, sys.argv[1:3], want, got)
			END
		done
	done
	if "$PYTHON" -c 'import matplotlib' 2>/dev/null; then
		rows_read --layer 3 pages.kv bits.kv out.svg
		cp out.svg first.svg
		rows_read --layer 3 pages.kv bits.kv out.svg
		cmp first.svg out.svg
		rm out.svg
	fi
	refused 2 'seen.kv: it has neither pages nor keys in one bit' rows_read --layer 0 "$F/seen.kv" out.tsv
	refused 2 'pages.kv: --layer 9 of 4' rows_read --layer 9 pages.kv out.tsv
	refused 2 'pages.kv: --head 9 of 2' rows_read --layer 0 --head 9 pages.kv out.tsv
	refused 2 'pages.kv: --query 99 of' rows_read --layer 0 --query 99 pages.kv out.tsv
	refused 2 'all of them are read' rows_read --layer 0 --budget 5000 pages.kv out.tsv
	kv-index --pages "$F/full.kv" -o early.kv
	refused 5 'does not see all rows' rows_read --layer 0 early.kv out.tsv
	head -c 30000 pages.kv >cut.kv
	refused 3 'cut.kv: ' rows_read --layer 0 cut.kv out.tsv
}

@test "the distance of the logits is that of the snapshots, none when all tokens go on, and the hidden state's is kv-tsp-layer's" {
	distance --layers 0,2 --rates 0.2,1 --table out.tsv --table out.md "$F/one.jsonl"
	kv-prefill -q -m "$DEMO" --ids --select 'gemfilter layer=2 rate=0.2' -o gem.kv "$F/prompt.ids"
	kv-prefill -q -m "$DEMO" --ids --select 'tsp layer=2 rate=0.2' -o tsp.kv "$F/prompt.ids"
	kv-tsp-layer -q -m "$DEMO" --ids --json --max-layer 2 "$F/prompt.ids" >found.json
	"$PYTHON" - "$F/full.kv" <<-'END'
		import json, sys
		import kvsnapshot
		logits = {name: kvsnapshot.read(path).logits.tolist() for name, path in
		          (("full", sys.argv[1]), ("TSP", "tsp.kv"), ("GemFilter", "gem.kv"))}
		lines = {}
		for line in map(json.loads, open("runs.jsonl")):
		    lines[line["name"]] = line["all"]
		norm = lambda v: sum(x * x for x in v) ** 0.5
		for name in ("TSP", "GemFilter"):
		    want = norm([a - b for a, b in zip(logits[name], logits["full"])]) / norm(logits["full"])
		    assert abs(lines[name + " 0.2 2"]["2"] - want) < 1e-9 and want > 0, name
		    assert lines[name + " 1 0"]["0"] < 1e-5, name
		found = {row["layer"]: row["last"] for row in json.load(open("found.json"))["layers"]}
		assert lines["hidden 0.2 "] == {"0": found[0], "2": found[2]}
	END
	assert_equal "$(grep -c '^| [02] ' out.md)" 4
	assert_equal "$(wc -l <out.tsv)" 13
}

@test "sliding windows: scores are compared over the rows that there are" {
	window_model windows 64 sfsf --layers 4
	"$PYTHON" "$E/score_agreement.py" -m windows --chat none --runs runs.jsonl --methods random,knorm,h2o,tova,snapkv-8,snapkv-8-k1 --rates 0.2 \
	    "$F/one.jsonl" >table
	assert_equal "$(line snapkv-8-k1 'all(l["tau"] is not None for l in o["layers"]) and o["all"]["regret@0.2"] >= 0')" True
	"$PYTHON" "$E/retrieval_recall.py" -m windows --chat none --runs more.jsonl --methods quest-8,fier-16 --budgets 16 "$F/one.jsonl" >table
	assert_equal "$(grep -c '^| fier-16 ' table)" 1
}

@test "what is wrong is said with its place, and no table appears" {
	refused 2 '--methods snap: there is no such method; there are random, ' agreement --methods snap --table out.md "$F/one.jsonl"
	refused 2 '--method a: not NAME=PIPELINE' agreement --method a --table out.md "$F/one.jsonl"
	refused 2 '--method random=cat: there is a method random before' agreement --method random=cat --table out.md "$F/one.jsonl"
	refused 2 'out.txt: the name of a table ends in .md or .tsv' agreement --table out.txt "$F/one.jsonl"
	refused 2 "argument --rates: invalid rate value: '2'" agreement --rates 2 "$F/one.jsonl"
	refused 2 'argument --budgets: invalid budget value' retrieval --budgets 0 "$F/one.jsonl"
	refused 2 '--method a=quest: not NAME=RETRIEVE:PIPELINE' retrieval --method a=quest "$F/one.jsonl"
	refused 1 'one.jsonl: q-0: its pipelines ended with' agreement --method 'bad=full | kv-score --method snapkv --window 999' --table out.md "$F/one.jsonl"
	refused 1 'one.jsonl: q-0: its pipelines ended with' agreement --methods lookaheadkv --table out.md "$F/one.jsonl"
	assert_equal "$(cat runs.jsonl)" ''
	printf '{"task": "x", "other": 1}\n' >runs.jsonl
	refused 2 'runs.jsonl:1: not a line of this program' agreement --table out.md "$F/one.jsonl"
	printf 'my notes' >runs.jsonl
	refused 2 'runs.jsonl: its last line is not of this program' agreement --table out.md "$F/one.jsonl"
	assert_equal "$(cat runs.jsonl)" 'my notes'
	rm runs.jsonl
	echo '{"id": "a"' >broken.jsonl
	refused 2 'broken.jsonl:1: not JSON' agreement --table out.md broken.jsonl
	refused 2 'nowhere: ' "$PYTHON" "$E/score_agreement.py" -m nowhere --runs runs.jsonl "$F/one.jsonl"
	rm -f runs.jsonl
	refused 2 'one.jsonl: q-0: no layer retrieves: --dense-layers 4 of 4' retrieval --methods fier-16 --dense-layers 4 --table out.md "$F/one.jsonl"
	refused 2 '--groups 9: the model has 4 layers' agreement --methods random --groups 9 --table out.md "$F/one.jsonl"
}
