#!/usr/bin/env bats
# bats file_tags=nosan
# experiments/leaderboard.*: kvpress's rows and metrics, its query-aware mode, the table, and kvpress itself where it is (TRAIN_PYTHON)

load helper

E=$ROOT/experiments

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
}

# rows: three of kvpress's rows
rows() {
	cat >rows.jsonl <<-'END'
		{"context": "The code of Oldham is 4711.\nThat is all.\n", "question": "What is the code of Oldham?", "answer_prefix": " The code of Oldham is", "answer": ["4711"], "task": "niah_single_1", "max_new_tokens": 128}
		{"context": "X1 is 7.\n", "question": "Which ones are 7?", "answer_prefix": "They are:", "answer": ["X1", "X2"], "task": "vt", "max_new_tokens": 30}
		{"context": "Ann lives in Bath.\n", "question": "Where does Ann live?", "answer_prefix": "Answer:", "answer": ["Bath", "in Bath"], "task": "qa_1", "max_new_tokens": 32}
	END
}

@test "rows of kvpress have their own lengths of answers, no line is added to a context, and a prefix keeps its blanks" {
	rows
	"$PYTHON" "$E/read_benchmark.py" -m "$DEMO" --chat none --task ruler rows.jsonl >task.jsonl
	run "$PYTHON" -c '
import json
rows, ours = ([json.loads(line) for line in open(name)] for name in ("rows.jsonl", "task.jsonl"))
for row, one in zip(rows, ours, strict=True):
    for name in ("context", "question", "answer_prefix", "task"):
        assert row[name] == one[name], name
    assert row["answer"] == one["answers"] and row["max_new_tokens"] == one["new_tokens"]
print(*(one["metric"] for one in ours), *(one["id"] for one in ours))'
	assert_output 'substring_joined substring_joined substring_any_joined niah_single_1-0001 vt-0002 qa_1-0003'
	sed -i '2s/"max_new_tokens": 30/"max_new_tokens": 0/' rows.jsonl
	run -2 "$PYTHON" "$E/read_benchmark.py" -m "$DEMO" --chat none rows.jsonl
	assert_output 'read_benchmark.py: rows.jsonl:2: max_new_tokens is not a whole number above 0'
	sed -i '2s/"max_new_tokens": 0/"max_new_tokens": 30/; 2s/"vt"/"sums"/' rows.jsonl
	run -2 "$PYTHON" "$E/read_benchmark.py" -m "$DEMO" --chat none rows.jsonl
	assert_output 'read_benchmark.py: rows.jsonl:2: no metric is known for sums: give one with --metric'
}

@test "made tasks come as rows of kvpress, and back" {
	for name in niah_single_1 vt; do
		"$PYTHON" "$E/make_task.py" $name -m "$DEMO" --chat none -n 2 --tokens 800 >$name.own
		"$PYTHON" "$E/make_task.py" $name -m "$DEMO" --chat none -n 2 --tokens 800 --kvpress >$name.rows
		"$PYTHON" "$E/read_benchmark.py" -m "$DEMO" --chat none $name.rows >$name.back
		"$PYTHON" -c '
import json, sys
own, rows, back = ([json.loads(line) for line in open(f"{sys.argv[1]}.{form}")] for form in ("own", "rows", "back"))
for a, b, c in zip(own, rows, back, strict=True):
    assert sorted(b) == ["answer", "answer_prefix", "context", "max_new_tokens", "question", "task"]
    for name in ("context", "question", "answer_prefix", "answers", "task", "tokens"):
        assert a[name] == c[name], name
    assert c["new_tokens"] == {"niah_single_1": 128, "vt": 30}[sys.argv[1]]' $name
	done
	run -2 "$PYTHON" "$E/make_task.py" passkey -m "$DEMO" --chat none -n 1 --tokens 300 --kvpress
	assert_output 'make_task.py: --kvpress: passkey is no task of RULER (--name)'
}

@test "control characters are removed before answers are looked for, and RULER's own metrics make them line ends" {
	run "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
from metrics import METRICS
for said in ("47\n11", "4711", "47\x0011 and X2", "\n 8 \n"):
    print(*(METRICS[name](said, ["4711", "x2"], {}) for name in ("substring", "substring_joined", "substring_any", "substring_any_joined")))' "$E"
	assert_output "0.0 0.5 0.0 1.0
0.5 0.5 1.0 1.0
0.5 1.0 1.0 1.0
0.0 0.0 0.0 0.0"
}

