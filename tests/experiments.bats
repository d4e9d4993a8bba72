#!/usr/bin/env bats
# bats file_tags=slow,nosan
# experiments/: the configuration, the jobs, the table, and the workflow as a whole, on this machine and under Slurm

load helper

E=$ROOT/experiments

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export PYTHONPATH=$E
}

# config [LINE ...]: small.yaml, with more lines, or the same keys with other values
config() {
	cat >small.yaml <<-END
		models:
		  demo: {folder: $DEMO, conf: $DEMO/kvpipe-methods.conf}
		chat: none
		tasks:
		  recall: {make: multihop, options: {hops: 1, chains: 1}, count: 3}
		lengths: [300]
		rates: [0.3]
		methods: [full, snapkv, fier]
	END
	printf '%s\n' "$@" >>small.yaml
}

# questions: three, of the demo model's kind
questions() {
	for i in 0 1 2; do
		printf '{"id": "q-%d", "task": "codes", "context": "The access code of Elmford is L04%d. %s\\n", "question": "Question: what is the access code of Elmford?", "answer_prefix": "Answer:", "answers": ["L04%d"], "metric": "substring", "new_tokens": 12, "length": 300, "tokens": 40, "depth": 0, "seed": 1}\n' \
		    $i $i "$(printf 'The sea was calm, and the people of Oakwick went to the market. %.0s' 1 2 3 4 5 6)" $i
	done >task.jsonl
}

# part STAGE OPTION ...: a job over all questions
part() {
	"$PYTHON" "$E/run_part.py" "$1" -m "$DEMO" --chat none --task task.jsonl --part 0/1 "${@:2}"
}

# field NAME FILE: the values in JSON lines
field() {
	"$PYTHON" -c 'import json, sys
for line in open(sys.argv[2]): print(json.loads(line)[sys.argv[1]])' "$@"
}

# flops FILE ...: the operations in records, a sum for each file
flops() {
	"$PYTHON" -c 'import json, sys
for path in sys.argv[1:]: print(sum(sum(json.loads(line).get("flops", {}).values()) for line in open(path)))' "$@"
}

# need_snakemake: finds it beside EXPERIMENTS_PYTHON, or on the PATH; skips without
need_snakemake() {
	[ -z "${EXPERIMENTS_PYTHON:-}" ] || PATH=$(dirname "$EXPERIMENTS_PYTHON"):$PATH
	command -v snakemake >/dev/null || skip "there is no snakemake: EXPERIMENTS_PYTHON names a Python with experiments/requirements.txt"
}

@test "a mistake in a configuration is named with its place" {
	mistake() {
		run "$PYTHON" - "$1" <<-'END'
			import json, sys
			from sweep import Sweep, SweepError
			config = {"models": {"m": {"folder": "f"}}, "tasks": {"t": {"make": "passkey"}}, "lengths": [100],
			          "methods": ["full", "snapkv"]}
			config.update(json.loads(sys.argv[1]))
			try:
			    list(Sweep(config).cells())
			except SweepError as error:
			    sys.exit(str(error))
		END
		assert_equal "$status" "$([ -n "$2" ] && echo 1 || echo 0)"
		assert_output "$2"
	}
	mistake '{}' ''
	mistake '{"methods": []}' 'the configuration has no methods (--configfile names its file)'
	mistake '{"rate": [0.1]}' 'the configuration: rate is none of budgets, chat, lengths, methods, models, nll, parts, products, question, rates, reference, results, seeds, tasks, threads'
	mistake '{"methods": ["snapkw"]}' "methods: snapkw: there is no $(realpath "$ROOT")/examples/methods/snapkw.sh"
	mistake '{"methods": ["common"]}' "methods: common: there is no $(realpath "$ROOT")/examples/methods/common.sh"
	mistake '{"methods": ["full", "full"]}' 'methods: two have the same name'
	mistake '{"methods": [{"name": "a/b", "keep": "cat"}]}' "methods: a/b: a name has letters, digits, dots, - and _, not 'a/b'"
	mistake '{"methods": [{"name": "a", "keep": "cat", "script": "snapkv"}]}' 'methods: a: a script, or prefill, keep and decode'
	mistake '{"rates": [10]}' 'rates: 10 is no rate between 0 and 1'
	mistake '{"methods": [{"name": "a", "keep": "cat", "rates": ["0.1; rm"]}]}' 'methods: a: rates: 0.1; rm is no rate between 0 and 1'
	mistake '{"budgets": [0]}' 'budgets: 0 is no whole number of rows above 0'
	mistake '{"methods": [{"name": "a", "keep": "cat", "budgets": "64"}]}' 'methods: a: budgets: 64 is no whole number of rows above 0'
	mistake '{"budgets": [64, 32, 64]}' '64rows is there twice'
	mistake '{"models": {"m": {}}}' 'models: m has no folder'
	mistake '{"tasks": {"t": {}}}' 'tasks: t needs make, the name of a task, or file'
	mistake '{"products": "int8"}' 'products: int8 is neither f32 nor bf16'
	mistake '{"products": "bf16"}' ''
	mistake '{"nll": 1}' 'nll: 1 is neither true nor false'
	mistake '{"tasks": {"t": {"make": "continuation"}}}' 'tasks: t asks how likely its answer is: it needs nll: true'
	mistake '{"tasks": {"t": {"file": "x", "metric": "none"}}}' 'tasks: t asks how likely its answer is: it needs nll: true'
	mistake '{"tasks": {"t": {"file": "x", "metric": "none"}}, "nll": true}' ''
	mistake '{"lengths": []}' 'tasks: t has no lengths'
	mistake '{"question": "before"}' 'question: before is none of inside, after and aware'
	mistake '{"question": "after", "methods": ["oracle"]}' \
	    'methods: oracle needs the answer to a question that it would not have seen (question: after)'
	mistake '{"reference": "laq"}' 'reference: laq is none of the methods'
	mistake '{"parts": 0}' 'parts: 0 is no whole number above 0'
	mistake '{"results": "a\nb"}' "results: 'a\\nb' is no name without braces and line breaks"
	mistake '{"models": {"m": {"folder": "{x}"}}}' "models: m: folder: '{x}' is no name without braces and line breaks"
}

