#!/usr/bin/env bats
# --report: one record for each program, whichever way it ends, and what is counted in it

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	PROMPT=$ROOT/examples/prompts/harbour.txt
}

# last EXPRESSION: of the last record, o, in run.jsonl
last() {
	tail -n 1 run.jsonl | json - "$1"
}

# costs SCHEDULE ...: the last record counts what the oracle does; MODEL names the folder
costs() {
	assert_equal "$(last '" ".join(str(n) for n in (o["flops"]["products"], o["flops"]["attention"],
		o["traffic"]["weights"], o["traffic"]["rows_read"], o["traffic"]["rows_written"]))')" \
	    "$("$PYTHON" "$ORACLE/work.py" "${MODEL:-$DEMO}/config.json" "$@")"
}

@test "every program appends a record with its command, status, time and peak memory" {
	local program
	export KV_REPORT=run.jsonl
	kv-prefill -m "$DEMO" --observe 16 -o full.kv "$PROMPT"
	kv-score --method snapkv -o scored.kv full.kv
	kv-evict --rate 0.1 -o small.kv scored.kv
	kv-decode -m "$DEMO" -n 2 small.kv
	kv-decode -m "$DEMO" -n 2 --ids small.kv | kv-observe -m "$DEMO" --ids-from - -o seen.kv full.kv
	kv-quantize --keys q8_0 -o q8.kv full.kv
	kv-merge -o two.kv full.kv small.kv
	kv-recompute -m "$DEMO" --first 4 -o again.kv two.kv
	kv-quantize1b -o bits.kv full.kv
	kv-index --pages -o pages.kv full.kv
	kv-diff full.kv small.kv
	kv-footprint full.kv
	kv-critical --full 2 <<<'a 1 2'
	kv-plan --prulong prompt=9
	head -c 900 "$PROMPT" | kv-tsp-layer -m "$DEMO"
	kv-info full.kv
	kv-check full.kv
	kv-convert -o full.safetensors full.kv
	kv-tokenize -m "$DEMO" --count "$PROMPT"
	kv-chat -m "$DEMO" --template chatml --user hello --text || true
	for program in "$ROOT"/tools/kv-*.c; do
		program=$(basename "$program" .c)
		grep -q "^{\"program\":\"$program\"" run.jsonl || fail "$program has no record"
	done
	run -0 "$PYTHON" -c '
import json
for line in open("run.jsonl"):
    o = json.loads(line)
    s = o["seconds"]
    assert o["version"] and o["command"][0] == o["program"] and o["start"] > 0, line
    assert o["status"] == 0 or o["program"] == "kv-chat", line
    for clock in "wall", "cpu":
        parts = sum(s[p][clock] for p in ("load", "compute", "write", "wait"))
        assert abs(parts - s[clock]) < 1e-4 and s[clock] > 0, line
    assert o["peak_host"] > 1 << 20, line'
}

@test "a record says how many rows and bytes of snapshots came in and went out" {
	kv-prefill -m "$DEMO" --observe 16 -o full.kv --report run.jsonl "$PROMPT"
	assert_equal "$(last 'o["out"]["bytes"], o["out"]["rows"], o["tokens"], o["tokens_run"]')" \
	    "($(stat -c %s full.kv), 7856, 982, 982)"
	kv-score --method snapkv full.kv | kv-evict --rate 0.1 --report run.jsonl >small.kv
	assert_equal "$(last 'o["in"]["rows"], o["out"]["rows"], o["out"]["bytes"]')" "(7856, 784, $(stat -c %s small.kv))"
	kv-check --report run.jsonl full.kv
	assert_equal "$(last 'o["in"]["bytes"], o["in"]["rows"]')" "($(stat -c %s full.kv), 7856)"
}