@test "question: aware has the question in what methods see, and the end of the turn and the answer's first words behind it" {
	local template=$PWD/turns.jinja
	echo '{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}' >"$template"
	rows
	"$PYTHON" "$E/read_benchmark.py" -m "$DEMO" --chat "$template" rows.jsonl >task.jsonl
	head -n 1 task.jsonl >one.jsonl
	run_part() { "$PYTHON" "$E/run_part.py" "$@" -m "$DEMO" --chat "$template" --task one.jsonl --part 0/1 --question aware; }
	"$PYTHON" "$E/run_part.py" keep -m "$DEMO" --chat "$template" --task one.jsonl --part 0/1 --question aware --shared shared --out kept --script "$ROOT/examples/methods/keydiff.sh" -m "$DEMO" -r 0.5
	run_part answer --kept kept >answers.jsonl
	printf '[{"role": "user", "content": "The code of Oldham is 4711.\\nThat is all.\\nWhat is the code of Oldham?"}]' >turns
	kv-chat -q -m "$DEMO" --template "$template" --open turns >context.ids
	assert_equal "$(kv-info --json kept/00000.kv | json - 'o["tokens"]')" "$(wc -l <context.ids)"
	printf '[end][assistant] The code of Oldham is' >rest
	kv-prefill -q -m "$DEMO" --ids -o whole.kv context.ids
	kv-score --method keydiff whole.kv | kv-evict --rate 0.5 -o small.kv
	assert_equal "$(logical kept/00000.kv)" "$(logical small.kv)"
	"$PYTHON" - "$E" one.jsonl "$DEMO" "$template" <<-'END' >rest.ids
		import json, sys
		sys.path.insert(0, sys.argv[1])
		from task_prompts import Tokenizer, find_programs, question_in_context
		find_programs()
		record = question_in_context(json.loads(open(sys.argv[2]).read()))
		print(*Tokenizer(sys.argv[3], sys.argv[4]).prompt_ids(record, "question"), sep="\n")
	END
	kv-tokenize -q -m "$DEMO" --no-template rest | cmp - rest.ids
	kv-prefill -q -m "$DEMO" --ids -r small.kv -o asked.kv rest.ids
	assert_equal "$(json answers.jsonl 'o["answer"]')" "$(kv-decode -q -m "$DEMO" -n 128 asked.kv)"
}

# graded METHOD RATE SCORE ...: a graded file, a score for each question
graded() {
	local n=0 score
	for score in "${@:3}"; do
		printf '{"id": "q-%d", "task": "%s", "metric": "substring_joined", "method": "%s", "rate": "%s", "score": %s, "answer": "a%s", "bytes": %s}\n' \
		    $n "$([ $n -lt 3 ] && echo one || echo two)" "$1" "$2" "$score" "$score" "$([ "$2" = all ] && echo 100 || echo 50)"
		n=$((n + 1))
	done >"$1-$2.jsonl"
}

@test "the table has the mean over tasks, an interval, what is held, and kvpress beside it" {
	graded full all 1 1 1 0.5
	graded knorm 0.5 0 1 0 0.5
	graded snapkv 0.125 0 0 1 1
	for i in 0 1 2 3; do
		printf '{"id": "q-%d", "task": "%s", "context": "c", "question": "q", "answer_prefix": "", "answers": ["a1"], "metric": "substring_joined", "new_tokens": 9}\n' $i \
		    "$([ $i -lt 3 ] && echo one || echo two)"
	done >task.jsonl
	for i in 0 1 2 3; do
		printf '{"id": "q-%d", "method": "knorm", "rate": "0.5", "answer": "%s", "bytes": 100}\n' $i "$([ $i = 0 ] && echo ' a1' || echo no)"
	done >theirs.jsonl
	"$PYTHON" "$E/leaderboard.py" --kvpress theirs.jsonl --task task.jsonl --table out.md --table out.tsv full-all.jsonl knorm-0.5.jsonl snapkv-0.125.jsonl
	# knorm: (1/3 + 1/2) / 2, full: (1 + 1/2) / 2; kvpress: (1/3 + 0) / 2
	assert_equal "$(awk -F '|' '$2 ~ /^ 0/ { gsub(" ", ""); print $2, $3, $4, $5, $7 }' out.md | head -4)" "0 full kvpipe 4 100.0
0.5 knorm kvpipe 4 50.0
0.5 knorm kvpress 4 100.0
0.875 snapkv kvpipe 4 50.0"
	assert_equal "$(awk -F '\t' '$4 == "all" { print $1, $2, $3, $5, $6, $9 }' out.tsv)" "kvpipe full 0 4 75 100
kvpipe knorm 0.5 4 41.6667 50
kvpress knorm 0.5 4 16.6667 100
kvpipe snapkv 0.875 4 66.6667 50"
	run grep '^| knorm | 0.5' out.md
	assert_output '| knorm | 0.5 | 4 | 0 | 2 | 1 | 1 |'
	run -2 "$PYTHON" "$E/leaderboard.py" --kvpress theirs.jsonl --table out.md full-all.jsonl
	assert_output --partial '--kvpress needs --task'
	run -2 "$PYTHON" "$E/leaderboard.py" --table new.md full-all.jsonl full-all.jsonl
	assert_output 'leaderboard.py: full at all: two answers to q-0'
	sed -i 's/q-1/q-9/' theirs.jsonl
	run -2 "$PYTHON" "$E/leaderboard.py" --kvpress theirs.jsonl --task task.jsonl --table new.md full-all.jsonl
	assert_output 'leaderboard.py: theirs.jsonl:2: there is no question q-9'
	[ ! -e new.md ]
}

