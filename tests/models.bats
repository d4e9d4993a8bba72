#!/usr/bin/env bats
# What people have where a model folder is expected, and keys of config.json

load helper

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	printf 'The harbour of Elmford' >text
	mkdir m
	cp "$DEMO"/{config.json,tokenizer.json,model.safetensors} m
	chmod -R u+w m
}

# refused STATUS FOLDER MESSAGE ...: by kv-prefill, in one line with all of these parts, and without output
refused() {
	local status=$1 folder=$2 part
	shift 2
	run -"$status" --separate-stderr kv-prefill -m "$folder" -o x.kv text
	[ "${#stderr_lines[@]}" -eq 1 ]
	for part; do
		[[ "$stderr" == *"$part"* ]] || { echo "$stderr"; return 1; }
	done
	[ ! -e x.kv ]
}

# set_key KEY JSON
set_key() {
	"$PYTHON" -c 'import json, sys
c = json.load(open("m/config.json"))
c[sys.argv[1]] = json.loads(sys.argv[2])
json.dump(c, open("m/config.json", "w"))' "$1" "$2"
}

@test "the id of a model on the hub is told from a folder that is missing" {
	refused 1 org/Name-1.5B 'org/Name-1.5B: No such file or directory' 'hf download org/Name-1.5B --local-dir DIR'
	run -1 --separate-stderr kv-prefill -m ./nowhere text
	[[ "$stderr" == 'kv-prefill: ./nowhere: No such file or directory' ]]
	run -1 --separate-stderr kv-tokenize -m org/name text
	[[ "$stderr" == *'hf download'* ]]
}

@test "half a GGUF file, any other file, and a folder with a GGUF file are told what they are" {
	printf 'GGUF\003' >model.gguf
	refused 3 model.gguf 'model.gguf: byte 4: truncated'
	refused 1 m/model.safetensors 'a file: want a folder' 'or a GGUF file'
	mkdir g && cp model.gguf g
	refused 1 g 'g: no config.json, but model.gguf, a model of llama.cpp: name that file'
}

@test "a folder of the hub's cache stands for the snapshot that refs/main names" {
	mkdir -p models--org--name/{refs,snapshots}
	mv m models--org--name/snapshots/0123abc
	refused 1 models--org--name 'a hub cache without refs/main' 'models--org--name/snapshots'
	echo 0123abc >models--org--name/refs/main
	kv-prefill -m models--org--name text >hub.kv
	kv-prefill -m "$DEMO" text >demo.kv
	cmp hub.kv demo.kv
	kv-tokenize -m models--org--name text >ids
	[ -s ids ]
	echo 4567def >models--org--name/refs/main
	refused 1 models--org--name 'a hub cache without snapshots/4567def' 'download it again'
	echo ../../m >models--org--name/refs/main
	refused 1 models--org--name 'a hub cache without refs/main'
}

@test "a LoRA adapter, authors' weights and pickled weights are no model folder" {
	mkdir lora && echo '{}' >lora/adapter_config.json
	refused 5 lora 'lora: a LoRA adapter' 'merge it into its base model'
	mkdir params && echo '{}' >params/params.json
	refused 5 params 'in the form of their authors'
	rm m/model.safetensors && touch m/pytorch_model.bin
	refused 5 m "PyTorch pickles (pytorch_model.bin)" 'save_pretrained()'
	rm m/pytorch_model.bin && touch m/other.safetensors
	refused 5 m 'neither model.safetensors nor its index.json, but other.safetensors'
}

@test "a key that is unknown is refused by name, and passed over with --allow-config" {
	kv-prefill -m m text >plain.kv
	set_key mystery true
	refused 5 m 'm/config.json: unknown key "mystery"' '--allow-config mystery'
	set_key rope_scaling '{"rope_type": "default", "riddle": 7}'
	run -5 kv-prefill -m m --allow-config mystery text
	assert_output --partial 'rope_scaling: key "riddle" is unknown'
	kv-prefill -m m --allow-config mystery --allow-config rope_scaling.riddle text >passed.kv
	assert_equal "$(logical passed.kv)" "$(logical plain.kv)"
	run -0 kv-decode -m m --allow-config mystery --allow-config rope_scaling.riddle -n 2 passed.kv
	run -5 kv-decode -m m -n 2 passed.kv
	kv-tokenize -m "$DEMO" text >ids
	kv-observe -m m --allow-config mystery --allow-config rope_scaling.riddle --ids-from ids passed.kv >seen.kv
	run -0 kv-check seen.kv
}

@test "a key of the text part of a model that sees images is passed over by its own name" {
	"$PYTHON" -c 'import json
c = json.load(open("m/config.json"))
text = dict(c, model_type="mistral", mystery=1)
del text["architectures"]
c = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "text_config": text}
json.dump(c, open("m/config.json", "w"))'
	refused 5 m 'm/config.json: unknown key "mystery"' '--allow-config mystery'
	run -3 --separate-stderr kv-prefill -m m --allow-config mystery -o x.kv text
	[[ "$stderr" == *'no tensor language_model.model.embed_tokens.weight' || "$stderr" == *'no tensor language_model.lm_head.weight'* ]] || fail "$stderr"
}

