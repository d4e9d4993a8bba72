#!/usr/bin/env bats
# bats file_tags=nosan
# tests/run_files.sh, which runs the bats files: what it says of them, and when it fails. In the place of bats stands a program that
# prints its file, which is TAP already, and ends with the status that its last line names.

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	export O=$PWD/out BATS=$PWD/fake
	printf '#!/bin/sh\nsed "/^exit/d" "$2"\n%s\n' 'exit "$(sed -n "s/^exit //p" "$2")"' >fake
	chmod +x fake
	printf '%s\n' 1..2 'ok 1 one' 'ok 2 two' 'exit 0' >fine.bats
	printf '%s\n' 1..3 'ok 1 a # skip no GPU' 'ok 2 b' 'ok 3 c # skip' 'exit 0' >skips.bats
	printf '%s\n' 1..2 'not ok 1 one' '# why' 'ok 2 two' 'exit 1' >fails.bats
	printf '%s\n' 1..4 'ok 1 one' 'exit 0' >ends.bats
}

files() {
	run sh "$ROOT/tests/run_files.sh" "$@"
}

@test "run_files.sh: a line for each file, what was skipped and why, and totals" {
	files fine.bats skips.bats
	assert_success
	assert_line --regexp '^ +[12]/2  ok      fine +2 passed, [0-9]+ s$'
	assert_line --regexp '^ +[12]/2  ok      skips +1 passed, 2 skipped, [0-9]+ s$'
	assert_line --regexp '^ +a # skip no GPU$'
	assert_line --index 4 --regexp '^3 passed, 0 failed, 2 skipped, in [0-9]+ s$'
	assert_equal "$(cat out/tap/fine.tap)" $'1..2\nok 1 one\nok 2 two'
}

@test "run_files.sh: what a file with a failure said is shown" {
	files fine.bats fails.bats
	assert_failure 1
	assert_line --regexp 'FAILED  fails +1 passed, 1 failed, [0-9]+ s$'
	assert_line 'not ok 1 one'
	assert_line '# why'
	refute_line 'ok 1 one'
	assert_line --index -2 "Failed: fails (1); what a file said is in $PWD/out/tap/NAME.tap"
	assert_line --regexp '^3 passed, 1 failed, 0 skipped, '
}

@test "run_files.sh: tests of a file that ended half way have failed" {
	files ends.bats fine.bats
	assert_failure 1
	assert_line --regexp 'FAILED  ends +1 passed, 3 failed, '
	assert_line '# ends.bats ended before all its tests had'
	assert_line --regexp '^3 passed, 3 failed, '
}

@test "run_files.sh: a file that does not end has failed, and the others go on" {
	printf '#!/bin/sh\ncat "$2"\n[ "$2" != ends.bats ] || exec sleep 60 3>&-\n' >fake
	FILE_SECONDS=1 files ends.bats fine.bats
	assert_failure 1
	assert_line --regexp 'FAILED  ends +1 passed, 3 failed, [0-9] s$'
	assert_line '# ends.bats had not ended after 1 s'
	assert_line --regexp '^3 passed, 3 failed, '
}

@test "run_files.sh: a file without a plan, or with a status that no result explains, has failed" {
	printf '%s\n' 'line 3: syntax error' 'exit 0' >silent.bats
	printf '%s\n' 1..1 'ok 1 one' 'exit 7' >status.bats
	printf '%s\n' 1..1 'ok 1 one' 'ok 2 two' 'exit 0' >more.bats
	for name in silent status more; do
		files $name.bats
		assert_failure 1
		assert_line --regexp "FAILED  $name +[0-9] passed, 1 failed, "
		assert_line --regexp "^# $name.bats: exit status [07], (no|1) tests were planned\$"
	done
}

@test "run_files.sh: files that were never run have failed" {
	# xargs goes on to no further file when it cannot run one
	printf '#!/bin/sh\nkill -9 $(cut -d " " -f 4 /proc/$PPID/stat)\n' >fake
	files fine.bats
	assert_failure 1
	assert_line 'FAILED: 1 of 1 files have not been run'
	assert_line --regexp '^0 passed, 1 failed, '
}

@test "run_files.sh: slow files go first" {
	mkdir bin
	printf '#!/bin/sh\necho 0\n' >bin/getconf    # one file at once
	chmod +x bin/getconf
	printf '%s\n' '# bats file_tags=slow' 1..1 'ok 1 one' 'exit 0' >last.bats
	PATH=$PWD/bin:$PATH files fine.bats skips.bats last.bats
	assert_line --index 0 --partial 'last'
	assert_line --index 1 --partial 'fine'
}
