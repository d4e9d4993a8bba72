#!/usr/bin/env bats
# bats file_tags=slow,nosan
# The scripts in examples/, as a newcomer runs them, and the demo model's own files

load helper

# graded_methods: in examples, below the working directory, the methods a, b and full, which are right on the documents that the files
# a.right, b.right and full.right name; documents 0001-x ... 0008-x and 0009-y ... 0012-y
graded_methods() {
	local i name
	cp -r "$ROOT/examples" .
	for name in a b full; do
		cat >"examples/methods/$name.sh" <<-END
			for prompt; do :; done
			[ ! -e "$PWD/$name.broken" ] || { echo broken >&2; exit 1; }
			answer=no
			! grep -q "^\$(basename "\$prompt" .txt)\\$" "$PWD/$name.right" || answer=yes
			echo "$name 10 10 10 10 10 \$answer"
		END
	done
	mkdir documents
	for i in 0001-x 0002-x 0003-x 0004-x 0005-x 0006-x 0007-x 0008-x 0009-y 0010-y 0011-y 0012-y; do
		echo "$i" >"documents/$i.txt"
		echo yes >"documents/$i.answer"
	done
}

@test "the quick start shows the same answer with all rows and with a tenth of them" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	# what was built stays, with whatever flags
	mkdir bin
	printf '#!/bin/sh\nexec %s -o all "$@"\n' "$(command -v make)" >bin/make
	chmod +x bin/make
	PATH=$PWD/bin:$PATH run sh "$ROOT/quickstart.sh"
	assert_success
	answer=$(cat "$ROOT/examples/prompts/harbour.answer")
	[ "$(grep -c "^     $answer\$" <<<"$output")" -eq 2 ]
	assert_line --regexp 'rows +7856, 100\.0 %'
	assert_line --regexp 'rows +784, 10\.0 %'
	assert_line --regexp 'keys \+ values +100352 bytes'
	assert_line --regexp '100\.00% +100\.00% +9\.98% +100352 '
}