@test "time behind a slow writer is a wait, and neither load nor compute" {
	kv-prefill -m "$DEMO" -o full.kv "$PROMPT"
	{ sleep 0.5; cat full.kv; } | kv-score --method knorm --report run.jsonl -o x.kv
	# the lower bound follows from the pipe, not from the speed of the machine
	run -0 last 'o["seconds"]["wait"]["wall"] > 0.4 and o["seconds"]["wait"]["cpu"] < o["seconds"]["wait"]["wall"]'
	assert_output True
}

@test "a program that fails, or is killed, leaves a record, too" {
	run -1 kv-check --report run.jsonl nowhere.kv
	assert_equal "$(last 'o["status"]')" 1
	printf "no snapshot at all" >bad.kv
	run kv-evict --rate 0.5 --report run.jsonl bad.kv -o x.kv
	assert_equal "$(last 'o["status"]')" "$status"
	run -2 kv-prefill -m "$DEMO" --chunk 0 --report run.jsonl "$PROMPT"
	assert_equal "$(last 'o["status"]')" 2
	mkfifo never
	kv-check --report run.jsonl never & pid=$!
	exec 9>never
	while [ ! -e run.jsonl ]; do sleep 0.05; done
	sleep 0.2
	kill -TERM $pid
	wait $pid || true
	exec 9>&-
	assert_equal "$(last 'o["program"], o["signal"], "status" in o')" "('kv-check', 15, False)"
}

@test "a file that cannot take the record is refused before the work, and costs no snapshot" {
	run -1 kv-prefill -m "$DEMO" --report no/such/folder/x -o full.kv "$PROMPT"
	assert_output --partial 'kv-prefill: --report: no/such/folder/x: No such file'
	[ ! -e full.kv ]
	run -1 kv-prefill -m "$DEMO" --report /dev/full -o full.kv "$PROMPT"
	assert_output --partial '--report: /dev/full: No space left on device'
	kv-check full.kv
	run -1 kv-check -q --report /dev/full full.kv
	assert_output 'kv-check: --report: /dev/full: No space left on device'
	KV_REPORT=/dev/full run -1 kv-check -q full.kv
	assert_output 'kv-check: --report: /dev/full: No space left on device'
	run -2 kv-prefill -m "$DEMO" --report - -o x.kv "$PROMPT"
	assert_output --partial 'standard output is for data'
	run -2 kv-prefill -m "$DEMO" --report full.kv -o ./full.kv "$PROMPT"
	assert_output --partial 'name the same file'
	kv-check full.kv
}

@test "a snapshot is the same bytes with a record and without" {
	kv-prefill -m "$DEMO" --observe 16 -o a.kv "$PROMPT"
	kv-prefill -m "$DEMO" --observe 16 --report run.jsonl -o b.kv "$PROMPT"
	cmp a.kv b.kv
}

@test "operations and traffic of prefill, whole and in chunks, are those of an independent count" {
	kv-prefill -m "$DEMO" --report run.jsonl "$PROMPT" --device cpu >x.kv
	costs prefill 982 512
	kv-prefill -m "$DEMO" --chunk 100 --report run.jsonl --device cpu "$PROMPT" >x.kv
	costs prefill 982 100
}