@test "the configuration has a pipeline for each method, and each gives a snapshot" {
	: "${EXPERIMENTS_PYTHON:=$PYTHON}"
	missing=$(TRAIN_PYTHON=$EXPERIMENTS_PYTHON cannot_import yaml)
	[ -z "$missing" ] || skip "$EXPERIMENTS_PYTHON: $missing"
	printf 'The access code of Oldham is L047. %s\n' "$(seq -s ' ' 300)" >prompt
	"$EXPERIMENTS_PYTHON" -c '
import shlex, sys, yaml
for name in sys.argv[2:]:
    for method in yaml.safe_load(open(f"{sys.argv[1]}/{name}.yaml"))["methods"]:
        if "keep" in method:
            print(method["name"], shlex.quote(method["prefill"]), shlex.quote(method["keep"]))' "$E" leaderboard leaderboard_aware >methods
	[ "$(wc -l <methods)" -ge 15 ]
	while read -r line; do
		eval "set -- $line"
		DECODE="" PREFILL=$2 KEEP=$3 KVPIPE_METHODS=$ROOT/examples/methods sh "$E/inline.sh" -m "$DEMO" -r 0.5 -o out.kv prompt >/dev/null
		kv-check out.kv
		assert_equal "$1 $(kv-info --json out.kv | json - '0.45 < o["share_kept"] < 0.55')" "$1 True"
	done <methods
}

@test "token ids and answers are kvpress's, where it is" {
	: "${TRAIN_PYTHON:=python3}"
	missing=$(cannot_import 'kvpress, torch, transformers')
	[ -z "$missing" ] || skip "$TRAIN_PYTHON: $missing"
	"$PYTHON" "$E/make_task.py" niah_single_1 -m "$DEMO" --chat none -n 2 --tokens 300 --kvpress >rows.jsonl
	"$PYTHON" "$E/read_benchmark.py" -m "$DEMO" --chat none rows.jsonl >task.jsonl
	"$TRAIN_PYTHON" "$E/kvpress_answers.py" -m "$DEMO" --press full knorm snapkv --ratio 0.5 -o theirs.jsonl task.jsonl 2>err || { cat err; false; }
	cp theirs.jsonl first.jsonl
	"$TRAIN_PYTHON" "$E/kvpress_answers.py" -m "$DEMO" --press full knorm snapkv --ratio 0.5 -o theirs.jsonl task.jsonl 2>err
	cmp first.jsonl theirs.jsonl
	printf '{"id": "niah_si' >>theirs.jsonl         # as a kill leaves it
	"$TRAIN_PYTHON" "$E/kvpress_answers.py" -m "$DEMO" --press full knorm snapkv --ratio 0.5 -o theirs.jsonl task.jsonl 2>err
	cmp first.jsonl theirs.jsonl
	for method in knorm snapkv; do
		export METHOD=$method DECODE='' PREFILL='--dtype f32 --observe 64' KV_PRODUCTS=f32
		# the shell of inline.sh reads it
		# shellcheck disable=SC2016
		export KEEP='kv-score --method $METHOD | kv-evict --rate "$rate"'
		"$PYTHON" "$E/run_part.py" keep -m "$DEMO" --chat none --task task.jsonl --part 0/1 --question after --shared shared --out $method --script "$E/inline.sh" -m "$DEMO" -r 0.5
		"$PYTHON" "$E/run_part.py" answer -m "$DEMO" --chat none --task task.jsonl --part 0/1 --question after --kept $method >$method.jsonl
		"$PYTHON" -c '
import json, sys
ours = [json.loads(line) for line in open(f"{sys.argv[1]}.jsonl")]
theirs = {(r["id"], r["method"]): r for r in map(json.loads, open("theirs.jsonl"))}
for row in ours:
    one = theirs[row["id"], sys.argv[1]]
    assert one["answer"].strip() == row["answer"].strip(), (one, row)
    assert abs(one["bytes"] - row["bytes"]) < 1, (one, row)' $method
	done
}