@test "the jobs of a method give the answers of its script, and what it kept and read" {
	questions
	for method in full snapkv fier h2o-decode q4; do
		part keep --shared shared --out "$method" --script "$ROOT/examples/methods/$method.sh" -m "$DEMO" -r 0.3
		part answer --kept "$method" --stop . --field method=$method >"$method.jsonl"
		for i in 0 1 2; do
			"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none task.jsonl q-$i >prompt.ids
			sh "$ROOT/examples/methods/$method.sh" -m "$DEMO" -r 0.3 -n 12 -S . -i prompt.ids >line
			# shellcheck disable=SC2034 # used by name
			read -r _ kept footprint memory peak read said <line
			assert_equal "$(sed -n $((i + 1))p <(field answer "$method.jsonl") | xargs)" "$said"
			for name in kept footprint memory peak read; do
				assert_equal "$(sed -n $((i + 1))p <(field $name "$method.jsonl") | xargs printf %.2f)" "${!name}"
			done
		done
	done
	# one prefill of each kind and question: plain, 32 queries, mass
	assert_equal "$(find shared -type f ! -name '*.lock' ! -name '*.stages' | wc -l)" 9
	# prefill, score and evict of each question, and what FIER shared with the full cache
	assert_equal "$(json - 'o["program"]' <<<"$(head -n 1 full/00000.kv.stages.jsonl)")" kv-prefill
	cmp full/00001.kv.stages.jsonl <(head -n 1 fier/00001.kv.stages.jsonl)
	# q4_0: 18 of 64 bytes
	assert_equal "$(field bytes q4.jsonl | xargs) $(field kept q4.jsonl | xargs) $(field read q4.jsonl | xargs)" \
		'28.125 28.125 28.125 100.0 100.0 100.0 28.125 28.125 28.125'
	for method in snapkv h2o-decode; do
		# programs of a pipe end in any order
	assert_equal "$(field program $method/00002.kv.stages.jsonl | sort | xargs)" 'kv-evict kv-prefill kv-score'
	done
	assert_equal "$(field keep_flops full.jsonl | sort -n | head -n 1)" "$(flops full/0000?.kv.stages.jsonl | sort -n | head -n 1)"
	diff <(field keep_flops snapkv.jsonl) <(flops snapkv/0000?.kv.stages.jsonl)
}

@test "a script reports what was shared as if it had run alone, found or not, nested or not, and once" {
	questions
	"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none task.jsonl q-0 >prompt.ids
	script() {
		rm -f records
		KV_REPORT=records sh "$ROOT/examples/methods/$1.sh" -m "$DEMO" -i -n 8 -o out.kv "${@:2}" prompt.ids
	}
	mkdir cold warm
	script full -c warm
	for method in oracle kvzip speckv laq snapkv; do
		script $method
		"$PYTHON" "$ROOT/examples/report.py" records | awk '{ print $1, $5, $6 }' | grep ^kv- | sort >alone
		for cache in cold warm warm; do
			script $method -c $cache
			"$PYTHON" "$ROOT/examples/report.py" records | awk '{ print $1, $5, $6 }' | grep ^kv- | sort | diff alone -
		done
	done
	# without anyone who asks, for those who will; and a program that fails
	mkdir silent failing
	sh "$ROOT/examples/methods/full.sh" -m "$DEMO" -i -c silent -o out.kv prompt.ids
	script full -c silent
	assert_equal "$(field program records)" kv-prefill
	echo 99999999 >prompt.ids
	run -3 script full -c failing
	assert_equal "$(field status records)" 3
	assert_equal "$(find failing -type f ! -name '*.lock')" ''
	# the same record twice is one run
	printf '%s\n' 99 >prompt.ids
	script full
	cat records records >twice
	diff <("$PYTHON" "$ROOT/examples/report.py" records) <("$PYTHON" "$ROOT/examples/report.py" twice)
}

