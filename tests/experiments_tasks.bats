#!/usr/bin/env bats
# bats file_tags=nosan
# experiments/: generated tasks, benchmarks that are read, metrics and intervals

load helper

E=$ROOT/experiments
TASKS='niah_single_1 niah_single_2 niah_single_3 niah_multikey_1 niah_multikey_2 niah_multikey_3 niah_multivalue niah_multiquery
	vt cwe fwe qa passkey kv_recall multihop'
NONE=(-m "$DEMO" --chat none)

# task NAME OPTION ...: three questions of 1200 tokens, without a chat template
task() {
	local name=$1 more=()
	[[ $name != niah_multikey_[23] && $name != [cf]we && $name != qa && $name != kv_recall ]] && more=(--haystack "$PWD/text")
	"$PYTHON" "$E/make_task.py" "$name" "${NONE[@]}" -n 3 --tokens 1200 "${more[@]}" "${@:2}"
}

# a text, and what task makes of each task without an option: the file $MADE/NAME
setup_file() {
	load helper
	export MADE=$BATS_FILE_TMPDIR
	cd "$MADE" || return
	for i in $(seq 300); do
		printf 'Sentence %d speaks of copies (and of nothing else). It is as plain as the one before it!\n' "$i"
	done >text
	for name in $TASKS continuation; do
		task "$name" >"$name" || return
	done
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	cp "$MADE/text" .
}

# over FILE EXPRESSION ...: the expressions hold of each record `r` of the file.
over() {
	"$PYTHON" -c '
import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    for expression in sys.argv[2:]:
        if not eval(expression):
            sys.exit("{}: not {}: {}".format(r["id"], expression, {k: v for k, v in r.items() if k != "context"}))' "$@"
}

# refused TEXT COMMAND ...: ends with 2 and one line that has the text, and prints nothing.
refused() {
	run --separate-stderr "${@:2}"
	assert_equal "$status" 2
	assert_equal "$output" ''
	[[ $stderr == *"$1"* ]] || fail "$stderr"
	assert_equal "${#stderr_lines[@]}" 1
}

bench() {
	"$PYTHON" "$E/read_benchmark.py" "${NONE[@]}" "$@"
}

@test "the same seed gives the same bytes, more questions begin with the same ones, and another seed gives others" {
	local name
	for name in $TASKS continuation; do
		in_sample 4 || continue
		task "$name" >again
		cmp "$MADE/$name" again
		task "$name" -n 2 >fewer
		head -n 2 again | cmp - fewer
		task "$name" --seed 2 >other
		over other 'r["seed"] == 2'
		run ! grep -qF "$(json <(head -n 1 other) 'json.dumps(o["answers"])')" again
	done
}

@test "a prompt has the tokens that its record says, not more than were asked for, and hardly less" {
	local name least
	for name in $TASKS; do
		case $name in
		# one more UUID, pair or passage would be too many
		niah_multikey_[23] | kv_recall | qa) least=1051 ;;
		*) least=1170 ;;
		esac
		over "$MADE/$name" "$least <= r['tokens'] <= r['length'] == 1200" 'r["task"] == r["id"][:-5]' 'r["new_tokens"] > 8'
		head -n 1 "$MADE/$name" >a
		json a 'o["context"] + o["question"] + "\n" + o["answer_prefix"]' | head -c -1 >prompt
		assert_equal "$(kv-tokenize -m "$DEMO" --plain --count prompt)" "$(json a 'o["tokens"]')"
	done
}