@test "the quick start stops where the build fails" {
	cp -r "$ROOT/examples" "$ROOT"/*.sh "$BATS_TEST_TMPDIR"
	mkdir "$BATS_TEST_TMPDIR/tests"
	cp "$ROOT"/tests/*.sh "$BATS_TEST_TMPDIR/tests"
	printf 'all:\n\t@echo the build is broken && false\n' >"$BATS_TEST_TMPDIR/Makefile"
	O=build run sh "$BATS_TEST_TMPDIR/quickstart.sh"
	assert_failure
	assert_output --partial 'the build is broken'
	refute_output --partial 'With the whole cache'
}

@test "accuracy.sh finds the answers with the full cache and SnapKV, and not by recency" {
	run --separate-stderr sh "$ROOT/examples/accuracy.sh" --documents 3 --tokens 500
	assert_success
	assert_line 'full cache: 100'
	assert_line '| snapkv | 100 | 100 |'
	assert_line --regexp '^\| recent \| (0|33) \| (0|33|67) \|$'
}

@test "accuracy.sh fails when a program of its pipelines fails" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	cp "$O"/kv-* "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/kv-score"
	O=$BATS_TEST_TMPDIR/bin run sh "$ROOT/examples/accuracy.sh" --documents 1 --tokens 200
	assert_failure
	refute_output --partial 'full cache'
}

@test "every script in examples/methods prints one line, and the answer where the method should find it" {
	local script name method kept footprint memory peak read answer expected limit least most
	expected=$(cat "$ROOT/examples/prompts/harbour.answer")
	for script in "$ROOT"/examples/methods/*.sh; do
		name=$(basename "$script" .sh)
		[ "$name" != common ] || continue
		run -0 --separate-stderr sh "$script" -r 0.2
		[ "${#lines[@]}" -eq 1 ] || fail "$name: $output"
		read -r method kept footprint memory peak read answer <<<"$output"
		assert_equal "$method" "$name"
		case $name in
		full | kivi | pyramidinfer | q4 | q8 | simlayerkv) limit=100 ;;       # whose rate is no share of the rows
		clusterkv | fier | quest | quest-eval | shadowkv | specontext) limit=100 ;;
		snapkv-per-query-head) limit=42 ;;      # of two query heads for each KV head
		*) limit=21 ;;
		esac
		case $name in
		laq | oracle | speckv) least=100 most=110 ;;    # a draft runs on top of the whole cache
		kvcompose | kvzip | kvzip-plus) least=390 most=410 ;;   # and here the text again: T T + T (T + 1) / 2 besides T (T + 1) / 2
		lookaheadkv) least=0 most=110 ;;        # learned tokens, behind each layer
		*) least=0 most=100 ;;
		esac
		awk -v kept="$kept" -v footprint="$footprint" -v peak="$peak" -v read="$read" -v limit="$limit" -v least=$least -v most=$most 'BEGIN {
			exit !(kept > 0 && kept <= limit && footprint > least && footprint <= most && peak > least / 2 && peak <= most &&
			    read > 0 && read <= kept)
		}' || fail "$name: $output"
		case $name in
		*-fused | fastkv | gemfilter | lookaheadkv | pyramidinfer)      # layer by layer
			awk -v footprint="$footprint" -v memory="$memory" 'BEGIN { exit !(memory > 0 && memory < footprint) }' || fail "$name: $output"
			;;
		*) assert_equal "$memory" "$footprint" ;;
		esac
		case $name in
		clusterkv | fier | quest | quest-eval | shadowkv | specontext)
			awk -v read="$read" 'BEGIN { exit !(read < 80) }' || fail "$name reads $read %"
			assert_equal "$answer" "$expected"
			;;
		full | kivi | q4 | q8 | adakv | chunked-patched | fastkv | fastkv-fused | keydiff | laq | lookaheadkv | oracle | pyramidinfer | pyramidkv | snapkv | snapkv-fused | speckv | tova | tova-decode)
			assert_equal "$answer" "$expected"
			;;
		esac
	done
}

@test "every method takes types of rows, and counts the bytes that it reads of them" {
	local name words read plain
	for name in snapkv fier quest adakv snapkv-fused h2o-decode; do
		in_sample 2 || continue
		read -r _ _ _ _ _ plain _ < <(sh "$ROOT/examples/methods/$name.sh" -r 0.2)
		for words in "q8_0 q8_0" "q4_0-hadamard q4_0" "bf16 int8"; do
			# shellcheck disable=SC2086 # words
			set -- $words
			run -0 --separate-stderr sh "$ROOT/examples/methods/$name.sh" -r 0.2 -s keys="$1" -s values="$2"
			read -r _ _ _ _ _ read _ <<<"$output"
			less "$read" "$plain" || fail "$name $words: $output, $plain without"
			# H2O answers wrongly with rows in bf16, too
			[ "$name" = h2o-decode ] || assert_regex "$output" 'L047$'
		done
	done
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -s 'keys=q8_0;x'
	assert_output 'snapkv.sh: -s keys: not a word of letters and digits'
}

@test "a script of examples/methods fails when a program of its pipeline fails, and on options it does not know" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/bin/kv-score"
	chmod +x "$BATS_TEST_TMPDIR/bin/kv-score"
	PATH=$BATS_TEST_TMPDIR/bin:$PATH run ! sh "$ROOT/examples/methods/snapkv.sh"
	refute_output --partial snapkv
	run -2 sh "$ROOT/examples/methods/snapkv.sh" -x
	assert_line --partial 'usage: snapkv.sh [-b BUDGET | -r RATE] '
	run -2 sh "$ROOT/examples/methods/snapkv.sh" one two
}

@test "an answer of several lines is one line" {
	run -0 --separate-stderr sh "$ROOT/examples/methods/full.sh" -S '' -n 20
	[ "${#lines[@]}" -eq 1 ]
	assert_output --partial 'L047. Question:'
}

@test "compare.sh prints means over documents for each method and rate, and draws them" {
	local plot=()
	cd "$BATS_TEST_TMPDIR" || exit 1
	! command -v gnuplot >/dev/null || plot=(-p x.svg)
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -n 2 -t 400 -r "0.2 0.5" -M "full snapkv snapkv-fused streamingllm" "${plot[@]}" -T x.tsv
	assert_line --regexp '^\| full \| all \| 100 \| 100\.0 \| 100\.0 \| 100\.0 \| 100\.0 \| 100\.0 \| '
	assert_line --regexp '^\| snapkv \| 0\.2 \| 100 \| 19\.[0-9] \| 9[0-9]\.[0-9] \| 9[0-9]\.[0-9] \| 9[0-9]\.[0-9] \| 19\.[0-9] \| '
	assert_line --regexp '^\| snapkv-fused \| 0\.2 \| 100 \| 19\.[0-9] \| 9[0-9]\.[0-9] \| [34][0-9]\.[0-9] \| [34][0-9]\.[0-9] \| 19\.[0-9] \| '
	assert_line --regexp '^\| streamingllm \| 0\.5 \| [0-9]+ \| (49|50)\.[0-9] \| '
	assert_line --regexp 'always +snapkv$'
	assert_line 'critical memory'
	assert_line 'critical share read at each step'
	[ "$(wc -l <x.tsv)" -eq 15 ]
	[ "$(grep -v '^#' x.tsv | cut -f 1,2 | sort -u | wc -l)" -eq 7 ]
	if [ "${#plot[@]}" -gt 0 ]; then
		grep -q '<svg' x.svg
		grep -q streamingllm x.svg
		grep -q 'read at each step' x.svg
	fi
}

@test "compare.sh marks what keeps more than was asked for, leaves out panels without a difference, and its labels stand in the picture" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	command -v gnuplot >/dev/null || skip "there is no gnuplot"
	sh "$ROOT/examples/compare.sh" -c -n 1 -t 400 -r "0.2" -M "full snapkv streamingllm pyramidinfer" -T x.tsv -p all.svg >table
	grep -q '^| pyramidinfer | 0.2 | [0-9]* | [0-9.]* \\\* | ' table
	grep -qFx '\* more rows than were asked for: some are kept in any case' table
	[ "$(grep -cF '\*' table)" -eq 2 ]
	grep -q 'KV footprint' all.svg
	grep -q 'more than asked' all.svg
	# the label at the left is turned upright about its middle
	run -0 sed -n '/translate([0-9.]*,[0-9.]*) rotate(270)/{s/.*translate(\([0-9.]*\),.*/\1/; p}' all.svg
	awk -v x="${lines[0]}" 'BEGIN { exit !(x > 10) }'
	sh "$ROOT/examples/compare.sh" -c -n 1 -t 400 -r "0.2" -M "full snapkv streamingllm" -T x.tsv -p less.svg >table
	run ! grep -qF '\*' table
	run ! grep -q 'KV footprint\|more than asked' less.svg
	grep -q 'rows kept' less.svg
}