@test "a method that the configuration states is that of the script" {
	questions
	part keep --shared shared --out script --script "$ROOT/examples/methods/snapkv.sh" -m "$DEMO" -r 0.3 -s window=16
	# shellcheck disable=SC2016 # the job's variable
	PREFILL='--observe 16' KEEP='kv-score --method snapkv --kernel 7 --pool max | kv-evict --rate "$rate"' DECODE='--min-p 0' \
	    part keep --shared shared --out inline --script "$E/inline.sh" -m "$DEMO" -C "$DEMO/kvpipe-methods.conf" -r 0.3
	for i in 0 1 2; do
		cmp script/0000$i.kv inline/0000$i.kv
		assert_equal "$(xargs <inline/0000$i.kv.options)" '--min-p 0'
	done
	PREFILL='' KEEP='kv-score --method knorm | false' DECODE='' run part keep --shared shared --out broken --script "$E/inline.sh" -m "$DEMO" -r 0.3
	assert_equal "$status" 2
	assert_output --partial 'task.jsonl: q-0: sh ended with 1'
}

@test "rates and budgets are runs, a method's own instead of the others', and 0.1 is all where there are none" {
	runs() {
		"$PYTHON" - "$1" <<-'END'
			import json, sys
			from sweep import Sweep
			sweep = Sweep({"models": {"m": {"folder": "f"}}, "tasks": {"t": {"make": "passkey"}}, "lengths": [100], **json.loads(sys.argv[1])})
			print(*sweep.runs())
			print(*(" ".join(m.words(rate)) for m in sweep.methods.values() for rate in m.rates), sep="; ")
		END
	}
	run -0 runs '{"methods": ["full", "snapkv"]}'
	assert_output $'full/all snapkv/0.1\n-r 1; -r 0.1'
	run -0 runs '{"methods": ["snapkv", {"name": "a", "keep": "cat", "rates": 0.5}], "budgets": [64, 128], "rates": [0.2]}'
	assert_output $'snapkv/0.2 snapkv/64rows snapkv/128rows a/0.5\n-r 0.2; -b 64; -b 128; -r 0.5'
	run -0 runs '{"methods": ["full", {"name": "a", "keep": "cat", "budgets": 8}], "budgets": 64}'
	assert_output $'full/all a/8rows\n-r 1; -b 8'
}