@test "answers stand in the context as often as the task says, and neither in the question nor in distractors" {
	local name holds
	for name in $TASKS; do
		case $name in
		cwe) holds='all(r["context"].split("Some words")[2].count(". %s " % x) + r["context"].endswith(". %s\n\n" % x) == 6 for x in r["answers"])' ;;
		fwe) holds='all(r["context"].count(x) >= 3 for x in r["answers"])' ;;
		vt) holds='all(r["context"].count("VAR %s = " % x) == 1 for x in r["answers"])' ;;
		passkey) holds='all(r["context"].count(x) == 2 for x in r["answers"])' ;;
		# the fact, and what begins with the answer
		*) holds='all(r["context"].count(x) == 1 for x in r["answers"])' ;;
		esac
		over "$MADE/$name" "$holds" 'not any(x in r["question"] + r["answer_prefix"] for x in r["answers"])' 'len(set(r["answers"])) == len(r["answers"])'
	done
}

@test "what is asked for stands at the depth, and questions take turns through the depths" {
	local name
	for name in niah_single_1 niah_single_2 niah_multikey_1 niah_multikey_2 passkey kv_recall multihop qa; do
		task "$name" --tokens 1500 --depth 0.1 0.5 0.9 >a
		assert_equal "$(while read -r line; do json - 'o["depth"]' <<<"$line"; done <a | xargs)" '0.1 0.5 0.9'
		over a 'abs(r["context"].index(r["answers"][0]) / len(r["context"]) - r["depth"]) < 0.13'
	done
	refused 'unrecognized arguments: --depth' bash -c "$(declare -f task); $(declare -p NONE); E='$E'; task cwe --depth 0.5 2>&1 >&3 | tail -n 1 >&2; exit 2" 3>&1
}

