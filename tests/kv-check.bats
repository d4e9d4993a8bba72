#!/usr/bin/env bats
# kv-check: silent on what is good; names what is not

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mksnapshot -N 40 --ragged -w 3 --scores random --logits -o x.kv
	mksnapshot -N 40 --ragged -w 3 --scores random --logits -z -d bf16 -o z.kv
}

@test "a good snapshot passes without a word" {
	run -0 --separate-stderr kv-check x.kv z.kv
	assert_equal "$output$stderr" ""
	run -0 --separate-stderr kv-check - <x.kv
	assert_equal "$output$stderr" ""
}

@test "-v tells the sections and the logical digest" {
	run -0 --separate-stderr kv-check -v x.kv
	assert_output "x.kv: ok, $(see x.kv 'sum(x.type not in ("pADD", "iNDX", "ENDS") for x in s.sections)') sections, \
$(stat -c %s x.kv) bytes, logical digest $(logical x.kv)"
}

@test "an event log that does not agree with the rows, or with itself, is found" {
	kv-check "$ROOT/formats/vectors/passed/events.kv"
	rows='[[[0,2],[5,6]],[[1,6],[0,3,6]]]'
	"$PYTHON" "$ORACLE/footprint.py" write a.kv "$rows" 7 '[[1,7,7,0,2],[3,7,0,0,2,[[7,2],[7,2],[7,2],[7,2]]]]'
	"$PYTHON" "$ORACLE/footprint.py" write b.kv "$rows" 7 '[[1,7,7,0,2],[3,7,0,1,2,[[6,2],[7,3]]]]'
	run -3 --separate-stderr kv-check a.kv b.kv
	assert_equal "$stderr" "kv-check: a.kv: eVNt: layer 1 head 1: 2 rows after the last event, 3 in the snapshot
kv-check: b.kv: eVNt: event 1: layer 1 head 0: 6 rows before it, 7 after the event before"
}

@test "one false bit anywhere is found, in a file and in a pipe" {
	"$PYTHON" - <<-'E'
		import subprocess
		for name in 'x.kv', 'z.kv':
		    good = open(name, 'rb').read()
		    for at in range(0, len(good), max(1, len(good) // 70)):
		        bad = bytearray(good)
		        bad[at] ^= 1 << at % 8
		        open('bad.kv', 'wb').write(bad)
		        for args, data in (['bad.kv'], None), (['-'], bytes(bad)):
		            p = subprocess.run(['kv-check', *args], input=data, capture_output=True)
		            assert p.returncode in (3, 5) and p.stderr and not p.stdout, (name, at, args, p)
	E
}

@test "a snapshot cut anywhere is truncated" {
	size=$(stat -c %s x.kv)
	for n in 0 1 63 $(seq 64 331 $((size - 1))) $((size - 64)) $((size - 1)); do
		head -c "$n" x.kv >cut.kv
		run -3 --separate-stderr kv-check cut.kv
		assert_regex "$stderr" '^kv-check: cut.kv: .*truncated'
		run -3 --separate-stderr kv-check - <cut.kv
		assert_regex "$stderr" '^kv-check: stdin: .*truncated'
	done
}

@test "bytes after the end are refused" {
	cat x.kv z.kv >both.kv
	run -3 kv-check both.kv
	run -3 kv-check - <both.kv
}

@test "after a bad file the others are still checked, and the first failure decides" {
	head -c 1000 x.kv >cut.kv
	run -3 --separate-stderr kv-check -v cut.kv x.kv none.kv z.kv
	assert_regex "$stderr" 'cut.kv: .*truncated'
	assert_regex "$stderr" 'none.kv: .*No such file'
	assert_line --index 0 --partial "x.kv: ok"
	assert_line --index 1 --partial "z.kv: ok"
	run -1 kv-check -q x.kv none.kv cut.kv
	assert_output ""
}

# refused CODE WORD FILE: from FILE, - for a pipe; not with run, which takes longer than kv-check
refused() {
	local status=0
	kv-check "$3" 2>"$BATS_TEST_TMPDIR/said" || status=$?
	[[ $status -eq $1 && $(<"$BATS_TEST_TMPDIR/said") == *"$2"* ]] ||
	    fail "$f as $3: status $status for $1, and '$(<"$BATS_TEST_TMPDIR/said")' for '$2'"
}

@test "the vectors: what must be accepted is, what must be refused is with its exit code and its word" {
	shopt -s nullglob
	passed=("$ROOT"/formats/vectors/passed/*.kv)
	failed=("$ROOT"/formats/vectors/failed/*.kv)
	((${#passed[@]} > 0 && ${#failed[@]} > 0))
	kv-check "${passed[@]}"
	for f in "${passed[@]}"; do
		in_sample 4 || continue
		kv-check - <"$f"
	done
	for f in "${failed[@]}"; do
		{ read -r code; read -r word; } <"${f%.kv}.why"
		refused "$code" "$word" "$f"
		in_sample 4 || continue
		refused "$code" "$word" - <"$f"
	done
}

@test "without a name it is standard input" {
	assert_equal "$(kv-check -v <x.kv)" "$(kv-check -v - <x.kv)"
	head -c 1000 x.kv >cut.kv
	run -3 --separate-stderr kv-check <cut.kv
	assert_regex "$stderr" '^kv-check: stdin: .*truncated'
	run -2 script -qec kv-check /dev/null </dev/null
	assert_output --partial 'a snapshot is not read from a terminal'
}

@test "--json: an object for each snapshot, with what -v tells or with the message" {
	head -c 1000 x.kv >cut.kv
	cp cut.kv $'\xff.kv'
	run -3 --separate-stderr kv-check --json x.kv cut.kv none.kv z.kv - $'\xff.kv' <x.kv
	assert_equal "${#stderr_lines[@]}" 3
	printf '%s' "$output" >out
	"$PYTHON" - "$(logical x.kv)" "$(see x.kv s.stream_digest)" "$(see x.kv 'sum(x.type not in ("pADD", "iNDX", "ENDS") for x in s.sections)')" <<-'E'
		import json, os, sys
		text, all, decoder = open('out').read(), [], json.JSONDecoder()
		while text.strip():
		    o, end = decoder.raw_decode(text)
		    text = text[end:].lstrip()
		    all.append(o)
		assert [(o['snapshot'], o['ok'], o['status']) for o in all] == [('x.kv', True, 0), ('cut.kv', False, 3), ('none.kv', False, 1),
		    ('z.kv', True, 0), ('stdin', True, 0), ('\ufffd.kv', False, 3)], all
		x = dict(all[0], snapshot='stdin')
		assert x == all[4] and x['logical_digest'] == sys.argv[1] and x['stream_digest'] == sys.argv[2]
		assert x['sections'] == int(sys.argv[3]) and x['bytes'] == os.path.getsize('x.kv')
		assert all[1]['error'].startswith('cut.kv: truncated at byte 1000') and 'No such file' in all[2]['error']
	E
	run -0 --separate-stderr kv-check -q --json x.kv
	run -3 --separate-stderr kv-check -q --json cut.kv
	assert_equal "$stderr" ""
	assert_line '  "ok": false,'
}

@test "kv-check and the reader in Python judge snapshots of a grammar alike" {
	run -0 "$PYTHON" "$FORMAT/grammar.py" "$O/kv-check" made 500 "${SEED:-1}"
	assert_output --regexp '^[1-9][0-9]* with 0, [1-9][0-9]* with 3, [1-9][0-9]* with 5, 0 differ$'
}