@test "a method of the configuration sees a rate and a budget, whichever was asked for" {
	questions
	"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none task.jsonl q-0 >prompt.ids
	n=$(wc -l <prompt.ids)
	# shellcheck disable=SC2016 # the job's variables
	export PREFILL='--score "recent sink=1" --evict "budget=$((budget + 1))"' KEEP='cat; echo "$rate $budget" >"$work/../seen"' \
	    DECODE='--retrieve "fier budget=$(share_of "$(tokens)")" --stop "a b $budget"'
	inline() {
		TMPDIR=$PWD KVPIPE_METHODS=$ROOT/examples/methods sh "$E/inline.sh" -i -m "$DEMO" -o out.kv "$@" prompt.ids
	}
	for how in "-b 16:16" "-r 0.25:$((n / 4))" "-b 100000:$n"; do
		# shellcheck disable=SC2086 # words
		inline ${how%:*}
		rows=${how#*:}
		read -r rate budget <seen
		assert_equal "$budget" "$rows"
		assert_equal "$(awk -v rate="$rate" -v n="$n" 'BEGIN { print int(rate * n + 1e-9) }')" "$rows"
		assert_equal "$(tr '\n' , <out.kv.options)" "--retrieve,fier budget=$rows,--stop,a b $rows,"
		assert_equal "$(positions out.kv 0 0 | wc -w)" "$((rows < n ? rows + 1 : n))"
	done
}

@test "with the question after it, a method sees the context only" {
	questions
	for method in snapkv fier; do
		part keep --question after --shared shared --out $method --script "$ROOT/examples/methods/$method.sh" -m "$DEMO" -r 0.3
		part answer --question after --kept $method --stop . >$method.jsonl
		"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none --part context task.jsonl q-1 >context.ids
		assert_equal "$(kv-info --json $method/00001.kv | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["tokens"])')" "$(wc -l <context.ids)"
		"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none --part question task.jsonl q-1 |
		    kv-prefill -q -m "$DEMO" --resume $method/00001.kv --ids - >asked.kv
		mapfile -t words <$method/00001.kv.options
		assert_equal "$(sed -n 2p <(field answer $method.jsonl))" "$(kv-decode -q -m "$DEMO" -n 12 --stop . "${words[@]}" asked.kv)"
	done
}

# right SNAPSHOT TEXT WORD ...: nll and top1 of the text behind the snapshot
right() {
	printf %s "$2" >right.txt
	kv-decode -q -m "$DEMO" --json --force right.txt "${@:3}" "$1" | json - '(o["nll"], o["top1"], o["tokens"])'
}

# forced LINE FILE: the same of an answer
forced() {
	sed -n "$1p" "$2" | json - '(o["nll"], o["top1"], o["nll_tokens"])'
}

@test "the right answer is forced behind what the method kept, as it reads and evicts" {
	declare -A mass=([h2o-decode]=--mass)
	questions
	for method in snapkv fier h2o-decode; do
		part keep --shared shared --out $method --script "$ROOT/examples/methods/$method.sh" -m "$DEMO" -r 0.3
		part answer --kept $method --stop . >plain.jsonl
		part answer --nll --kept $method --stop . >$method.jsonl
		diff <(field answer plain.jsonl) <(field answer $method.jsonl)
		diff <(field footprint plain.jsonl) <(field footprint $method.jsonl)
		for i in 0 1 2; do
			mapfile -t words <$method/0000$i.kv.options
			assert_equal "$(forced $((i + 1)) $method.jsonl)" "$(right $method/0000$i.kv " L04$i" "${words[@]}")"
		done
		part keep --question after --shared shared --out $method.after --script "$ROOT/examples/methods/$method.sh" -m "$DEMO" -r 0.3
		part answer --nll --question after --kept $method.after >$method.after.jsonl
		"$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat none --part question task.jsonl q-1 |
		    kv-prefill -q -m "$DEMO" --resume $method.after/00001.kv --ids ${mass[$method]:-} - >asked.kv
		mapfile -t words <$method.after/00001.kv.options
		assert_equal "$(forced 2 $method.after.jsonl)" "$(right asked.kv ' L041' "${words[@]}")"
	done
}

@test "a question with the metric none is only forced, and has no score" {
	questions
	sed 's/"substring"/"none"/; s/"question": "[^"]*"/"question": ""/; s/"answer_prefix": "[^"]*"/"answer_prefix": ""/; s/"L04/"The L04/' task.jsonl >none.jsonl
	mv none.jsonl task.jsonl
	part keep --shared shared --out kept --script "$ROOT/examples/methods/fier.sh" -m "$DEMO" -r 0.3
	run part answer --kept kept
	assert_equal "$status" 2
	assert_output 'run_part.py: task.jsonl: q-0: the metric none asks how likely the answer is: it needs --nll (nll: true)'
	part answer --nll --kept kept >answers.jsonl
	mapfile -t words <kept/00002.kv.options
	assert_equal "$(forced 3 answers.jsonl)" "$(right kept/00002.kv 'The L042' "${words[@]}")"
	less "$(field read answers.jsonl | head -n 1)" 99
	python3 "$E/grade.py" task.jsonl answers.jsonl >graded.jsonl
	assert_equal "$(field score graded.jsonl | xargs)" 'None None None'
	run -2 "$PYTHON" "$E/intervals.py" graded.jsonl
	assert_output 'intervals.py: q-0 has no score: its metric is none'
	sed 's/"nll"/"answer": "The L040", "nll"/' answers.jsonl >said.jsonl
	run -2 python3 "$E/grade.py" task.jsonl said.jsonl
	assert_output 'grade.py: said.jsonl:1: q-0: the metric none: no answer is right or wrong; kv-decode --force says how likely the right one is'
	grep -v q-1 answers.jsonl >short.jsonl
	run -2 python3 "$E/grade.py" task.jsonl short.jsonl
	assert_output "grade.py: short.jsonl: there is no answer to q-1"
}

@test "an answer follows its prompt with a space where two words would touch" {
	printf '%s' "{%- for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}" >./turns.jinja
	"$PYTHON" - "$DEMO" <<-'END'
		import sys
		from forced_answer import answer_ids
		from task_prompts import Tokenizer
		def check(chat, want, answer="L041", part="whole", **fields):
		    record = {"context": "The sea was calm.\n", "question": "Where?", "answer_prefix": "Answer:", "answers": [answer, "other"],
		              "metric": "substring", **fields}
		    tokenizer = Tokenizer(sys.argv[1], chat)
		    got = answer_ids(tokenizer, record, part)
		    assert got == tokenizer.text_ids(want), (chat, fields, tokenizer.text(got), want)
		for chat in "none", "./turns.jinja":
		    for part in "whole", "question":
		        check(chat, " L041", part=part)
		        check(chat, "L041", part=part, answer_prefix="Answer: (")
		        check(chat, " L041", " L041", part=part)
		        check(chat, "L041", part=part, answer_prefix="Answer:\n")
		        check(chat, "\u7b54", "\u7b54", part=part)
		        check(chat, "ing calm", "ing calm", part=part, metric="none", answer_prefix="be")
		    check(chat, " L041" if chat == "none" else "L041", answer_prefix="")
		check("none", "L041", question="", answer_prefix="", context="The sea was calm.\n")
	END
}

@test "the table has means, intervals and pairs as counted by hand" {
	mkdir -p graded
	"$PYTHON" - <<-'END'
		import json
		for method, rate, scores in (("full", "all", (1, 1, 1, 0)), ("a", "0.1", (1, 0, 0, 0)), ("b", "0.1", (0.5, 1, 1, 0))):
		    with open(f"graded/{method}.jsonl", "w") as file:
		        for i, score in enumerate(scores):
		            print(json.dumps({"id": f"q{i % 2}", "task": "t" if i < 2 else "u", "length": 10, "seed": 1, "model": "m",
		                "method": method, "rate": rate, "score": score, "kept": 10.0 * i, "footprint": 1, "memory": 2, "peak": 3, "read": 4,
		                "keep_seconds": 1, "answer_seconds": 2, "build": "0123"}), file=file)
		for name in ("full", "a", "b"):
		    lines = open(f"graded/{name}.jsonl").readlines()
		    for part, task in enumerate("tu"):
		        open(f"graded/{name}-{task}.jsonl", "w").writelines(lines[2 * part:2 * part + 2])
		import sweep_table
		sweep_table.write([f"graded/{n}-{t}.jsonl" for t in "tu" for n in ("full", "a", "b")], "full", "table.tsv", "table.md")
	END
	run -0 cut -f 1-10 table.tsv
	assert_line $'m\t10\tt\tfull\tall\t2\t100\t34.24\t100\t5'
	assert_line $'m\t10\tall\ta\t0.1\t4\t25\t4.559\t69.94\t15'
	assert_line --partial $'m\t10\tall\tb\t0.1\t4\t62.5\t'
	run -0 cat table.md
	assert_line '| m | 10 | a | 0.1 | 4 | -0.500 | -1.000 to +0.000 | 0 | 2 | 0.5 |'
	assert_line --regexp '^\| m \| 10 \| b \| 0.1 \| 4 \| -0.125 \| .* \| 0 \| 1 \| 1 \|$'
	assert_line 'Programs: 0123.'
}

# 0.05 of 1000 tokens are 50 rows, and so are 50 rows; a window keeps 63. Who keeps all and reads a tenth keeps what was asked for.
@test "a method that keeps more than was asked for is marked in the table, and one that reads some of all rows is not" {
	"$PYTHON" - <<-'END'
		import json
		kept = {("full", "all"): (100, 100), ("window", "0.05"): (6.3, 6.3), ("window", "50rows"): (6.3, 6.3), ("exact", "0.05"): (4.9, 4.9),
		        ("exact", "50rows"): (5.0, 5.0), ("reads", "0.05"): (100, 9), ("whole", "0.05"): (100, 100),
		        ("quantised", "0.05"): (6.3, 2)}
		for (method, rate), (rows, read) in kept.items():
		    with open(f"{method}-{rate}.jsonl", "w") as file:
		        for i in range(2):
		            print(json.dumps({"id": f"q{i}", "task": "t", "score": 1, "length": 10, "tokens": 900 + 200 * i, "seed": 1, "model": "m",
		                "method": method, "rate": rate, "kept": rows, "footprint": 1, "memory": 2, "peak": 3, "read": read,
		                **({"bytes": 2} if method == "quantised" else {}),
		                "keep_seconds": 1, "answer_seconds": 2, "build": "0123"}), file=file)
		import sweep_table
		sweep_table.write([f"{m}-{r}.jsonl" for m, r in kept], "full", "table.tsv", "table.md")
		rows = sweep_table.read_table("table.tsv")
		assert [round(row["asked"], 2) for row in rows] == [100, 5, 5.05, 5, 5.05, 5, 5, 5], rows
	END
	run grep -o '| [a-z]* | [0-9a-z.]* | 2 | .* [0-9.]* \\\*' table.md
	assert_output --regexp $'^\\| window \\| 0.05 .*\n\\| window \\| 50rows .*\n\\| whole \\| 0.05 .*\n\\| quantised \\| 0.05 [^\n]*$'
	grep -qFx '\* more rows than were asked for: some are kept in any case.' table.md
	sed '/window\|whole\|quantised/d' table.tsv >less.tsv
	"$PYTHON" -c 'import sweep_table
assert not any(sweep_table.exceeds(row) for row in sweep_table.read_table("less.tsv"))'
}

@test "likelihoods stand beside scores, and alone where there are none; less is better" {
	"$PYTHON" - <<-'END'
		import json
		likely = {"full": (1.0, 2.0, 3.0), "a": (1.5, 2.5, 2.0)}
		for method, nll in likely.items():
		    with open(f"{method}.jsonl", "w") as file:
		        for i, value in enumerate(nll):
		            print(json.dumps({"id": f"q{i}", "task": "t" if i < 2 else "text", "metric": "substring" if i < 2 else "none",
		                "score": i if i < 2 else None, "nll": value, "top1": i / 2, "length": 10, "seed": 1, "model": "m", "method": method,
		                "rate": "all" if method == "full" else "64rows", "kept": 10, "footprint": 1, "memory": 2, "peak": 3, "read": 4,
		                "keep_flops": 1000 * (i + 1) if method == "full" else 500, "keep_seconds": 1, "answer_seconds": 2, "build": "0123"}), file=file)
		import sweep_table
		sweep_table.write(["full.jsonl", "a.jsonl"], "full", "table.tsv", "table.md")
	END
	column() {
		"$PYTHON" - "$@" <<-'END'
			import csv, sys
			for row in csv.DictReader(open("table.tsv"), delimiter="\t"):
			    print(row["task"], row["method"], *(row[name] or "none" for name in sys.argv[1:]))
		END
	}
	run -0 column score nll top1 n
	assert_output $'t full 50 1.5 25 2\nt a 50 2 25 2\ntext full none 3 100 1\ntext a none 2 100 1\nall full 50 2 50 3\nall a 50 2 50 3'
	# 500 of 1000, of 2000 and of 3000
	run -0 column compute
	assert_output $'t full 100\nt a 37.5\ntext full 100\ntext a 16.67\nall full 100\nall a 30.56'
	run -0 column nll_low nll_high
	assert_line 't full 1 2'
	assert_line 't a 1.5 2.5'
	run -0 cat table.md
	assert_line --regexp '^\| m \| 10 \| text \| a \| 64rows \| 1 \| - \| - \| 2.000 \| 2.000-2.000 \| 100.0 \|'
	assert_line '| m | 10 | a | 64rows | 2 | +0.000 | +0.000 to +0.000 | 0 | 0 | 1 |'
	assert_line --regexp '^\| m \| 10 \| a \| 64rows \| 3 \| \+0.000 \| -1.000 to \+0.500 \| 1 \| 2 \| 1 \|$'
}

# table LINE ...: table.tsv; a line is task method rate score kept footprint peak read, _ where there is nothing
table() {
	printf '%s\n' "$@" | "$PYTHON" -c 'import sys, sweep_table
names = "task", "method", "rate", "score", "kept", "footprint", "peak", "read"
print(*sweep_table.COLUMNS, sep="\t")
for line in sys.stdin:
    row = {"model": "m", "length": 10, "n": 4, "memory": 100, **dict(zip(names, line.split()))}
    row.update(low=row["score"], high=row["score"], nll=2, nll_low=1, nll_high=3)
    print(*(row.get(name, "_") for name in sweep_table.COLUMNS), sep="\t")' | sed 's/\b_\b//g' >table.tsv
}

@test "the critical footprint is on the line between two rates, and says where it is not reached, for each task and method" {
	table 't full all 80 100 100 100 100' 't a 0.1 30 10 12 100 10' 't a 0.2 80 20 40 100 20' 't b 0.1 10 10 10 100 10' 't b 8rows 20 30 30 100 30' \
	    't c 0.1 72 10 90 100 10' 'text full all _ 100 100 100 100' 'text a 0.1 _ 10 10 100 10' 'zero full all 0 100 100 100 100' 'zero a 0.1 0 10 10 100 10'
	python3 "$E/critical.py" table.tsv critical.tsv critical.md
	# 90 % of 80 is 72: 42 / 50 of the way from 10 to 20, and from 12 to 40
	run -0 cut -f 3- critical.tsv
	assert_output $'task\tmethod\tkept\tfootprint\tpeak\tread\nt\ta\t18.4\t35.52\t100\t18.4\nt\tb\t>30\t>30\t>100\t>30\nt\tc\t<10\t<90\t<100\t<10'
	run -0 cat critical.md
	assert_line '| m | 10 | t | a | 18.4 | 35.52 | 100 | 18.4 |'
	assert_line 'The full cache has no score above 0: m, 10, text; m, 10, zero.'
	rm critical.*
	table 't a 0.1 30 10 12 100 10'
	run -2 python3 "$E/critical.py" table.tsv critical.tsv critical.md
	assert_output 'critical.py: table.tsv: there is no method full to compare with'
	table 't full all 80 100 100 100 100' 't a 0.1 nan 10 12 100 10'
	run -2 python3 "$E/critical.py" table.tsv critical.tsv critical.md
	assert_output 'critical.py: table.tsv:3: score: nan is not a number'
	table 't full all 80 100 100 100 100' 't a 0.1 20 10 _ 100 10'
	run -2 python3 "$E/critical.py" table.tsv critical.tsv critical.md
	assert_output 'critical.py: table.tsv:3: footprint: nothing is not a number'
	sed 's/footprint/feetprint/' table.tsv >other.tsv
	run -2 python3 "$E/critical.py" other.tsv critical.tsv critical.md
	assert_output 'critical.py: other.tsv:1: there is no column footprint'
	run -2 python3 "$E/critical.py" nowhere.tsv critical.tsv critical.md
	assert_output 'critical.py: nowhere.tsv: No such file or directory'
	[ ! -e critical.tsv ] && [ ! -e critical.md ]
}

@test "the picture has a line at the full cache's score and one at 90 % of it, in a panel for each task" {
	[ -n "${EXPERIMENTS_PYTHON:-}" ] || skip 'EXPERIMENTS_PYTHON names no Python with matplotlib'
	table 't full all 80 100 100 100 100' 't a 0.1 30 10 12 100 10' 't a 0.2 80 20 40 100 20' 'text full all _ 100 100 100 100' 'text a 0.1 _ 10 10 100 10' \
	    'all full all 80 100 100 100 100' 'all a 0.1 30 10 12 100 10'
	"$EXPERIMENTS_PYTHON" - <<-'END'
		import sys
		import plot_scores
		def lines(words):
		    figures = []
		    plot_scores.save = lambda figure, path: figures.append(figure)
		    sys.argv = ["plot_scores.py", *words, "table.tsv", "a.svg"]
		    plot_scores.main()
		    axes = figures[0].axes
		    return [(a.get_ylabel(), [line.get_ydata()[0] for line in a.lines if line.get_linestyle() == "--"]) for a in axes[::3]]
		assert lines([]) == [("m, 10 tokens, all\nscore, %", [80, 72])], lines([])
		assert lines(["--tasks"]) == [("m, 10 tokens, t\nscore, %", [80, 72]), ("m, 10 tokens, text\nnll, nats per token", [2]),
		    ("m, 10 tokens, all\nscore, %", [80, 72])], lines(["--tasks"])
		assert lines(["--nll"]) == [("m, 10 tokens, all\nnll, nats per token", [2])]
	END
	"$EXPERIMENTS_PYTHON" - <<-'END'
		from plot_scores import pareto
		points = [(5, 30), (10, 80), (3, 20), (10, 70), (20, 80), (30, 90), (4, 10)]
		assert pareto(points) == [(3, 20), (5, 30), (10, 80), (30, 90)]
		assert pareto(points, less=True) == [(3, 20), (4, 10)]
	END
	sed 's/\t2\t1\t3\t/\t\t\t\t/' table.tsv >other.tsv
	run -2 "$EXPERIMENTS_PYTHON" "$E/plot_scores.py" --tasks other.tsv a.svg
	assert_output 'plot_scores.py: other.tsv: m, 10, text: there is no score'
	run -2 "$EXPERIMENTS_PYTHON" "$E/plot_scores.py" table.tsv a.gif
	assert_output 'plot_scores.py: a.gif: the name of a picture ends in .svg, .png, .pdf'
	[ ! -e a.svg ] && [ ! -e a.gif ]
}

@test "limits of the picture follow the figures, what does not differ has no panel, and a mark is open where more is kept" {
	[ -n "${EXPERIMENTS_PYTHON:-}" ] || skip 'EXPERIMENTS_PYTHON names no Python with matplotlib'
	table 't full all 80 100 100 100 100' 't a 0.1 30 12 98 97 12' 't a 0.2 60 20 99 98 20' 't b 0.1 40 10 98.5 97.5 10'
	sed -i '1!s/$/10/; 2s/10$/100/; 4s/10$/20/' table.tsv
	"$EXPERIMENTS_PYTHON" - <<-'END'
		import sys
		import plot_scores
		figures = []
		plot_scores.save = lambda figure, path: figures.append(figure)
		sys.argv = ["plot_scores.py", "table.tsv", "a.svg"]
		plot_scores.main()
		figure, = figures
		assert [a.get_xlabel() for a in figure.axes] == [plot_scores.LABELS[name] for name in ("kept", "read")]
		for axes in figure.axes:
		    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
		    assert 5 < left < 10 and 20 < right < 25, (left, right)
		    assert 20 < low < 30 and 80 < high < 90, (low, high)
		    points = [list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines
		              if line.get_markerfacecolor() == "white"]
		    assert points == [[(12, 30)]], points
		figure.canvas.draw()
		whole = figure.bbox
		texts = [t for axes in figure.axes for t in (axes.xaxis.label, axes.yaxis.label)] + figure.legends[0].get_texts()
		assert figure.legends[0].get_texts()[-1].get_text() == "more rows than asked for"
		for text in texts:
		    box = text.get_window_extent()
		    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= whole.x1 and box.y1 <= whole.y1, text
	END
}

@test "a workflow that is killed goes on, and ends with the table of one that is not" {
	need_snakemake
	config 'nll: true' 'products: f32'
	snakemake -q -c2 -s "$E/Snakefile" --configfile small.yaml 2>log || { cat log; false; }
	cut -f 1-19 results/table.tsv >whole.tsv
	assert_equal "$(wc -l <whole.tsv)" 4
	assert_equal "$(sed -n 2p whole.tsv | cut -f 15)" 100
	[ -n "$(sed -n 3p whole.tsv | cut -f 16)" ]
	[ -s results/score.svg ] && [ -s results/score.png ]
	assert_equal "$(tail -n 1 results/critical.md)" 'The full cache has no score above 0: demo, 300, recall.'
	assert_equal "$(find results/shared results/kept -type f 2>/dev/null | wc -l)" 0
	mv results first
	setsid snakemake -q -c1 -s "$E/Snakefile" --configfile small.yaml 2>log &
	until [ "$(find results/answers -name '*.jsonl' -size +0 2>/dev/null | wc -l)" -gt 1 ]; do
		sleep 0.1
	done
	kill -KILL -- -$!
	wait $! || true
	[ ! -e results/table.tsv ]
	answered=$(find results/answers -name '*.jsonl' -printf '%T@ %p\n' | sort -n | head -n 1 | cut -d ' ' -f 2)
	made=$(stat -c %Y.%i "$answered")
	snakemake -q --unlock -c1 -s "$E/Snakefile" --configfile small.yaml
	snakemake -q -c2 -s "$E/Snakefile" --configfile small.yaml 2>log || { cat log; false; }
	diff whole.tsv <(cut -f 1-19 results/table.tsv)
	assert_equal "$(stat -c %Y.%i "$answered")" "$made"
}

@test "a workflow that is interrupted goes on with the same command, in folders of any name, with a method in Python and a model with an override" {
	need_snakemake
	mkdir "it's my work"
	cd "it's my work"
	cp -r "$DEMO" 'my model'
	"$PYTHON" -c 'import json
config = json.load(open("my model/config.json"))
json.dump({**config, "internal_version": "7b"}, open("my model/config.json", "w"))'
	printf 'allow-config=internal_version\n' >'my model/my.conf'
	config 'parts: 1' 'results: my "results"' 'models: {demo: {folder: my model, conf: my model/my.conf}}' \
	    "methods: [full, {name: mine, prefill: --observe 16, keep: 'python3 \"$ROOT/examples/python/value_aware.py\" | kv-evict --rate \"\$rate\"'}]"
	unset PYTHONPATH
	setsid env --default-signal=INT snakemake -q -c1 -s "$E/Snakefile" --configfile small.yaml 2>log &
	until [ "$(find 'my "results"/kept' -name '*.kv' 2>/dev/null | wc -l)" -gt 0 ]; do
		kill -0 $! || { cat log; false; }
		sleep 0.1
	done
	kill -INT -- -$!
	wait $! || true
	[ ! -e 'my "results"/table.tsv' ]
	snakemake -q -c2 -s "$E/Snakefile" --configfile small.yaml 2>log || { cat log; false; }
	run -0 cut -f 4,5,6 'my "results"/table.tsv'
	assert_output $'method\trate\tn\nfull\tall\t3\nmine\t0.3\t3'
}

@test "the workflow runs under Slurm, with the same table" {
	need_snakemake
	snakemake --help | grep -q slurm-no-account || skip 'snakemake-executor-plugin-slurm is not installed'
	sh "$ROOT/tests/slurm.sh" true 2>why || skip "$(tail -n 1 why)"
	config 'parts: 1'
	snakemake -q -c2 -s "$E/Snakefile" --configfile small.yaml 2>log || { cat log; false; }
	mv results here
	sh "$ROOT/tests/slurm.sh" snakemake --executor slurm -j 4 --slurm-no-account --slurm-status-command squeue \
	    --slurm-init-seconds-before-status-checks 2 --default-resources slurm_partition=main mem_mb=300 runtime=10 --latency-wait 5 \
	    -s "$E/Snakefile" --configfile small.yaml >log 2>&1 || { cat log; false; }
	diff <(cut -f 1-19 here/table.tsv) <(cut -f 1-19 results/table.tsv)
}
