#!/usr/bin/env bats
# bats file_tags=slow,nosan
# The tutorials of examples/tutorials: their commands are run, and what they print is compared
#
# A block that begins with ```console kvpress is run where Python has kvpress: KVPRESS_PYTHON names one that has.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export K=$ROOT KV_DEVICE=cpu
	python_beside
	mkdir empty
	cd empty || exit 1
}

# blocks PAGE PREFIX ...: the lines of its blocks that begin with one of these, without it; `others` are the lines that do not
blocks() {
	awk -v kvpress="${KVPRESS_PYTHON:+1}" '/^```console/ { on = !/kvpress/ || kvpress; next } /^```/ { on = 0 } on' "$ROOT/examples/tutorials/$1"
}

# The same lines of the same words; a number may differ by 10 or by a tenth, since a count of right answers is not the same with
# every instruction set.
alike() {
	awk '
		function near(x, y) { return x - y <= 10 && y - x <= 10 || x - y <= x / 10 && y - x <= x / 10 }
		NR == FNR { line[FNR] = $0; n = FNR; next }
		{
			words = split($0, got, /[ |-]+/)
			if (split(line[FNR], want, /[ |-]+/) != words)
				bad = FNR
			for (i = 1; i <= words && !bad; i++)
				if (got[i] != want[i] && (got[i] want[i] !~ /^[0-9.]+$/ || !near(got[i], want[i])))
					bad = FNR
			if (bad) {
				print "shown:   " line[FNR] "\nprinted: " $0
				exit 1
			}
		}
		END { if (!bad && FNR != n) { print n " lines are shown, " FNR " printed"; exit 1 } }' "$1" "$2"
}

# run_page PAGE: one shell runs all of its commands
run_page() {
	[ -z "${KVPRESS_PYTHON:-}" ] || {
		printf '#!/bin/sh\nexec "%s" "$@"\n' "$KVPRESS_PYTHON" >../python3
		chmod +x ../python3
		mv ../python3 ../bin/python3
	}
	blocks "$1" | sed -n 's/^[$>] \{0,1\}//p' >../commands
	blocks "$1" | grep -v '^[$>]' >../shown
	bash -e ../commands >../printed 2>../said || {
		cat ../said
		return 1
	}
	alike ../shown ../printed
	[ "$(wc -l <../commands)" -gt 8 ]
}

@test "From kvpress: the commands print what the page shows" { run_page from-kvpress.md; }

@test "One document, a hundred questions: the commands print what the page shows" { run_page hundred-questions.md; }

@test "My own method: the commands print what the page shows" { run_page own-method.md; }

@test "the notebook has the text and the commands of its page, and was executed" {
	"$PYTHON" "$ROOT/examples/tutorials/notebook.py" --check
	"$PYTHON" - "$ROOT/examples/tutorials/own-method.ipynb" <<-'END'
		import json, sys
		cells = [c for c in json.load(open(sys.argv[1]))["cells"] if c["cell_type"] == "code"]
		outputs = [o for c in cells for o in c["outputs"]]
		assert all(c["execution_count"] for c in cells)
		assert not any(o["output_type"] == "error" for o in outputs)
		assert any("image/svg+xml" in o.get("data", {}) for o in outputs)
	END
}
