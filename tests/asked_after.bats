#!/usr/bin/env bats
# bats file_tags=slow
# experiments/asked_after.py: right answers where the question comes behind what a method has kept

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || return
	"$PYTHON" "$ROOT/experiments/make_task.py" niah_single_2 -m "$DEMO" --chat none -n 3 --tokens 300 --seed 3 >niah.jsonl
}

# asked OPTION ...
asked() {
	"$PYTHON" "$ROOT/experiments/asked_after.py" -m "$DEMO" --chat none --runs runs.jsonl --table table.md --table table.tsv "$@" niah.jsonl
}

@test "answers, rows and footprint are those of the scripts of examples/methods run by the workflow's programs" {
	asked --methods snapkv,keydiff,gemfilter --rates 0.1,0.5
	for run in full/1 snapkv/0.1 snapkv/0.5 keydiff/0.5 gemfilter/0.5; do
		"$PYTHON" "$ROOT/experiments/run_part.py" keep -m "$DEMO" --chat none --task niah.jsonl --part 0/1 --question after --shared shared --out kept --script "$ROOT/examples/methods/${run%/*}.sh" -m "$DEMO" -r "${run#*/}"
		"$PYTHON" "$ROOT/experiments/run_part.py" answer -m "$DEMO" --chat none --task niah.jsonl --part 0/1 --question after --kept kept >answers.jsonl
		"$PYTHON" "$ROOT/experiments/grade.py" niah.jsonl answers.jsonl >graded.jsonl
		"$PYTHON" - "${run%/*}" "${run#*/}" <<-'END'
			import json, sys
			name, rate = sys.argv[1:]
			want = {row["id"]: row for row in map(json.loads, open("graded.jsonl"))}
			got = {row["id"]: row["all"][rate] for row in map(json.loads, open("runs.jsonl")) if row["name"] == name}
			assert want.keys() == got.keys() and len(got) == 3
			for key, row in want.items():
			    assert got[key]["score"] == row["score"] and abs(100 * got[key]["kept"] - row["kept"]) < 1e-3, (name, rate, got[key], row)
		END
		rm -r kept
	done
	grep -q '; full cache ' table.md
	grep -q "^niah_single_2	0.5	snapkv	score	3	" table.tsv
}

@test "a second run measures nothing, a method more only that, and intervals of shares are Wilson's" {
	asked --methods streamingllm --rates 0.1
	assert_equal "$(wc -l <runs.jsonl)" 6
	cp table.md first.md
	asked --methods streamingllm --rates 0.1
	cmp table.md first.md
	assert_equal "$(wc -l <runs.jsonl)" 6
	asked --methods streamingllm,random --rates 0.1
	assert_equal "$(wc -l <runs.jsonl)" 9
	# 0 of 3: 1.96^2 / (3 + 1.96^2) = 56 %; 3 of 3: the other way round
	grep -Eq '^\| streamingllm \| (0 \(0-56\)|100 \(44-100\)|33 \(6-79\)|67 \(21-94\)) \| 100 \|$' table.md
}

@test "settings come from --conf, and a script that fails says why" {
	: >mine.conf
	run -1 asked --methods qfilter --rates 0.1 --conf mine.conf
	assert_output --partial "no Q-Filters: name a file"
	asked --methods snapkv --rates 0.1
	cp table.tsv before.tsv
	echo snapkv.window=200 >mine.conf
	asked --methods snapkv --rates 0.1 --conf mine.conf
	run -1 cmp -s table.tsv before.tsv
	# a window of 200 rows is more than a tenth
	grep -Eq '^\| snapkv \| [0-9]+ \([0-9]+-[0-9]+\) \\\* \| 100 \|$' table.md
	run -2 asked --conf nowhere
	assert_output --partial "nowhere"
	run -2 asked --methods nothing
	assert_output --partial "there is no such script"
	run -2 asked --rates 0
}
