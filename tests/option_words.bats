#!/usr/bin/env bats
# Options of one program as words in the value of another one's option: --score, --evict, --select, --retrieve

load helper

setup_file() {
	load helper
	cd "$BATS_FILE_TMPDIR" || return
	seq 5 300 >ids
	printf '1 0\n0 0\n0.5 0\n0 0\n' >mask
}

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	ln -s "$BATS_FILE_TMPDIR"/* .
}

# evicted WORDS: the rows that stay
evicted() {
	kv-prefill -m "$DEMO" --ids --evict "$1" ids | kv-info --positions -
}

@test "quotes and backslashes keep a file's name in one word, as in sh" {
	local name quoted
	evicted 'head-mask=mask recent=20' >expected
	while IFS='|' read -r name quoted; do
		mkdir -p "$(dirname "$name")"
		cp mask "$name"
		diff <(evicted "$quoted recent=20") expected || fail "$quoted"
	done <<-'END'
		my mask|head-mask='my mask'
		my mask|head-mask="my mask"
		my mask|head-mask=my\ mask
		my mask|'head-mask=my mask'
		two  blanks/it's|head-mask="two  blanks/it's"
		two  blanks/it's|head-mask='two  blanks/it'\''s'
		say "x" \ y|head-mask="say \"x\" \\ y"
		back\slash|head-mask='back\slash'
		back\slash|head-mask="back\slash"
		$HOME *|head-mask='$HOME *'
	END
}

@test "a folder of learned tokens may have any name" {
	local prompt=$ROOT/examples/prompts/harbour.txt
	ln -s "$DEMO/lookahead" "my look'ahead"
	kv-prefill -m "$DEMO" --score "lookahead=my\\ look\\'ahead kernel=7" --evict rate=0.1 -o a.kv "$prompt"
	kv-prefill -m "$DEMO" --score "lookahead='$DEMO/lookahead' kernel=7" --evict rate=0.1 -o b.kv "$prompt"
	cmp a.kv b.kv
}

@test "a quote that is not closed is refused, and a backslash at the end stands for itself" {
	run -2 kv-prefill -m "$DEMO" --ids --evict "rate=0.1 head-mask='mask" ids
	assert_output "kv-prefill: --evict: the quote ' is not closed"
	run -2 kv-prefill -m "$DEMO" --ids --score '"snapkv' --evict rate=0.1 ids
	assert_output 'kv-prefill: --score: the quote " is not closed'
	cp mask 'mask\'
	evicted 'recent=20 head-mask=mask\' >/dev/null
	run -2 kv-prefill -m "$DEMO" --ids --evict "rate=''" ids
	assert_output --partial '--evict: rate needs a value'
}

@test "a snapshot has our name of the policy, quoted or not, and the other words as they were given" {
	local words
	while IFS='|' read -r words expected; do
		kv-prefill -m "$DEMO" --ids --score 'snapkv window=8' --evict "$words" -o x.kv ids
		run json <(kv-info --json x.kv) '"<%s>" % o["provenance"][0]["options"]["evict"]'
		assert_output "<$expected>"
	done <<-'END'
		rate=0.1  policy=pyramidkv sink=4|rate=0.1  policy=pyramid sink=4
		 policy="pyramidkv" rate='0.1'| policy=pyramid rate='0.1'
		policy=uniform rate=0.1 policy=ada\kv|policy=uniform rate=0.1 policy=ada
		policy=pyramidkv rate=0.1 policy=uniform|policy=pyramidkv rate=0.1 policy=uniform
	END
}