@test "a continuation has exactly the text's tokens, behind each other and from nowhere twice, and the answer's when it is forced" {
	"$PYTHON" -c '
for i in range(260):
    print("Der Baum Nr. %d ist größer \N{DECIDUOUS TREE}, 木は大きい (%d m); and it   stands\tthere." % (i, i * 7))' >text
	task continuation -n 4 --tokens 600 --answer-tokens 20 >a
	over a 'r["tokens"] == r["length"] == 600' 'r["new_tokens"] == 20' 'r["question"] == r["answer_prefix"] == ""' 'r["metric"] == "none"'
	kv-tokenize -m "$DEMO" --plain --no-template text >text.ids
	for i in 0 1 2 3; do
		"$PYTHON" "$E/prompt_ids.py" "${NONE[@]}" a continuation-000$i | tail -n +2 >"$i.ids"
		json <(sed -n $((i + 1))p a) 'o["answers"][0]' | head -c -1 >"$i.answer"
	done
	"$PYTHON" "$E/prompt_ids.py" "${NONE[@]}" a continuation-0000 | kv-prefill -q -m "$DEMO" --ids -o 0.kv -
	kv-decode -m "$DEMO" --json --force 0.answer 0.kv >forced
	kv-tokenize -m "$DEMO" --plain --no-template 0.answer | diff - <(json forced '"\n".join(str(e["id"]) for e in o["each"])')
	"$PYTHON" -c '
import subprocess
def ids(name):
    return open(name).read().split()
def find(part):
    return [i for i in range(len(text) - len(part) + 1) if text[i:i + len(part)] == part]
text, used = ids("text.ids"), set()
for i in range(4):
    prompt = ids("%d.ids" % i)
    answer = subprocess.run(["kv-tokenize", "-m", "'"$DEMO"'", "--plain", "--no-template", "%d.answer" % i],
                            stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert len(prompt) == 599 and len(answer) == 20, (len(prompt), len(answer))
    [at] = find(prompt + answer)
    place = set(range(at, at + 619))
    assert not used & place
    used |= place'
	"$PYTHON" "$E/read_benchmark.py" "${NONE[@]}" a | cmp - <("$PYTHON" -c '
import json
for line in open("a"):
    r = json.loads(line)
    del r["haystack"]
    print(json.dumps(r, ensure_ascii=False))')
}

@test "a text has so many passages, and no more; what repeats itself has none, and what is forced is not graded" {
	local most
	count() { kv-tokenize -m "$DEMO" --plain --no-template --count text; }
	most=$(($(count) / (1199 + 64 + 64)))
	refused "text@" task continuation -n $((most + 1))
	[[ $stderr == *"-n $((most + 1)): text@"*" has $(count) tokens, in which $most passages fit: each takes 1199, the 64 that follow "* ]]
	task continuation -n "$most" >a
	assert_equal "$(wc -l <a)" "$most"
	refused 'in which 0 passages fit' task continuation -n 1 --haystack <(echo A few words.)
	refused '--haystack noise: it repeats itself' task continuation --haystack noise
	refused '--new-tokens: the answer of a continuation has --answer-tokens' task continuation --new-tokens 9
	refused 'with the answer' task continuation -n 1 --tokens "$(json "$DEMO/config.json" 'o["max_position_embeddings"]')" --haystack <(cat text text text text)
	json <(head -n 1 a) 'json.dumps({"id": o["id"], "answer": o["answers"][0]})' >answers
	head -n 1 a >one
	refused 'answers:1: continuation-0000: the metric none: ' "$PYTHON" "$E/grade.py" one answers
	# the template of a chat takes tokens of the prompt
	echo '{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}' >turns.jinja
	"$PYTHON" "$E/make_task.py" continuation -m "$DEMO" --chat "$PWD/turns.jinja" -n 1 --tokens 300 --haystack text >a
	over a '290 <= r["tokens"] <= 300'
	refused 'the chat template alone takes as many' "$PYTHON" "$E/make_task.py" continuation -m "$DEMO" --chat "$PWD/turns.jinja" -n 1 --tokens 9 --haystack text
}

@test "frequent words are as frequent as Zipf's law has them" {
	task fwe --alpha 1.5 --coded-words 12 >a
	"$PYTHON" -c '
import collections, json
for line in open("a"):
    r = json.loads(line)
    words = r["context"].split("\n\n")[1].split()
    counts = collections.Counter(words)
    ranked = [counts.pop(w) for w in ["..."] + r["answers"]] + sorted(counts.values(), reverse=True)
    zeta = sum(k ** -1.5 for k in range(1, 10 ** 6)) + 2 / 10 ** 3
    fits = [s for s in range(100, 2000) if [int(s * k ** -1.5 / zeta) for k in range(1, 13)] == ranked]
    assert fits, ranked'
}

@test "facts over several hops lead to the answer and to no other" {
	local hops
	for hops in 1 2 3 4; do
		task multihop --hops "$hops" >a
		"$PYTHON" -c '
import json, re, sys
pattern = r"(?:The river )?([A-Z][a-z]+(?: [A-Z][a-z]+)?) (?:works for|has its office in|lies on the river|flows through) ([A-Z][a-z]+(?: [A-Z][a-z]+)?)\."
for line in open("a"):
    r = json.loads(line)
    facts = dict(re.findall(pattern, r["context"]))
    assert len(facts) == 4 * int(sys.argv[1]), facts
    at = re.search("[A-Z][a-z]+ [A-Z][a-z]+(?= work)", r["question"]).group()
    for _ in range(int(sys.argv[1])):
        at = facts[at]
    assert [at] == r["answers"], (at, r["answers"])' "$hops"
	done
}

@test "variables are given values that lead to the answers, whatever the number of chains" {
	task vt --chains 3 --hops 2 >a
	"$PYTHON" -c '
import json, re
for line in open("a"):
    r = json.loads(line)
    values = {}
    for name, value in re.findall(r"VAR ([A-Z]{5}) = (?:VAR )?(\w+)\.", r["context"]):
        values[name] = values[value] if value in values else value
    asked = re.search(r"value (\d+)", r["question"]).group(1)
    assert len(values) == 9 and {n for n, v in values.items() if v == asked} == set(r["answers"])'
}

@test "no word of the lists stands in another one" {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import task_words as w
for names in (w.WORDS, w.TOWNS, w.COMPANIES, w.COUNTIES, w.RIVERS, w.PEOPLE, w.PAIRS[::97]):
    assert len(names) == len(set(names))
    text = "\n".join(names)
    assert all(text.count(name) == 1 for name in names), [n for n in names if text.count(n) > 1]' "$E"
}

@test "questions and passages come from a file in the format of SQuAD" {
	"$PYTHON" -c '
import json
data = [{"paragraphs": [{"context": f"Article {a}, passage {p}. The tower of town {a}-{p} is {100 + 10 * a + p} feet high, and it is old.",
    "qas": [{"question": f"How high is the tower of town {a}-{p}?", "answers": [{"text": f"{100 + 10 * a + p} feet"}] * 2, "is_impossible": False},
            {"question": "Why?", "answers": [], "is_impossible": True}]} for p in range(9)]} for a in range(4)]
json.dump({"data": data}, open("squad.json", "w"))'
	task qa --passages squad.json --tokens 900 >a
	over a 'len(r["answers"]) == 1' 'r["context"].count(r["answers"][0]) == 1' '"Why" not in r["question"]' 'r["tokens"] > 840' \
	    'all(r["context"].count("Article %s," % r["question"].split("town ")[1][0]) >= 9 for _ in "1")'
	refused 'there is text for' task qa --passages squad.json --tokens 4000
	echo '{"data": [{"paragraphs": 1}]}' >bad.json
	refused 'bad.json: not in the format of SQuAD' task qa --passages bad.json
	refused 'there is no question' task qa --passages <(echo '{"data": []}')
}

@test "a task that is longer than the model's positions, too short, or without a text is refused" {
	local positions
	positions=$(json "$DEMO/config.json" 'o["max_position_embeddings"]')
	refused "has $positions positions" task passkey --tokens $((positions + 1))
	refused "with the answer" task passkey --tokens "$positions" --new-tokens 50
	refused 'are the least that this task takes' task niah_multikey_1 --tokens 40
	: >empty
	refused 'empty: there is no text' task niah_single_2 --haystack empty
	refused 'nowhere: No such file' task niah_single_2 --haystack nowhere
	printf 'a\377' >latin
	refused 'latin: not UTF-8 at byte 2' task niah_single_2 --haystack latin
	refused '1 to 4 are possible' task multihop --hops 5
	refused 'is it built' env PATH=/nowhere O=/nowhere "$PYTHON" "$E/make_task.py" passkey "${NONE[@]}" --tokens 500
}

@test "a question is asked in the chat template, whole or in two parts that together are the whole" {
	local template=$BATS_TEST_TMPDIR/turns.jinja
	echo '{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}' >"$template"
	"$PYTHON" "$E/make_task.py" passkey -m "$DEMO" --chat "$template" -n 1 --tokens 300 >a
	ids() { "$PYTHON" "$E/prompt_ids.py" -m "$DEMO" --chat "$template" a passkey-0000 "$@"; }
	ids >whole
	assert_equal "$(wc -l <whole)" "$(json a 'o["tokens"]')"
	kv-tokenize -m "$DEMO" -d whole >text_of
	json a '"[user]" + o["context"] + o["question"] + "[end][assistant]" + o["answer_prefix"]' | head -c -1 | cmp - <(tail -c +1 text_of | sed 's/^<s>//')
	{ ids --part context; ids --part question; } | kv-tokenize -m "$DEMO" -d | cmp - text_of
	"$PYTHON" "$E/make_task.py" passkey -m "$DEMO" --chat "$template" -n 1 --tokens 300 --no-answer-prefix >a
	assert_equal "$(ids | kv-tokenize -m "$DEMO" -d | tail -c 11)" '[assistant]'
	"$PYTHON" "$E/make_task.py" passkey "${NONE[@]}" -n 1 --tokens 300 >a
	"$PYTHON" "$E/prompt_ids.py" "${NONE[@]}" a passkey-0000 >whole
	json a 'o["context"] + o["question"] + "\n" + o["answer_prefix"]' | head -c -1 | kv-tokenize -m "$DEMO" --plain | cmp - whole
	refused 'there is no question x' "$PYTHON" "$E/prompt_ids.py" "${NONE[@]}" a x
	refused '--chat none takes none' "$PYTHON" "$E/make_task.py" passkey -m "$DEMO" --tokens 300
}

@test "fields of LongBench, RULER and plain files are read, with their metrics and lengths of answers" {
	cat >lb.jsonl <<-'END'
		{"input": "Who?", "context": "It was {input}.", "answers": ["he", "she"], "length": 3, "dataset": "hotpotqa", "language": "en", "all_classes": null, "_id": "00ff"}
		{"input": "Type:", "context": "Q: a\nType: b", "answers": ["b"], "length": 5, "dataset": "trec_e", "all_classes": ["b", "c"], "_id": "00fe"}
	END
	bench lb.jsonl >a
	assert_equal "$(json <(head -n 1 a) '[o[k] for k in ("id", "task", "metric", "new_tokens", "length", "answers")]')" \
	    "['00ff', 'hotpotqa', 'f1', 32, 3, ['he', 'she']]"
	over a '"{context}" not in r["context"]' 'r["tokens"] > 5'
	assert_equal "$(json <(head -n 1 a) '"It was {input}." in o["context"] and "Who?" in o["question"]')" True
	assert_equal "$(json <(tail -n 1 a) '[o[k] for k in ("metric", "first_line", "classes", "new_tokens")]')" "['classification', True, ['b', 'c'], 64]"
	printf 'Say: {input}\nText: {context}\n\nSay it: ' >template
	bench --template template --metric exact --new-tokens 7 lb.jsonl >a
	assert_equal "$(json <(head -n 1 a) '[o[k] for k in ("context", "question", "metric", "new_tokens")]')" \
	    "['Say: Who?\\nText: It was {input}.\\n\\n', 'Say it: ', 'exact', 7]"

	mkdir niah_single_1
	echo '{"index": 4, "input": "Text.\nWhat is it?", "outputs": ["1", "2"], "length": 99, "answer_prefix": " It is "}' >niah_single_1/validation.jsonl
	bench niah_single_1/validation.jsonl >a
	assert_equal "$(json a '[o[k] for k in ("id", "context", "question", "answer_prefix", "metric", "new_tokens", "length")]')" \
	    "['niah_single_1-0004', 'Text.\\n', 'What is it?', 'It is', 'substring', 128, 99]"
	bench --task qa_1 niah_single_1/validation.jsonl >a
	assert_equal "$(json a '[o["metric"], o["new_tokens"]]')" "['substring_any', 32]"

	printf '%s\n' '{"prompt": "a\nb", "answer": "c"}' '' '{"context": "a", "question": "b", "outputs": ["c"], "id": "x/y"}' >plain.jsonl
	bench --metric f1 plain.jsonl >a
	assert_equal "$(json <(tail -n 1 a) '[o[k] for k in ("id", "source_id", "context", "question")]')" "['plain-line0003', 'x/y', 'a\\n\\n', 'b']"
	# what make_task.py writes comes out as it was
	task passkey | sed 's/, "haystack": "[^"]*"//' >own
	bench own | cmp - own
}

@test "lines that are broken are refused by number, and nothing is written" {
	local good='{"prompt": "a", "answers": ["b"], "metric": "f1"}' line
	while IFS='|' read -r what line; do
		printf '%s\n%s\n' "$good" "$line" >bad
		refused "bad:2: $what" bench bad
	done <<-'END'
		not JSON|{"prompt": "a", "answers": ["b"]
		not JSON|{"prompt": NaN, "answers": ["b"], "metric": "f1"}
		not a JSON object|["a"]
		half of a surrogate pair|{"prompt": "\ud800", "answers": ["b"], "metric": "f1"}
		there are no answers|{"prompt": "a", "metric": "f1"}
		the list of answers is empty|{"prompt": "a", "answers": [], "metric": "f1"}
		an answer is empty|{"prompt": "a", "answers": ["b", " "], "metric": "f1"}
		answers are neither|{"prompt": "a", "answers": [1], "metric": "f1"}
		prompt is not a text|{"prompt": 1, "answers": ["b"], "metric": "f1"}
		there is neither a prompt nor a context|{"answers": ["b"], "metric": "f1"}
		there is a context, but|{"context": "a", "answers": ["b"], "metric": "f1"}
		there is no metric what|{"prompt": "a", "answers": ["b"], "metric": "what"}
		no metric is known for|{"prompt": "a", "answers": ["b"]}
		the metric classification needs classes|{"prompt": "a", "answers": ["b"], "metric": "classification"}
		the metric retrieval needs answers like|{"prompt": "a", "answers": ["b"], "metric": "retrieval"}
		new_tokens is not|{"prompt": "a", "answers": ["b"], "metric": "f1", "new_tokens": -1}
		id is neither|{"prompt": "a", "answers": ["b"], "metric": "f1", "id": {}}
	END
	printf '%s\n' '{"id": "q", "prompt": "a", "answers": "b"}' '{"id": "q", "prompt": "c", "answers": "d"}' >bad
	refused 'bad:2: there is a question q before' bench --metric f1 bad
	printf '%s\n\377' "$good" >bad
	refused 'bad:2: not UTF-8 at byte 1' bench bad
	: >bad
	refused 'bad: there is no line in it' bench bad
	refused 'nowhere: No such file' bench nowhere
}

@test "a prompt that is longer than the model's positions is refused, and is cut in the middle when that is asked for" {
	local positions
	positions=$(json "$DEMO/config.json" 'o["max_position_embeddings"]')
	"$PYTHON" -c 'import json, sys
print(json.dumps({"context": "word and " * int(sys.argv[1]), "input": "What was it?", "answers": "b", "metric": "f1"}))' "$positions" >long
	refused "has $positions positions (--middle-cut cuts)" bench long
	run --separate-stderr -0 bench --middle-cut 101 long
	assert_equal "$stderr" 'read_benchmark.py: 1 of 1 prompts were cut'
	echo "$output" >a
	json long 'o["context"] + "\n\n" + o["input"]' | head -c -1 | kv-tokenize -m "$DEMO" --no-template >ids
	{ head -n 50 ids; tail -n 50 ids; } | kv-tokenize -m "$DEMO" -d | cmp - <(json a 'o["context"] + o["question"]' | head -c -1)
	assert_equal "$(json a 'o["cut"]')" $(($(wc -l <ids) - 100))
	refused 'the question is longer than a half' bench --middle-cut 4 long
}

@test "answers are graded by the metric of their question, and keep what else they say" {
	task niah_multivalue >t
	json <(head -n 1 t) 'o["answers"][0]' >one
	"$PYTHON" -c '
import json
for i, line in enumerate(open("t")):
    r = json.loads(line)
    print(json.dumps({"id": r["id"], "answer": " and ".join(r["answers"][:i + 2]), "method": "full"}))' >answers
	"$PYTHON" "$E/grade.py" t answers >g
	assert_equal "$(while read -r line; do json - 'o["score"], o["method"], "context" in o' <<<"$line"; done <g | xargs)" \
	    '(0.5, full, False) (0.75, full, False) (1.0, full, False)'
	sed -n 1,2p answers >fewer
	refused 'fewer: there is no answer to niah_multivalue-0002' "$PYTHON" "$E/grade.py" t fewer
	sed 's/-0002/-0009/' answers >other
	refused 'other:3: there is no question niah_multivalue-0009' "$PYTHON" "$E/grade.py" t other
	sed 's/-0002/-0001/' answers >twice
	refused 'twice:3: there is an answer to niah_multivalue-0001 before' "$PYTHON" "$E/grade.py" t twice
	sed 's/"method"/"tokens"/' answers >taken
	refused 'taken:1: tokens is the name' "$PYTHON" "$E/grade.py" t taken
}

# tests/oracle/metrics_recorded.py makes the file: LongBench's and RULER's own functions, transformers, pytrec_eval
@test "metrics equal the public implementations on recorded cases" {
	run -0 "$PYTHON" -c '
import collections, importlib.util, json, sys
sys.path.insert(0, sys.argv[1])
import metrics
need = {"rouge_l": ["rouge"], "rouge_l_zh": ["rouge", "jieba"], "f1_zh": ["jieba"]}
done, left = collections.Counter(), collections.Counter()
for case in json.load(open(sys.argv[2])):
    name = case["metric"]
    if not all(importlib.util.find_spec(package) for package in need.get(name, ())):
        left[name] += 1
        continue
    score = metrics.METRICS[name](case["prediction"], case["answers"], case)
    assert abs(score - case["score"]) <= case.get("tolerance", 1e-12), (score, case)
    done[name] += 1
assert set(done) | set(left) == set(metrics.METRICS) - {"sub_em", "substring_joined", "substring_any_joined"}
print(sum(left.values()))' "$E" "$ROOT/tests/fixtures/metrics.json"
	[ "$output" = 0 ] || echo "# $output cases of metrics whose library is missing were not compared" >&3
	# HELMET's SubEM: both normalised as SQuAD does
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
from metrics import sub_em
assert sub_em("It is the  Paris, of old.", ["paris of OLD"], {}) == 1 and sub_em("It is Paris", ["Rome", "Pariss"], {}) == 0' "$E"
}

@test "intervals hold the mean as often as they say, tests of signs are exact, and seeds reproduce" {
	"$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import intervals, numpy
rng = numpy.random.RandomState(5)
inside = 0
for _ in range(300):
    low, high = intervals.bootstrap(rng.exponential(size=60), draws=800)
    inside += low <= 1 <= high
assert 270 <= inside <= 294, inside
assert intervals.bootstrap([1, 0, 1], 3) == intervals.bootstrap([1, 0, 1], 3)
assert intervals.bootstrap([1.0] * 9) == (1, 1)
# normal approximation of a mean of many
low, high = intervals.bootstrap([0, 1] * 500)
assert abs(low - 0.469) < 0.003 and abs(high - 0.531) < 0.003
assert intervals.sign_test(0, 5) == 2 / 32 and intervals.sign_test(1, 5) == 2 * 7 / 64 and intervals.sign_test(0, 0) == 1
assert [round(x, 4) for x in intervals.wilson(81, 263)] == [0.2553, 0.3662]
c = intervals.compare([1, 1, 0.5, 0], [0, 1, 0.25, 0.5])
assert (c["difference"], c["better"], c["worse"], c["equal"], c["p"]) == (0.1875, 2, 1, 1, 1)' "$E"
	printf '{"id": "%s", "task": "t", "length": 1, "score": %s}\n' a 1 b 1 c 0 >a
	printf '{"id": "%s", "task": "t", "length": 1, "score": %s}\n' c 0 b 0 a 0 >b
	assert_equal "$("$PYTHON" "$E/intervals.py" a | json - 'o["n"], round(o["mean"], 3), round(o["wilson_low"], 3)')" '(3, 0.667, 0.208)'
	assert_equal "$("$PYTHON" "$E/intervals.py" a --against b | json - 'o["better"], o["worse"], o["p"]')" '(2, 0, 0.5)'
	sed 1d b >fewer
	refused 'only one of them has c' "$PYTHON" "$E/intervals.py" a --against fewer
	echo '{"id": "a", "score": 2}' >bad
	refused 'bad:1: the score 2 is not between' "$PYTHON" "$E/intervals.py" bad
}