@test "compare.sh takes budgets in rows, for what is kept and for what is read" {
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -n 1 -t 400 -b "32 64" -M "fier snapkv"
	assert_line --regexp '^\| snapkv \| 32 \| [0-9]+ \| [78]\.[0-9] \| 9[0-9]\.[0-9] \| 9[0-9]\.[0-9] \| 9[0-9]\.[0-9] \| [78]\.[0-9] \| '
	assert_line --regexp '^\| fier \| 64 \| 100 \| 100\.0 \| 100\.0 \| 100\.0 \| 100\.0 \| 6[0-9]\.[0-9] \| '
}

@test "compare.sh goes on when a method fails, names it and exits with 1" {
	cp -r "$ROOT/examples" "$BATS_TEST_TMPDIR"
	printf '#!/bin/sh\necho the reason >&2\nexit 3\n' >"$BATS_TEST_TMPDIR/examples/methods/broken.sh"
	run -1 --separate-stderr sh "$BATS_TEST_TMPDIR/examples/compare.sh" -n 2 -t 300 -r 0.5 -M "broken snapkv"
	assert_line --regexp '^\| snapkv \| 0\.5 \| 100 \| '
	refute_line --partial broken
	assert_regex "$stderr" '2 of 4 runs failed; they are in no mean:'
	assert_regex "$stderr" 'broken at 0\.5, 2 times: the reason'
}