# follow_hints: runs kv-prefill with each --allow-config that the message of a refusal names, until it goes, or names none that is new
follow_hints() {
	local allowed=() key
	for _ in 1 2 3 4 5; do
		run --separate-stderr kv-prefill -m m "${allowed[@]}" -o x.kv text
		[ "$status" -ne 0 ] || return 0
		[[ "$stderr" =~ --allow-config\ ([a-z_.0-9]+) ]] || break
		key=${BASH_REMATCH[1]}
		[[ " ${allowed[*]} " != *" $key "* ]] || break
		allowed+=(--allow-config "$key")
	done
	echo "$stderr"
	return 1
}

@test "who passes over what each refusal of a value names gets to the model" {
	local key value
	kv-prefill -m m text >plain.kv
	while IFS='|' read -r key value; do
		cp "$DEMO/config.json" m
		set_key "$key" "$value"
		run --separate-stderr kv-prefill -m m -o x.kv text
		[ "$status" -ne 0 ] || { echo "$key is not refused"; return 1; }
		follow_hints || { echo "$key"; return 1; }
		[ "$(logical x.kv)" = "$(logical plain.kv)" ] || [ "$key" = rope_theta ] || { echo "$key: other rows"; return 1; }
	done <<-'END'
		rope_scaling|{"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}
		rope_scaling|{"rope_type": "spiral", "factor": 2}
		rope_scaling|{"rope_type": "linear", "factor": "two"}
		rope_scaling|[1]
		rope_parameters|{"rope_theta": 1234.5, "rope_type": "default"}
		rope_theta|-1
		partial_rotary_factor|0.5
		hidden_act|"gelu"
		attention_multiplier|2
		mlp_bias|1
		layer_types|["linear_attention"]
		sliding_window|"wide"
		architectures|["MyForCausalLM"]
		quantization_config|{"quant_method": "none at all"}
		auto_map|{"AutoModel": "m.M"}
		eos_token_id|"</s>"
		bos_token_id|[1]
		max_position_embeddings|0
	END
}

@test "ids of end tokens that no token has are passed over with a warning, and ten may end a text" {
	local ids
	kv-prefill -m m text >plain.kv
	set_key eos_token_id '[1536, -1, 1534]'
	run -0 --separate-stderr kv-prefill -m m -o x.kv text
	[[ "$stderr" == 'kv-prefill: m/config.json: "eos_token_id": -1 is not a token id below 1536: ignored, as are others' ]] || { echo "$stderr"; return 1; }
	[ "$(logical x.kv)" = "$(logical plain.kv)" ]
	# the token that comes first ends the text as the tenth of ten
	ids=$(kv-decode -m "$DEMO" --ids --ignore-eos -n 1 plain.kv)
	echo "{\"eos_token_id\": [0, 1, 2, 3, 4, 5, 6, 7, 8, ${ids//[^0-9]/}]}" >m/generation_config.json
	run -0 --separate-stderr kv-decode -m m --ids -n 5 plain.kv
	[ "$(wc -w <<<"$output")" -le 1 ]
}

@test "a snapshot says which keys were passed over: those that were there, in one order" {
	set_key mystery true
	set_key rope_scaling '{"rope_type": "default", "riddle": 7}'
	kv-prefill -m m --allow-config rope_scaling.riddle --allow-config mystery text >passed.kv
	kv-prefill -m m --allow-config none --allow-config mystery --allow-config rope_scaling.riddle --allow-config mystery text >again.kv
	cmp passed.kv again.kv
	assert_equal "$(see passed.kv 's.provenance[-1]["options"]["allow-config"]')" 'mystery rope_scaling.riddle'
	kv-score --method knorm passed.kv | kv-evict --rate 0.5 >small.kv
	run -0 kv-info small.kv
	assert_output --partial 'mystery rope_scaling.riddle'
	kv-prefill -m "$DEMO" --allow-config mystery text | cmp - <(kv-prefill -m "$DEMO" text)
}

@test "a window that the family does not have is full attention up to its end, and refused behind it" {
	local n
	n=$(kv-tokenize -m "$DEMO" text | wc -w)
	kv-prefill -m m text >plain.kv
	set_key sliding_window $((n + 3))
	kv-prefill -m m text >window.kv
	cmp plain.kv window.kv
	run -0 kv-decode -m m --ignore-eos -n 3 window.kv
	run -5 --separate-stderr kv-decode -m m --ignore-eos -n 8 window.kv
	[[ "$stderr" == *"this model ends at $((n + 3)) here: config.json has a sliding window"* ]]
	kv-tokenize -m "$DEMO" text >ids
	run -5 --separate-stderr kv-observe -m m --ids-from ids -o x.kv window.kv
	[[ "$stderr" == *"this model ends at $((n + 3)) here: config.json has a sliding window"* ]]
	set_key sliding_window $((n - 1))
	run -5 --separate-stderr kv-prefill -m m -o x.kv text
	[[ "$stderr" == *"this model ends at $((n - 1)) here: config.json has a sliding window"* ]]
	run -5 --separate-stderr kv-prefill -m m --score 'snapkv window=4 kernel=1' --evict rate=0.5 -o x.kv text
	[[ "$stderr" == *"this model ends at $((n - 1)) here"* ]]
	[ ! -e x.kv ]
	set_key use_sliding_window false
	kv-prefill -m m text >off.kv
	cmp plain.kv off.kv
}

# The keys are those of published models.
@test "configurations of models that people have are understood" {
	local config
	rm m/model.safetensors
	for config in "$ROOT"/tests/fixtures/configs/*.json; do
		cp "$config" m/config.json
		run -1 --separate-stderr kv-prefill -q -m m text
		[[ "$stderr" == 'kv-prefill: m: no model.safetensors and no '* ]] || { echo "$config: $stderr"; return 1; }
	done
}
