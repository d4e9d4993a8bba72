#!/usr/bin/env bats
# bats file_tags=nosan
# The types of kvsnapshot, which is typed (py.typed): mypy --strict, where a mypy of version 1.11 or later is (MYPY, or mypy)
load helper

setup_file() {
	load helper
	export MYPY=${MYPY:-mypy} MYPY_CACHE_DIR=$BATS_FILE_TMPDIR/cache MYPYPATH=$ROOT/python WHY_NOT=
	version=$("$MYPY" --version 2>/dev/null | sed -n 's/^mypy \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
	# shellcheck disable=SC2086 # two words
	set -- $version
	if [ $# -ne 2 ] || [ $(($1 * 100 + $2)) -lt 111 ]; then
		WHY_NOT="$MYPY is not there, or older than 1.11"
	fi
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	[ -z "$WHY_NOT" ] || skip "$WHY_NOT"
}

@test "mypy --strict has nothing to say of the package" {
	cd "$ROOT/python"
	run "$MYPY" --strict -p kvsnapshot
	assert_output --regexp '^Success: no issues found in [0-9]+ source files$'
}

@test "a program that uses the package gets types, and none of them is Any" {
	cat >user.py <<-'END'
		import sys

		import kvsnapshot

		snapshot = kvsnapshot.read(sys.argv[1])
		layer = snapshot.layers[0]
		reveal_type(snapshot.tokens)
		reveal_type(layer.keys)
		reveal_type(layer.stored_keys)
		reveal_type(layer.query_stats)
		reveal_type(layer.attention(0))
		reveal_type(layer.key_store.residual)
		reveal_type(layer.key_store.size(3))
		reveal_type(snapshot.events)
		for event in snapshot.events or ():
		    reveal_type(event.n)
		reveal_type(kvsnapshot.container.read)
		reveal_type(kvsnapshot.change_rows)
		reveal_type(kvsnapshot.Bad.status)
	END
	run -0 "$MYPY" --strict user.py
	assert_equal "$(grep -c 'Revealed type' <<<"$output")" 12
	refute_output --regexp 'Revealed type is "(builtins\.)?(list\[)?Any'
	printf 'import kvsnapshot\nkvsnapshot.save_rows(3, [])\nkvsnapshot.read("x").layers[0].keys.missing\n' >wrong.py
	run -1 "$MYPY" --strict wrong.py
	assert_output --partial 'wrong.py:2: error: Argument 1 to "save_rows"'
	assert_output --partial 'wrong.py:3: error: "list[ndarray'
}