@test "compare.sh says before the first run that gnuplot is missing, and refuses other plots and methods" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	cp -rs /usr/bin bin
	rm -f bin/gnuplot*
	PATH=$O:$PWD/bin run -1 sh "$ROOT/examples/compare.sh" -n 1 -t 300 -r 0.5 -M snapkv -p x.png -T x.tsv
	assert_output "compare.sh: there is no gnuplot to draw x.png with (on Debian: apt-get install gnuplot-nox)"
	[ ! -e x.png ] && [ ! -e x.tsv ]
	run -2 sh "$ROOT/examples/compare.sh" -p x.pdf
	run -2 sh "$ROOT/examples/compare.sh" -M nothing
	run -2 sh "$ROOT/examples/compare.sh" stray
	run -2 sh "$ROOT/examples/compare.sh" -x
}

@test "compare.sh -h and --help print what its options are" {
	run -0 sh "$ROOT/examples/compare.sh" --help
	assert_line --partial 'usage: examples/compare.sh '
	assert_line --regexp '^ +-T TABLE '
	refute_line --partial 'set -eu'
	sh "$ROOT/examples/compare.sh" -h | diff - <(echo "$output")
}

# Wilson's limits by bisection of |share - p| = z sqrt(p (1 - p) / n), the sign test by binomial coefficients, both in Python:
# 8 of 12: 39.06 to 86.19, 5 of 12: 19.33 to 68.05, 8 of 8: 67.56 to 100, 1 of 8: 2.24 to 47.09, 0 of 4: 0 to 48.99, 4 of 4: 51.01 to 100;
# 4 against 7: p = 2 * 562 / 2^11 = 0.5488, 7 against none: 2 / 2^7 = 0.0156.
@test "compare.sh prints 95 % intervals, accuracy by kind, and a method against another document by document" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	graded_methods
	printf '%s-x\n' 0001 0002 0003 0004 0005 0006 0007 0008 >a.right
	printf '%s\n' 0001-x 0009-y 0010-y 0011-y 0012-y >b.right
	run -0 --separate-stderr sh examples/compare.sh -k -P a -d documents -M "a b" -r "0.1 0.2" -T x.tsv
	assert_line --regexp '^\| a \| 0\.1 \| 67 \| .* \| 39-86 \|$'
	assert_line --regexp '^\| b \| 0\.2 \| 42 \| .* \| 19-68 \|$'
	assert_line '| method | rate | x | y |'
	assert_line '| a | 0.1 | 100 (68-100) | 0 (0-49) |'
	assert_line '| b | 0.2 | 12 (2-47) | 100 (51-100) |'
	assert_line 'compared with a, document by document'
	assert_line '| method | rate | documents | only it is right | only a is | p | x | y |'
	assert_line '| b | 0.1 | 12 | 4 | 7 | 0.55 | +0 -7 | +4 -0 |'
	refute_line --regexp '^\| a \| 0\.1 \| 12 '
	sed -i '/-y/d' b.right
	rm x.tsv
	run -0 --separate-stderr sh examples/compare.sh -P b -d documents -M "a b" -r 0.1 -n 8 -T x.tsv
	assert_line '| a | 0.1 | 8 | 7 | 0 | 0.016 |'
	refute_line --partial '| x |'
}

