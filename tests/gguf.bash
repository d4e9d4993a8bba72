# GGUF files of tiny models, written by other code (tests/bin/mkgguf.py), beside their folders

# gguf FOLDER FILE [OPTION ...]: the folder as a GGUF file
gguf() {
	"$PYTHON" "$ROOT/tests/bin/mkgguf.py" "$@"
}

# family CASE [JSON [OPTION ...]]: a tiny model as a folder, with these keys of config.json in place
# of the case's ("absent": none), and as a GGUF file
family() {
	"$PYTHON" - "$ROOT/tests/bin" "$1" "${2:-{\}}" "$DEMO/tokenizer.json" <<-'END'
		import json, sys
		sys.path.insert(0, sys.argv[1])
		import mkfamily
		kind, own = mkfamily.CASES[sys.argv[2]]
		mkfamily.CASES[sys.argv[2]] = kind, {**own, **json.loads(sys.argv[3])}
		mkfamily.write(sys.argv[2], sys.argv[2], sys.argv[4])
	END
	gguf "$1" "$1.gguf" "${@:3}"
}

# both CASE: logits of ids by the folder and by the GGUF file, CASE.logits and CASE.gguf.logits, and
# snapshots CASE.kv and CASE.gguf.kv, which say the same of the model but its weights
both() {
	local m
	[ -e "$1.gguf" ] || family "$1"
	for m in "$1" "$1.gguf"; do
		kv-prefill -m "$m" --ids --logits "$m.logits" -o "$m.kv" ids
		kv-info --json "$m.kv" | "$PYTHON" -c 'import json, sys
o = json.load(sys.stdin)["model"]
o.pop("weights")
print(o)' >"$m.info"
	done
	assert_equal "$(cat "$1.info")" "$(cat "$1.gguf.info")"
}

# same_families CASE ...: logits to the byte, and all that a snapshot says of the model but its
# weights
same_families() {
	local c
	seq 3 50 >ids
	for c; do
		both "$c"
		cmp "$c.logits" "$c.gguf.logits" || fail "$c: other logits"
	done
}

# refused STATUS MESSAGE [OPTION ...]: by kv-prefill with x.gguf, in one line, and without output
refused() {
	run "-$1" --separate-stderr kv-prefill -m x.gguf -o x.kv "${@:3}" text
	# shellcheck disable=SC2154 # bats sets it
	[[ "$stderr" == *"x.gguf: "*"$2"* ]] || { echo "$stderr"; return 1; }
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "${#stderr_lines[@]}" 1
	[ ! -e x.kv ]
}
