#!/usr/bin/env bats
# Files that are something else than their names say: Git LFS pointers, half downloads, web pages, other formats

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf 'The harbour of Elmford' >text
	mkdir m
	cp "$DEMO"/{config.json,generation_config.json,tokenizer.json,tokenizer_config.json,model.safetensors} m
	chmod -R u+w m
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 2747412\n' >lfs
	printf '\n <!DOCTYPE html>\n<html><body>Sign in</body></html>\n' >html
	: >empty
	head -c 4096 /dev/zero >zero
	echo '{"a": 1}' | gzip -n >gzip
	printf 'PK\003\004\024\000archive/data.pkl' >zip
	printf 'GGUF\003\000\000\000' >gguf
	printf '\377\376{\000}\000' >utf16
}

# instead FILE KIND: what is in the file KIND takes the place of m/FILE
instead() {
	rm -rf m2
	cp -r m m2
	cp "$2" "m2/$1"
}

# says STATUS MESSAGE PROGRAM ...: it ends with this status and this one line, and writes nothing
says() {
	run "-$1" --separate-stderr "${@:3}"
	# shellcheck disable=SC2154 # bats sets it
	[[ "$stderr" == *"$2"* ]] || { echo "${*:3}: $stderr"; return 1; }
	# shellcheck disable=SC2154 # bats sets it
	assert_equal "${#stderr_lines[@]}" 1
	[ ! -e x.kv ]
}

words='lfs|a Git LFS pointer, not the file: run `git lfs pull`
html|a web page (HTML), as a login or a proxy sends
empty|it is empty: download it again
zero|it begins with zero bytes only
gzip|compressed with gzip: unpack it first'

@test "each file of a model folder that is a pointer, a web page, empty, zero or packed is told what it is" {
	local file kind what
	while IFS='|' read -r kind what; do
		for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
			instead "$file" "$kind"
			says 3 "kv-prefill: m2/$file: $what" kv-prefill -m m2 -o x.kv text
		done
		for file in tokenizer.json tokenizer_config.json; do
			instead "$file" "$kind"
			says 3 "kv-tokenize: m2/$file: $what" kv-tokenize -m m2 text
		done
	done <<<"$words"
}

@test "weights and texts in another format are told which" {
	instead model.safetensors zip
	says 3 'm2/model.safetensors: a zip archive (PyTorch weights)' kv-prefill -m m2 -o x.kv text
	instead model.safetensors gguf
	says 3 'm2/model.safetensors: a GGUF file' kv-prefill -m m2 -o x.kv text
	instead model.safetensors m/config.json
	says 3 'm2/model.safetensors: a JSON text, not weights' kv-prefill -m m2 -o x.kv text
	instead config.json utf16
	says 3 'm2/config.json: text in UTF-16: save it as UTF-8' kv-prefill -m m2 -o x.kv text
	instead tokenizer.json m/model.safetensors
	says 3 'm2/tokenizer.json: a safetensors file' kv-tokenize -m m2 text
}

@test "shards and their index, adapters and retrieval heads are told, too" {
	mv m/model.safetensors m/1.safetensors
	echo '{"weight_map": {"model.norm.weight": "1.safetensors"}}' >m/model.safetensors.index.json
	run -0 kv-prefill -q -m m -o y.kv text
	instead 1.safetensors lfs
	says 3 'm2/1.safetensors: a Git LFS pointer' kv-prefill -m m2 -o x.kv text
	instead model.safetensors.index.json html
	says 3 'm2/model.safetensors.index.json: a web page' kv-prefill -m m2 -o x.kv text
	cp -r "$DEMO/lookahead" adapter
	chmod -R u+w adapter
	cp lfs adapter/adapter_model.safetensors
	says 3 'adapter/adapter_model.safetensors: a Git LFS pointer' kv-observe -q -m m --lookahead adapter -o x.kv y.kv
	cp html adapter/adapter_config.json
	says 3 'adapter/adapter_config.json: a web page' kv-observe -q -m m --lookahead adapter -o x.kv y.kv
	cp -r "$DEMO/retrieval-head" head
	chmod -R u+w head
	cp lfs head/model.safetensors
	says 3 'head/model.safetensors: a Git LFS pointer' kv-prefill -q -m m --retrieval-head head -o x.kv text
}

@test "a link to nothing, as in a hub cache that is not complete, is told with what it leads to" {
	local file
	for file in config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors; do
		rm -rf m2
		cp -r m m2
		ln -sf ../blobs/0123abc "m2/$file"
		says 1 "m2/$file: a link to ../blobs/0123abc, which does not exist" kv-prefill -m m2 -o x.kv text
	done
	rm m/model.safetensors
	echo '{"weight_map": {"a": "1.safetensors"}}' >m/model.safetensors.index.json
	says 1 'missing shard 1.safetensors: the download is not complete' kv-prefill -m m -o x.kv text
	ln -s ../blobs/4567def m/1.safetensors
	says 1 'm/1.safetensors: a link to ../blobs/4567def, which does not exist' kv-prefill -m m -o x.kv text
}

@test "chat templates: a pointer, a web page and a link to nothing are told" {
	cp lfs m/tokenizer_config.json
	says 3 'kv-chat: m/tokenizer_config.json: a Git LFS pointer' kv-chat -m m --user hello
	cp "$DEMO/tokenizer_config.json" m
	ln -s ../blobs/0 m/chat_template.jinja
	says 1 'm/chat_template.jinja: a link to ../blobs/0, which does not exist' kv-chat -m m --user hello
}

@test "what is no snapshot is told what it is, also through standard input" {
	local kind what
	while IFS='|' read -r kind what; do
		[ "$kind" != empty ] || continue
		says 3 "kv-check: $kind: not a KV snapshot: $what" kv-check "$kind"
		says 3 "kv-check: stdin: not a KV snapshot: $what" kv-check <"$kind"
	done <<<"$words"
	says 3 'not a KV snapshot: a safetensors file: if it holds a cache, convert it with kv-convert' kv-info m/model.safetensors
	says 3 'not a KV snapshot: a JSON text' kv-info m/config.json
	says 3 'harbour.txt: not a KV snapshot: wrong magic' kv-info "$ROOT/examples/prompts/harbour.txt"
	says 3 'lfs: not a KV snapshot: a Git LFS pointer' kv-convert -o x.kv lfs
	says 3 'stdin: not a KV snapshot: compressed with gzip' kv-evict --rate 0.5 -o x.kv <gzip
}

@test "a zero character in a vocabulary is told in our words, and a number that Python has for no limit is no mistake" {
	"$PYTHON" -c 'import json
t = json.load(open("m/tokenizer.json"))
t["model"]["vocab"]["\0"] = 1535
json.dump(t, open("m/tokenizer.json", "w"))'
	run -3 --separate-stderr kv-tokenize -m m text
	[[ "$stderr" == *'a zero character (\u0000), which is not supported'* ]] || { echo "$stderr"; return 1; }
	[[ "$stderr" != *JSON_ALLOW_NUL* ]]
	cp "$DEMO/tokenizer.json" m
	kv-tokenize -m m text >ids
	"$PYTHON" -c 'import json
t = json.load(open("m/tokenizer_config.json"))
t["model_max_length"] = 1000000000000000019884624838656
json.dump(t, open("m/tokenizer_config.json", "w"))'
	kv-tokenize -m m text | cmp - ids
	kv-chat -m m --template chatml --user hello >one || [ $? -eq 5 ]
}