@test "compare.sh compares documents that both methods have answered, all rates with the full cache, and refuses what it cannot" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	graded_methods
	sed -n 's/\.txt$//p' <(basename -a documents/*.txt) >a.right
	printf '0001-x\n0009-y\n' >full.right
	run -0 --separate-stderr sh examples/compare.sh -P full -d documents -M "full a" -r "0.1 0.2" -n 10 -T x.tsv
	assert_line '| a | 0.1 | 10 | 8 | 0 | 0.0078 |'
	assert_line '| a | 0.2 | 10 | 8 | 0 | 0.0078 |'
	touch a.broken
	run -1 --separate-stderr sh examples/compare.sh -P full -k -d documents -M "full a" -r 0.1 -T x.tsv
	assert_line '| full | all | 12 (2-47) | 25 (5-70) |'
	assert_line '| a | 0.1 | 10 | 8 | 0 | 0.0078 | +7 -0 | +1 -0 |'
	run -2 sh examples/compare.sh -P b -d documents -M "full a"
	assert_output 'compare.sh: -P b: it is not among the methods that are run'
	run -2 sh examples/compare.sh -k -n 1 -t 300 -M full
	assert_output 'compare.sh: -k: the name 0001 has no kind behind a -'
}

@test "compare.sh -c runs the prefill of a document once, with the same results" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir bin
	printf '#!/bin/sh\necho >>"%s"\nexec "%s" "$@"\n' "$PWD/prefills" "$O/kv-prefill" >bin/kv-prefill
	chmod +x bin/kv-prefill
	PATH=$PWD/bin:$PATH
	local documents=1 methods="full snapkv laq kvzip oracle speckv keydiff tova fastkv h2o fier snapkv-fused chunked-naive"
	! all_cases || documents=2
	run -0 sh "$ROOT/examples/compare.sh" -n $documents -t 300 -r "0.1 0.3" -M "$methods" -T apart.tsv
	rm prefills
	run -0 sh "$ROOT/examples/compare.sh" -c -n $documents -t 300 -r "0.1 0.3" -M "$methods" -T shared.tsv
	diff <(grep -v '^#' apart.tsv | cut -f 1-7,9-) <(grep -v '^#' shared.tsv | cut -f 1-7,9-)
	# of each document: as it is, with 16 queries, with one, FastKV's, H2O's; at each rate one fused and four chunks
	assert_equal "$(wc -l <prefills)" $((documents * (5 + 2 * (1 + 4))))
	run -2 sh "$ROOT/examples/compare.sh" -n $documents -t 300 -r "0.1 0.3" -M full -T shared.tsv
	assert_output --partial 'shared.tsv has other settings'
}

@test "a script of examples/methods finds in its cache what another one left there, for the same prompt and model only" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	stub_programs
	other_model other
	mkdir cache
	echo one >one.txt
	echo two >two.txt
	calls keydiff -m other -c cache one.txt
	assert_line 'kv-prefill -q -m other one.txt'
	calls knorm -m other -c cache one.txt
	refute_line --partial kv-prefill
	calls snapkv -m other -c cache one.txt
	assert_line 'kv-prefill -q -m other --observe 32 one.txt'
	calls knorm -m other -c cache two.txt
	assert_line 'kv-prefill -q -m other two.txt'
	echo three >two.txt
	calls knorm -m other -c cache two.txt
	assert_line 'kv-prefill -q -m other two.txt'
	echo '{ "num_hidden_layers": 8 }' >other/config.json
	calls knorm -m other -c cache one.txt
	assert_line 'kv-prefill -q -m other one.txt'
	calls knorm -m other one.txt
	assert_line 'kv-prefill -q -m other one.txt'
	run -2 sh "$ROOT/examples/methods/knorm.sh" -c nowhere
	assert_output 'knorm.sh: -c nowhere: there is no such folder'
}

@test "a prefill that fails leaves nothing in the cache of examples/methods" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir bin cache
	printf '#!/bin/sh\necho half\nexit 1\n' >bin/kv-prefill
	chmod +x bin/kv-prefill
	for name in full kvzip oracle snapkv speckv; do
		PATH=$PWD/bin:$PATH run ! sh "$ROOT/examples/methods/$name.sh" -c cache
	done
	assert_equal "$(find cache -type f ! -name '*.lock')" ''
}

@test "scripts of examples/methods that run at the same time share one prefill" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir bin cache
	printf '#!/bin/sh\necho once >>prefills\nsleep 1\nexec "%s" "$@"\n' "$(command -v kv-prefill)" >bin/kv-prefill
	chmod +x bin/kv-prefill
	for name in full knorm keydiff; do
		PATH=$PWD/bin:$PATH sh "$ROOT/examples/methods/$name.sh" -c cache >"$name.line" &
	done
	wait
	assert_equal "$(wc -l <prefills)" 1
	for name in full knorm keydiff; do
		assert_equal "$(cat "$name.line")" "$(sh "$ROOT/examples/methods/$name.sh")"
	done
}

@test "a script that is given token ids and is to save its snapshot gives the answer of the text in two steps" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	model=$ROOT/examples/demo-model prompt=$ROOT/examples/prompts/harbour.txt
	kv-tokenize -m "$model" "$prompt" >ids
	for name in full snapkv chunked-patched speckv duoattention fier h2o-decode streamingllm-rotated; do
		sh "$ROOT/examples/methods/$name.sh" -i -o saved.kv ids >line
		assert_equal "$(cat line)" ''
		mapfile -t words <saved.kv.options
		said=$(kv-decode -q -m "$model" -n 12 --stop . "${words[@]}" saved.kv)
		assert_equal "$(sh "$ROOT/examples/methods/$name.sh" "$prompt" | awk '{ print $7 }')" "${said# }"
	done
}

@test "the oracle runs the full cache's own answer behind the prompt, and keeps what a short budget loses otherwise" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -n 3 -t 300 -r 0.05 -M "snapkv oracle"
	assert_line --regexp '^\| snapkv \| 0\.05 \| 0 \| '
	assert_line --regexp '^\| oracle \| 0\.05 \| 100 \| '
	stub_programs
	other_model other
	calls oracle -m other -n 20 -S END -s kernel=1
	assert_line 'kv-prefill -q -m other '"$ROOT/examples/methods/../prompts/harbour.txt"
	assert_line --regexp '^kv-decode -q -m other --ids -n 20 --stop END [^ ]*/full\.kv$'
	assert_line --regexp '^kv-observe -q -m other --ids-from [^ ]* [^ ]*/full\.kv$'
	assert_line 'kv-score --method snapkv --kernel 1 --pool max'
	calls oracle -m other -s draft=5
	assert_line --regexp '^kv-decode -q -m other --ids -n 5 [^ ]*/full\.kv$'
	assert_line --regexp '^kv-decode -q -m other -n 32 -o '
}

