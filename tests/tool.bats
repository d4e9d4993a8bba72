#!/usr/bin/env bats
# What all programs do the same way: help, terminals, closed pipes, full disks, signals, unfinished outputs

load helper

teardown() {
	umount "$BATS_TEST_TMPDIR/small" 2>/dev/null || true
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	FILTERS=("kv-score --method knorm" "kv-evict --rate 1" kv-quantize1b)
	PROGRAMS=(kv-check kv-evict kv-footprint kv-info kv-quantize1b kv-score kv-tokenize)
}

snapshot() {
	mksnapshot -N 400 -E 32 --scores random -o x.kv "$@"
}

# more than any pipe holds
large() {
	mksnapshot -N 60000 -E 8 --scores random -o x.kv
}

@test "--help begins with the synopsis and lists every option once" {
	for tool in "${PROGRAMS[@]}"; do
		run -0 --separate-stderr $tool --help
		assert_equal "$stderr" ""
		assert_line --index 0 --regexp "^usage: $tool "
		assert_line --regexp '^  -h, --help  '
		words=$(grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' <<<"$output" | grep -oE '\--.*')
		assert_equal "$(sort <<<"$words")" "$(sort -u <<<"$words")"
		# all but -h, which goes with no other
		for letter in $(grep -oE '^  -[a-z],' <<<"$output" | tr -d ' ,h-'); do
			sed -n '1,/^$/p' <<<"$output" | grep -qE -- "-[a-z]*$letter" || fail "$tool: -$letter is not in the synopsis"
		done
	done
}

@test "--version names the program and the libraries" {
	for tool in "${PROGRAMS[@]}"; do
		run -0 $tool --version
		assert_line --index 0 --regexp "^$tool [0-9.]+$"
		assert_line --index 1 --regexp '^lz4 [0-9.]+, xxHash [0-9.]+, jansson [0-9.]+$'
	done
	run -0 kv-score --version
	assert_line --index 2 --regexp 'threads?,'
}

# told MESSAGE PROGRAM OPTION ...: exit status 2, and this is the first line on standard error
told() {
	run -2 --separate-stderr "${@:2}"
	assert_equal "${stderr_lines[0]}" "$2: $1"
}

@test "a misspelt option is told from an ambiguous one, and the nearest or the candidates are named" {
	told "there is no option '--metod': did you mean --method?" kv-score --metod snapkv
	told "there is no option '--budegt': did you mean --budget?" kv-evict --budegt=3
	told "there is no option '--jsno': did you mean --json?" kv-info --jsno
	told "there is no option '--KERNLE': did you mean --kernel?" kv-score --KERNLE 3
	told "there is no option '--nonsense'" kv-score --nonsense
	told "there is no option '--'" kv-score --=3
	told "there is no option '-Q'" kv-score -Q
	told "option '--p' can mean several: --positions, --policy, --progress" kv-evict --p x
	# a unique beginning is the option
	told "--policy: there is no 'x' in kv-evict --list" kv-evict --budget 3 --pol x
	# a letter too many, too few, another one, two exchanged; a third of a name may be wrong
	for word in kernell kernl kernal kenrel krnl; do
		told "--score: there is no option '$word': did you mean kernel?" kv-prefill -m x --score "snapkv $word=3" --evict rate=0.1 x
	done
	told "--score: there is no option 'knl', only kernel pool reduce order over-queries weight sink seed keep-last lag cross filters local norms query-stats future epsilon no-covariance no-value-norm blend lambda gamma z-score sketch recent lazy window since" kv-prefill -m x --score "snapkv knl=3" --evict rate=0.1 x
	told "--evict: there is no option 'skip': did you mean skip-layers?" kv-prefill -m x --evict "rate=0.1 skip=3" x
	told "--pool: 'mx' is not one of its values, see --help: did you mean max?" kv-score --method snapkv --pool mx x
}

@test "a misspelt method, policy or way to retrieve: the nearest is named, or what makes what the paper describes" {
	told "--method: there is no 'snapvk' in kv-score --list: did you mean snapkv?" kv-score --method snapvk
	told "--method: there is no 'stream' in kv-score --list: did you mean streamingllm?" kv-score --method stream
	told "--method: there is no 'k' in kv-score --list" kv-score --method k
	told "--method: there is no 'pyramidkv' in kv-score --list: it is a policy: kv-evict --policy pyramid" kv-score --method pyramidkv
	told "--method: there is no 'Quest' in kv-score --list: it is a way to read: kv-decode --retrieve quest" kv-score --method Quest
	told "--method: there is no 'FastKV' in kv-score --list: FastKV is kv-prefill --select tsp, then snapkv with a kernel of 7" \
	    kv-score --method FastKV
	told "--method: there is no 'observed' in kv-score --list: \
did you mean kvzip (maximum over probes) or meanmass (kvpress's ObservedAttention)?" kv-score --method observed
	told "--method: there is no 'think' in kv-score --list: it is not there" kv-score --method think
	told "--policy: there is no 'headkv' in kv-evict --list: its budgets of KV heads are a file: kv-evict --budgets FILE" kv-evict --policy headkv --rate 0.5
	told "--method: there is no 'keydif' in kv-score --list: did you mean keydiff?" kv-decode -m x --score keydif --evict budget=3 x
	told "--policy: there is no 'pyrmid' in kv-evict --list: did you mean pyramid?" kv-evict --budget 3 --policy pyrmid
	told "--policy: there is no 'H2O' in kv-evict --list: it is a method: kv-score --method h2o" kv-evict --budget 3 --policy H2O
	told "--policy: there is no 'kvzip' in kv-evict --list: KVzip is kv-observe --repeat-context, method kvzip, policy global" \
	    kv-evict --budget 3 --policy kvzip
	told "--policy: there is no '' in kv-evict --list" kv-evict --budget 3 --policy ''
	told "--retrieve: there is no method 'quets', only fier quest quest-eval cluster shadow specontext: did you mean quest?" kv-diff --retrieve 'quets budget=3' x
	told "--retrieve: there is no method 'shdow', only fier quest quest-eval cluster shadow specontext: did you mean shadow?" kv-diff --retrieve 'shdow budget=3' x
}

@test "options that are not there, incomplete or too many print the synopsis and exit with 2" {
	for tool in "${PROGRAMS[@]}"; do
		for wrong in --nonsense --help=1 -Q; do
			run -2 --separate-stderr $tool $wrong
			assert_equal "$output" ""
			assert_regex "$stderr" "^$tool: .*usage: $tool "
		done
	done
	run -2 --separate-stderr kv-evict --budget
	assert_regex "$stderr" "option '--budget' needs a value"
	run -2 --separate-stderr kv-evict -q -o
	assert_regex "$stderr" "option '-o' needs a value"
	run -2 kv-evict --rate 1 a b
	run -2 --separate-stderr kv-tokenize x
	assert_regex "$stderr" 'a model is needed: -m MODEL'
}

@test "a full disk is an error with exit code 1" {
	snapshot
	for f in "${FILTERS[@]}"; do
		run -1 --separate-stderr bash -c "$f x.kv >/dev/full"
		assert_regex "$stderr" 'No space left on device'
		run -1 --separate-stderr $f -o /dev/full x.kv
		assert_regex "$stderr" 'No space left on device'
	done
	for f in "kv-info x.kv" "kv-info --json x.kv" "kv-check -v x.kv" "kv-score --list" "kv-evict --help" "kv-info --version"; do
		run -1 --separate-stderr bash -c "$f >/dev/full"
		assert_regex "$stderr" 'stdout: No space left on device'
	done
}

@test "a disk that fills up half way leaves what was there, and no unfinished file" {
	large
	mkdir small
	mount -t tmpfs -o size=256k none small 2>/dev/null || skip "needs the right to mount"
	echo precious >small/out.kv
	for f in "${FILTERS[@]}"; do
		run -1 --separate-stderr $f -o small/out.kv x.kv
		assert_regex "$stderr" 'small/out.kv: .*No space left on device'
		assert_equal "$(ls small) $(cat small/out.kv)" "out.kv precious"
	done
}

@test "a reader that goes ends a program as SIGPIPE does, without a message and without an unfinished file" {
	large
	for f in "${FILTERS[@]}" "kv-convert -q"; do
		run -0 env --default-signal=PIPE bash -c "$f x.kv 2>err | head -c 1 >/dev/null; kill -l \${PIPESTATUS[0]}"
		assert_output PIPE
		assert_equal "$(cat err)" ""
	done
	snapshot
	for option in --all --json --positions; do
		run -0 env --default-signal=PIPE bash -c "kv-info $option \$(yes x.kv | head -n 2000) 2>err | head -c 1 >/dev/null; kill -l \${PIPESTATUS[0]}"
		assert_output PIPE
		assert_equal "$(cat err)" ""
	done
	KV_REPORT=$PWD/report.jsonl env --default-signal=PIPE bash -c 'kv-info --all $(yes x.kv | head -n 2000) | head -c 1 >/dev/null'
	assert_equal "$(json report.jsonl 'o["signal"]')" 13
}

@test "who started a program without SIGPIPE is told of a closed pipe, with exit code 1" {
	large
	for f in "${FILTERS[@]}"; do
		run -0 bash -c "env --ignore-signal=PIPE $f x.kv 2>err | head -c 1 >/dev/null; exit \$((PIPESTATUS[0] - 1))"
		assert_regex "$(cat err)" '^kv-[a-z0-9]+: stdout: .*Broken pipe$'
	done
}

@test "a snapshot is neither written to a terminal nor read from one" {
	type script >/dev/null || skip "no script(1)"
	snapshot
	for f in "${FILTERS[@]}"; do
		run -2 script -qec "$f x.kv" /dev/null
		assert_output --partial "a snapshot is not written to a terminal: use -o FILE or a pipe"
		run -2 script -qec "$f -o y.kv" /dev/null
		assert_output --partial "a snapshot is not read from a terminal: name a file or use a pipe"
	done
	for f in kv-info kv-check; do
		run -2 script -qec "$f -" /dev/null
		assert_output --partial "a snapshot is not read from a terminal"
		run -0 script -qec "$f x.kv" /dev/null
	done
	assert [ -z "$(ls y.kv* 2>/dev/null)" ]
}

@test "a closed standard output or input is an error, and no file suffers" {
	snapshot
	cp x.kv before.kv
	for f in "${FILTERS[@]}"; do
		run -1 bash -c "$f x.kv >&-"
		run -1 bash -c "$f <&- >y.kv"
		$f x.kv -o y.kv <&- >&-
		kv-check y.kv
	done
	cmp x.kv before.kv
}

@test "a signal removes the unfinished file and kills by that signal" {
	snapshot
	mkfifo pipe
	for f in "${FILTERS[@]}"; do
		for signal in INT TERM HUP; do
			exec 7<>pipe
			head -c 3000 x.kv >&7
			env --default-signal=INT,TERM,HUP $f -o y.kv <pipe 7>&- 3>&- &
			pid=$!
			for _ in $(seq 500); do
				[ -z "$(ls y.kv.tmp.* 2>/dev/null)" ] || break
				sleep 0.01
			done
			assert [ -n "$(ls y.kv.tmp.*)" ]
			kill -s $signal $pid
			status=0
			wait $pid || status=$?
			assert_equal "$(kill -l $status)" $signal
			exec 7>&-
			assert [ -z "$(ls y.kv* 2>/dev/null)" ]
		done
	done
}

@test "an ignored signal stays ignored" {
	snapshot
	mkfifo pipe
	exec 7<>pipe
	head -c 3000 x.kv >&7
	env --ignore-signal=HUP kv-evict --rate 1 -o y.kv <pipe 7>&- 3>&- &
	pid=$!
	for _ in $(seq 500); do
		[ -z "$(ls y.kv.tmp.* 2>/dev/null)" ] || break
		sleep 0.01
	done
	kill -s HUP $pid
	tail -c +3001 x.kv >&7
	exec 7>&-
	wait $pid
	kv-check y.kv
}

@test "a failure leaves an old output file as it was" {
	snapshot
	head -c 9000 x.kv >cut.kv
	echo old >y.kv
	for f in "${FILTERS[@]}"; do
		run -3 $f cut.kv -o y.kv
		assert_equal "$(cat y.kv)" old
		assert_equal "$(ls y.kv*)" y.kv
	done
}

@test "an output may replace its own input" {
	snapshot
	cp x.kv y.kv
	kv-score --method knorm y.kv -o y.kv
	kv-evict --budget 10 y.kv -o y.kv
	kv-check y.kv
	assert_equal "$(see y.kv 's.layers[0].rows')" "10 10"
}

@test "a file that cannot be opened or created is named with the reason" {
	snapshot
	run -1 --separate-stderr kv-evict --rate 1 none.kv -o y.kv
	assert_regex "$stderr" '^kv-evict: none.kv: .*No such file or directory$'
	run -1 --separate-stderr kv-evict --rate 1 . -o y.kv
	assert_regex "$stderr" '^kv-evict: '
	run -1 --separate-stderr kv-evict --rate 1 x.kv -o none/y.kv
	assert_regex "$stderr" '^kv-evict: --output none/y.kv: No such file or directory$'
	run -3 --separate-stderr kv-evict --rate 1 "$BATS_TEST_DIRNAME/helper.bash" -o y.kv
	assert_regex "$stderr" 'helper.bash: '
}

@test "the progress line comes when it is asked for, and never with -q" {
	snapshot
	run -0 --separate-stderr kv-evict --rate 0.5 --progress always x.kv -o y.kv
	assert_regex "$stderr" 'kv-evict: evict 2/2 layers'
	KV_PROGRESS=always run -0 --separate-stderr kv-evict --rate 0.5 x.kv -o y.kv
	assert_regex "$stderr" 'kv-evict: evict 2/2 layers'
	for quiet in --progress=never --progress=auto "-q --progress always"; do
		run -0 --separate-stderr kv-evict --rate 0.5 $quiet x.kv -o y.kv
		assert_equal "$stderr" ""
	done
	run -2 kv-evict --rate 0.5 --progress sometimes x.kv -o y.kv
	KV_PROGRESS=sometimes run -2 --separate-stderr kv-evict --rate 0.5 x.kv -o y.kv
	assert_regex "$stderr" "KV_PROGRESS: 'sometimes' is not auto, always or never"
}

@test "0 is refused where there is nothing that it could mean, and is not taken for an option that was not given" {
	none() {
		run -2 --separate-stderr "${@:3}" "--$1" "${2:-0}" /dev/null
		assert_regex "$stderr" "^$3: --$1: '${2:-0}' is not a whole number from 1 to [0-9]*\$"
	}
	none device-memory '' kv-decode -m x --retrieve 'specontext head=x'
	none device-memory 0k kv-decode -m x
	for option in store-size patch; do
		none $option '' kv-prefill -m x
	done
	for option in window kernel; do
		none $option '' kv-tsp-layer -m x
	done
	for word in memory weights batch budget; do
		run -2 --separate-stderr kv-plan --offload "memory=3m weights=2m budget=4 $word=0" /dev/null
		assert_regex "$stderr" "^kv-plan: --offload: $word: '0' is not a whole number from 1 to [0-9]*\$"
	done
	# and is taken where it means something
	run -3 kv-plan --offload 'memory=3m weights=2m budget=4 head-weights=0' /dev/null
	told "--sink: '-1' is not a whole number from 0 to 4294967294" kv-evict --sink -1
}

@test "a wrong KV_THREADS or KV_DEVICE is refused and named" {
	snapshot -w 2
	KV_THREADS=many run -2 --separate-stderr kv-score --method snapkv x.kv -o y.kv
	assert_regex "$stderr" "KV_THREADS: 'many' is not a whole number"
	KV_DEVICE=tpu run -2 --separate-stderr kv-score --method snapkv x.kv -o y.kv
	assert_regex "$stderr" "'tpu' is not cpu, cuda, cuda:N or auto"
	KV_DEVICE=tpu kv-score --method snapkv --device cpu x.kv -o y.kv
}

@test "no number means that none was given: 4294967295 is refused by every option that counts, -1 by --tol" {
	local program option help counts=0
	for program in "$O"/kv-*; do
		[ -x "$program" ] || continue
		help=$("$program" --help)
		while read -r option; do
			# that takes a number: some are words of other programs
			grep -q -e "--$option \(N\|W\|K\|LAYER\|POSITION\) " <<<"$help" || continue
			run -2 "$program" "--$option" 4294967295
			assert_line --index 0 --regexp ": --$option: '4294967295' is not a whole number from [01] to 4294967294$"
			counts=$((counts + 1))
		done < <(grep -ho '"[a-z-]*", OPT_COUNT' "$ROOT"/src/cli/*.c "$ROOT"/tools/*.c | cut -d '"' -f 2 | sort -u)
	done
	# kv-evict's --budget is a count, kv-index's --local and so on
	[ $counts -gt 35 ]
	run -2 kv-tsp-layer -m none --tol -1 none.txt
	assert_output --partial '--tol -1: less than nothing'
}

@test "only tool.c reads the environment, only it and mapped files set signals, only the shared files exit" {
	cd "$ROOT"
	run -0 grep -lE '\bgetenv\(' -r --include='*.c' tools src libkvfile cpu gpu
	assert_output src/cli/tool.c
	# those that end a program; SIGBUS
	run -0 grep -lE '\bsigaction\(' -r --include='*.c' tools src libkvfile cpu gpu
	assert_equal "$(sort <<<"$output" | tr '\n' ' ')" "src/cli/bus_error.c src/cli/mapped_file.c src/cli/tool.c "
	run grep -nE '\b(exit|abort|printf|fprintf|perror)\(' -r --include='*.c' src/methods
	assert_output ""
	run grep -lE '\bexit\(' -r --include='*.c' src/cli src/engine tools
	assert_equal "$(sort <<<"$output" | tr '\n' ' ')" "src/cli/options.c src/cli/tool.c "
}

@test "control characters of names and texts reach no terminal" {
	run -1 --separate-stderr kv-check $'no\e[31m\n\tsuch\x7f\xc2\x9bfile.kv'
	assert_regex "$stderr" 'no\\x1b\[31m\\n\\tsuch\\x7f\\xc2\\x9bfile\.kv'
	[ "${#stderr_lines[@]}" -eq 1 ]
	run -2 --separate-stderr kv-score --method $'a\rb' x.kv
	assert_regex "$stderr" "'a\\\\x0db'"
	run -1 --separate-stderr kv-check 'schön-日本.kv'
	assert_regex "$stderr" 'schön-日本\.kv'
}

@test "a file that may not become longer is an error as any other, and nothing is left of it" {
	snapshot -w 2
	(ulimit -f 4; run -1 --separate-stderr kv-score --method snapkv x.kv -o long.kv
	assert_regex "$stderr" 'long\.kv: write from byte [0-9]+ on: File too large')
	run ls
	refute_output --partial long.kv
}

@test "an output without a name is refused, and one that is a link to nothing is followed" {
	snapshot -w 2
	run -2 --separate-stderr kv-score --method snapkv x.kv -o ''
	assert_regex "$stderr" '^kv-score: --output: the name is empty$'
	ln -s far.kv link.kv
	kv-score --method snapkv x.kv -o link.kv
	[ -L link.kv ]
	kv-check far.kv
}

@test "what a killed program has left goes with the next output of that name" {
	snapshot -w 2
	touch y.kv.tmp.123 y.kv.tmp.note
	kv-score --method snapkv x.kv -o y.kv
	[ ! -e y.kv.tmp.123 ]
	[ -e y.kv.tmp.note ]
}

@test "an output through a link of somebody else, in a folder where everybody may write, is refused" {
	[ "$(id -u)" = 0 ] || skip "only root can give files away"
	kv-prefill -q -m "$DEMO" --ids -o in.kv - <<<'1 2 3'
	printf precious >target
	mkdir -m 1777 all
	ln -s ../target all/out.kv
	chown -h 65534 all/out.kv
	run -1 --separate-stderr kv-score -q --method knorm -o all/out.kv in.kv
	assert_regex "$stderr" '^kv-score: .*all/out.kv: .*Permission denied'
	run -1 --separate-stderr kv-prefill -q -m "$DEMO" --ids --logits all/out.kv -o b.kv - <<<'1 2 3'
	assert_regex "$stderr" '^kv-prefill: .*all/out.kv: .*Permission denied'
	assert_equal "$(cat target)" precious
	# one's own link is followed
	chown -h 0 all/out.kv
	kv-score -q --method knorm -o all/out.kv in.kv
	[ -L all/out.kv ] && kv-check -q target
}