@test "where later layers run on selected tokens, less is counted, as an independent count has it" {
	local kept scoring
	kv-prefill -m "$DEMO" --select 'tsp layer=1 rate=0.2' --device cpu --report run.jsonl -o x.kv "$PROMPT"
	kept=$(see x.kv 'len(s.layers[3].positions[0])')
	# what selects: 8 queries, softmax and mass; their own rows are among the others
	scoring=$("$PYTHON" -c 'H, E, n = 4, 16, 982
import json, sys
c = json.load(open(sys.argv[1] + "/config.json"))
H, W = c["num_attention_heads"], 8
E = c.get("head_dim") or c["hidden_size"] // H
print(4 * E * H * sum(n - W + 1 + i for i in range(W)))' "$DEMO")
	read -r products attention weights _ written < <("$PYTHON" "$ORACLE/work.py" "$DEMO/config.json" tsp 982 512 1 "$kept")
	assert_equal "$(last 'o["flops"]["products"], o["flops"]["attention"], o["traffic"]["weights"], o["traffic"]["rows_written"]')" \
	    "($products, $((attention + scoring)), $weights, $written)"
}

@test "a layer with a window counts the rows that are seen" {
	window_model wind 64 sf
	MODEL=wind
	kv-prefill -m wind --chunk 50 --dtype bf16 --device cpu --report run.jsonl "$PROMPT" -o x.kv
	assert_equal "$(last 'o["flops"]["attention"]')" \
	    "$("$PYTHON" "$ORACLE/work.py" wind/config.json prefill 982 50 | cut -d ' ' -f 2)"
	assert_equal "$(last 'o["traffic"]["rows_written"]')" \
	    "$("$PYTHON" "$ORACLE/work.py" wind/config.json prefill 982 50 | cut -d ' ' -f 5)"
}

@test "steps of kv-decode are counted one by one" {
	kv-prefill -m "$DEMO" -o full.kv "$PROMPT"
	kv-decode -m "$DEMO" --device cpu -n 6 --ignore-eos --report run.jsonl full.kv
	assert_equal "$(last 'o["steps"], o["tokens_run"], sum(o["first_token"]["flops"].values())')" '(5, 5, 0)'
	costs decode 982 5
}

@test "retrieval counts the index and the rows that it reads, as --stats has them" {
	kv-prefill -m "$DEMO" "$PROMPT" | kv-quantize1b -o bits.kv
	kv-decode -m "$DEMO" --device cpu -n 4 --ignore-eos --retrieve 'fier budget=64' --stats stats.json \
	    --report run.jsonl bits.kv
	run -0 "$PYTHON" -c '
import json
o = json.loads(open("run.jsonl").read())
c = json.load(open("'"$DEMO"'/config.json"))
L, H = c["num_hidden_layers"], c["num_attention_heads"]
G = c.get("num_key_value_heads", H)
E = c.get("head_dim") or c["hidden_size"] // H
dense, n, budget, group = 2, 982, 64, 32
index = keys = values = attention = retrieval = 0
for s in range(3):
    rows = n + s + 1
    whole, rest = rows // group, rows % group
    attention += dense * 4 * E * H * rows + (L - dense) * 4 * E * H * budget
    retrieval += (L - dense) * 2 * E * H * rows
    values += dense * G * rows * 2 * E * 2 + (L - dense) * G * (budget * 2 * E * 2 + rest * E * 2)
    index += (L - dense) * G * whole
assert o["flops"]["attention"] == attention, (o, attention)
assert o["flops"]["retrieval"] == retrieval, (o, retrieval)
assert o["traffic"]["rows_read"] == values, (o, values)
assert o["traffic"]["indexes"] % index == 0, (o, index)'
}

@test "report.py adds a pipeline up, without what it waited, and names a line that is no record" {
	cat >run.jsonl <<-'END'
	{"program":"kv-prefill","start":1,"status":0,"tokens_run":10,"seconds":{"wall":3,"cpu":5,"wait":{"wall":1,"cpu":0}},"flops":{"products":7e12,"attention":0},"traffic":{"weights":9e9},"peak_host":1048576}
	{"program":"kv-evict","start":1,"status":0,"seconds":{"wall":4,"cpu":1,"wait":{"wall":3.5,"cpu":0}},"peak_host":1048576}
	{"program":"kv-decode","start":1,"status":0,"seconds":{"wall":9,"cpu":1,"wait":{"wall":4,"cpu":0}},"first_token":{"wall":4.25,"wait":4,"flops":{},"traffic":{}},"peak_host":1048576}
	END
	run -0 "$PYTHON" "$ROOT/examples/report.py" --flops 1e12 --bandwidth 1e9 run.jsonl
	assert_line 'TTFT: 2750.000 ms, in theory 10000.0000 ms'
	assert_line 'eviction overhead: 500.000 ms, in theory 0.0000 ms'
	# scoring in kv-prefill, and what runs after the answer
	sed -i '1s/"peak_host"/"eviction":{"wall":0.25,"flops":{"products":7e11},"traffic":{}},"peak_host"/' run.jsonl
	echo '{"program":"kv-info","start":10,"status":0,"seconds":{"wall":4,"cpu":1,"wait":{"wall":3.5,"cpu":0}},"peak_host":1048576}' >>run.jsonl
	run -0 "$PYTHON" "$ROOT/examples/report.py" --flops 1e12 --bandwidth 1e9 run.jsonl
	assert_line 'TTFT: 2750.000 ms, in theory 10000.0000 ms'
	assert_line 'eviction overhead: 750.000 ms, in theory 1000.0000 ms'
	echo 'not json' >>run.jsonl
	run -1 "$PYTHON" "$ROOT/examples/report.py" run.jsonl
	assert_output --partial 'run.jsonl: line 5:'
	run -2 "$PYTHON" "$ROOT/examples/report.py" --flops 1e12 run.jsonl
}

# stage PROGRAM START SECONDS [KEYS]
stage() {
	echo "{\"program\":\"$1\",\"start\":$2,\"status\":0,\"seconds\":{\"wall\":$3,\"cpu\":1,\"wait\":{\"wall\":0,\"cpu\":0}},\"peak_host\":1${4:-}}"
}

@test "report.py counts drafts, and the prefill of a draft's model, as overhead of eviction" {
	local first=',"first_token":{"wall":0.5,"wait":0}'
	# LAQ: the draft runs on the cache of the only prefill
	{ stage kv-prefill 1 2; stage kv-evict 3.1 0.25; stage kv-decode 3 1 "$first"; stage kv-observe 4 0.5; stage kv-evict 4 0.25; stage kv-decode 5 3 "$first"; } >laq.jsonl
	run -0 "$PYTHON" "$ROOT/examples/report.py" laq.jsonl
	assert_line 'TTFT: 4500.000 ms'
	assert_line 'eviction overhead: 2000.000 ms'
	# SpecKV: another model's prefill and answer come first; stages of a pipe begin in any order
	{ stage kv-decode 1 1 "$first"; stage kv-prefill 1.1 0.75; stage kv-observe 3 0.5; stage kv-prefill 3.1 2; stage kv-decode 6 3 "$first"; } >speckv.jsonl
	run -0 "$PYTHON" "$ROOT/examples/report.py" speckv.jsonl
	assert_line 'TTFT: 4750.000 ms'
	assert_line 'eviction overhead: 2250.000 ms'
	# no answer, and a text in parts: both prefills are plain
	{ stage kv-prefill 1 2; stage kv-prefill 3 1; stage kv-evict 3 0.25; } >parts.jsonl
	run -0 "$PYTHON" "$ROOT/examples/report.py" parts.jsonl
	assert_line 'TTFT: 3250.000 ms'
	assert_line 'eviction overhead: 250.000 ms'
}

@test "scoring and eviction in kv-prefill are a part of its record, with the work of learned tokens" {
	kv-prefill -m "$DEMO" --device cpu --report run.jsonl -o full.kv "$PROMPT"
	assert_equal "$(last '"eviction" in o')" False
	kv-prefill -m "$DEMO" --device cpu --score snapkv --evict rate=0.2 --report run.jsonl -o small.kv "$PROMPT"
	assert_equal "$(last 'o["eviction"]["flops"]["products"], 0 < o["eviction"]["flops"]["attention"] < o["flops"]["attention"]')" '(0, True)'
	assert_equal "$(last '0 < o["eviction"]["wall"] < o["seconds"]["compute"]["wall"]')" True
	kv-prefill -m "$DEMO" --device cpu --score "lookahead='$DEMO/lookahead'" --evict rate=0.2 --report run.jsonl -o small.kv "$PROMPT"
	# those of the learned tokens among all, but for the adapter's and those of the language model head
	assert_equal "$(last '0.9 < o["flops"]["products"] * (o["tokens_run"] - 982) / o["tokens_run"] / o["eviction"]["flops"]["products"] < 1.1')" True
}