@test "compare.sh takes documents from a folder, and an answer is right when it contains the expected one" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	mkdir documents
	for name in a b c; do
		cp "$ROOT/examples/prompts/harbour.txt" documents/$name.txt
	done
	echo 'l047' >documents/a.answer
	echo '04' >documents/b.answer
	echo 'L0477' >documents/c.answer
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -d documents -m "$DEMO" -M full -T x.tsv
	assert_line --index 0 '3 documents of documents'
	assert_line --regexp '^\| full \| all \| 67 \| '
	assert_equal "$(grep -v '^#' x.tsv | cut -f 3,4 | tr '\t\n' '= ')" 'a=1 b=1 c=0 '
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -d documents -M full -n 1
	assert_line --index 0 '1 documents of documents'
	printf 'L0\n47\n' >documents/a.answer
	printf 'L047\nL048\n' >documents/b.answer
	run -0 sh "$ROOT/examples/compare.sh" -d documents -M full -T lines.tsv
	assert_equal "$(grep -v '^#' lines.tsv | cut -f 3,4 | tr '\t\n' '= ')" 'a=1 b=0 c=0 '
	rm documents/b.answer
	run -2 sh "$ROOT/examples/compare.sh" -d documents
	assert_output --partial 'documents/b.txt needs documents/b.answer'
	other_model other
	run -2 sh "$ROOT/examples/compare.sh" -m other
	assert_output --partial 'name a folder of *.txt and *.answer with -d'
	run -2 sh "$ROOT/examples/compare.sh" -d "$DEMO"
	run -2 sh "$ROOT/examples/compare.sh" -d documents -s 2
}

@test "compare.sh does no run that is in the table already, and refuses a table of other settings" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	run -0 sh "$ROOT/examples/compare.sh" -n 1 -t 300 -r 0.5 -M snapkv -T x.tsv
	sed -i 's/\t50\.00\t/\t10.00\t/' x.tsv
	printf 'full\tall\t0001\t1\t10' >>x.tsv
	run -0 --separate-stderr sh "$ROOT/examples/compare.sh" -n 2 -t 300 -r 0.5 -M "full snapkv" -T x.tsv
	assert_equal "$stderr" 'compare.sh: 1 of 4 runs are in x.tsv already'
	assert_line --regexp '^\| full \| all \| 100 \| 100\.0 \| '
	assert_line --regexp '^\| snapkv \| 0\.5 \| 100 \| 30\.0 \| '
	[ "$(wc -l <x.tsv)" -eq 5 ]
	cp x.tsv kept.tsv
	run -2 sh "$ROOT/examples/compare.sh" -n 2 -t 300 -s 7 -r 0.5 -M snapkv -T x.tsv
	assert_line 'compare.sh: x.tsv has other settings, or is no table of this program:'
	sed '1s/; with memory$//' kept.tsv >older.tsv
	run -2 sh "$ROOT/examples/compare.sh" -n 2 -t 300 -r 0.5 -M snapkv -T older.tsv
	run -2 sh "$ROOT/examples/compare.sh" -n 2 -t 300 -b 50 -M snapkv -T x.tsv
	run -2 sh "$ROOT/examples/compare.sh" -n 2 -t 300 -r 0.5 -C /dev/null -M snapkv -T x.tsv
	cmp x.tsv kept.tsv
}

@test "compare.sh that is interrupted leaves its table, and goes on from there" {
	cp -r "$ROOT/examples" "$BATS_TEST_TMPDIR"
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf '#!/bin/sh\nkill -INT $PPID\nexit 1\n' >examples/methods/slow.sh
	run -130 env --default-signal=INT sh examples/compare.sh -n 1 -t 300 -r 0.5 -M "full slow" -T x.tsv
	assert_output 'compare.sh: interrupted: x.tsv has the runs so far, and the same command goes on from there'
	[ "$(wc -l <x.tsv)" -eq 2 ]
	cp examples/methods/snapkv.sh examples/methods/slow.sh
	run -0 sh examples/compare.sh -n 1 -t 300 -r 0.5 -M "full slow" -T x.tsv
	assert_line 'compare.sh: 1 of 2 runs are in x.tsv already'
	assert_line --regexp '^\| slow \| 0\.5 \| 100 \| '
}

@test "documents.py writes the same documents for the same seed, and the answer stands in each" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	for folder in a b; do
		"$PYTHON" "$DEMO/documents.py" --n 5 --tokens 300 --seed 9 --digits 0 --out $folder
	done
	diff -r a b
	for answer in a/*.answer; do
		text=${answer%.answer}.txt
		name=$(sed -n 's/^Question: what is the access code of \(.*\)?/\1/p' "$text")
		grep -q "The access code of $name is $(cat "$answer")\." "$text"
		[ "$(kv-tokenize -m "$DEMO" --count "$text")" -le 304 ]
	done
	run -2 "$PYTHON" "$DEMO/documents.py" --tokens 50 --needles 9 --out c
}

@test "the prompt of the quick start comes from documents.py" {
	"$PYTHON" "$DEMO/documents.py" --n 1 --tokens 1000 --seed 6 --out "$BATS_TEST_TMPDIR"
	cmp "$BATS_TEST_TMPDIR/0001.txt" "$ROOT/examples/prompts/harbour.txt"
	cmp "$BATS_TEST_TMPDIR/0001.answer" "$ROOT/examples/prompts/harbour.answer"
}

@test "bpe.py makes tokenizer.json, byte for byte" {
	"$PYTHON" "$DEMO/bpe.py" 1277 -o "$BATS_TEST_TMPDIR/tokenizer.json"
	cmp "$BATS_TEST_TMPDIR/tokenizer.json" "$DEMO/tokenizer.json"
}

@test "NumPy computes the logits in golden.json" {
	run "$PYTHON" "$DEMO/check_golden.py"
	assert_success
	[ "${#lines[@]}" -eq 3 ]
}

@test "kept.sh draws the picture of README.md, but for rows whose scores are nearly the same" {
	PYTHON=$PYTHON sh "$ROOT/examples/kept.sh" "$BATS_TEST_TMPDIR/kept.svg"
	# each row is a path of its own behind M; a processor without AVX2 keeps two others
	run diff <(tr M '\n' <"$BATS_TEST_TMPDIR/kept.svg") <(tr M '\n' <"$ROOT/examples/kept.svg")
	assert [ "$(grep -c '^[<>]' <<<"$output")" -le 20 ]
	grep -qF '](examples/kept.svg)' "$ROOT/README.md"
}

# run_blocks FILE: runs the commands of its blocks of console (`printed`; what stands there is `shown`), with examples/ in the working directory
run_blocks() {
	sed -n '/^```console/,/^```$/ { /^```/d; p; }' "$1" >block
	sed -n 's/^[$>] //p' block >commands
	grep -v '^[$>] ' block >shown
	bash commands >printed
}

@test "the pipeline in README.md prints what stands there" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$ROOT/examples" examples
	run_blocks "$ROOT/README.md"
	[ "$(grep -c kv- commands)" -eq 2 ]
	diff shown <(cat printed; echo)
}

@test "README.md names the two commands, fits a screen's width and is no longer than a few" {
	run -0 grep -E '^sh (quickstart|tests/run)\.sh ' "$ROOT/README.md"
	[ "${#lines[@]}" -eq 2 ]
	run awk 'length > 100' "$ROOT/README.md"
	assert_output ''
	[ "$(wc -l <"$ROOT/README.md")" -le 130 ]
	[ "$(wc -w <"$ROOT/README.md")" -le 1000 ]
}

@test "the figures of README.md are those of the cards" {
	local card=$ROOT/examples/smollm2/README.md name method rows
	while IFS='|' read -r _ name rows; do
		case $name in
		*full*) method=full ;;
		*) method=$(tr 'A-Z' 'a-z' <<<"${name%%(*}" | tr -d ' ') ;;
		esac
		# right, kept, read, memory; the card has the footprint before memory
		assert_equal "$(tr -d ' ' <<<"$rows")" "$(awk -F '|' -v method="$method" '
			$2 == " " method " " { gsub(/ /, ""); print $3 "|" $4 "|" $5 "|" $7 "|"; exit }' "$card")"
	done < <(sed -n '/^| method |/,/^$/ { /^| [^m]/p; }' "$ROOT/README.md")
	[ -n "$method" ]
}

@test "compare.sh takes a script of the user's, and says what a Python stage that fails has said" {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf '%s\n' '. "$KVPIPE_METHODS/common.sh"' settings 'shared prefill | kv-score --method knorm | kv-evict --rate "$rate" -o "$out"' report >mine.sh
	printf '%s\n' '. "$KVPIPE_METHODS/common.sh"' settings 'shared prefill | "$PYTHON" -c "import no_such_module" | kv-evict --rate "$rate" -o "$out"' report >broken.sh
	run -1 --separate-stderr sh "$ROOT/examples/compare.sh" -n 1 -t 300 -r 0.5 -M './mine.sh knorm ./broken.sh' -T t.tsv
	assert_equal "$(awk -F '\t' '$1 == "mine" { $1 = $8 = ""; print }' t.tsv)" "$(awk -F '\t' '$1 == "knorm" { $1 = $8 = ""; print }' t.tsv)"
	[ "$(grep -c '^mine' t.tsv)" = 1 ]
	[[ "$stderr" == *"broken at 0.5, 1 times: ModuleNotFoundError: No module named 'no_such_module'"* ]] || fail "$stderr"
	cp mine.sh knorm.sh
	run -2 sh "$ROOT/examples/compare.sh" -n 1 -M ./knorm.sh
	assert_output "compare.sh: -M ./knorm.sh: there is a method knorm, take another name"
	run -2 sh "$ROOT/examples/compare.sh" -n 1 -M ./none.sh
	assert_output "compare.sh: there is no ./none.sh"
}
