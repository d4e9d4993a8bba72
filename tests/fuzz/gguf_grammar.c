/* gguf_grammar.c - GGUF files from a grammar, read as programs do
 *
 * Bytes at random hardly ever are a file whose counts add up. These are: tiny models of each
 * architecture, with the keys, tensors and tokens that they need, of which some are left out, are
 * there twice, or have another type, length, shape, offset or value; then some bytes are changed,
 * or the end is cut off. What must hold is in gguf_read.c.
 *
 * Built with sanitizers: make fuzz-gguf-grammar.
 *
 * usage: gguf_grammar SEED FILES [SECONDS]   the same seed gives the same files */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sanitizer/common_interface_defs.h>

#include "tests/fuzz/gguf_draw.h"
#include "tests/fuzz/gguf_read.h"

enum { TENSORS = 512 };

static unsigned long long number;       /* of the file */

/* ---- a model ---- */

static struct {
	uint32_t layers, hidden, heads, kv_heads, width, ffn, tokens, type;
	uint32_t experts, dense, shared;        /* of each layer, layers without, experts for all */
	uint32_t query_rank, rope, apart;       /* latent attention; 1: in two matrices */
} model;

static const char *const archs[] = { "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3",
	"granite", "olmo2", "smollm3", "gpt-oss", "deepseek2", "deepseek2", "glm4moe", "dots1",
	"ernie4_5-moe", "granitemoe", "qwen2moe", "mamba" };
enum { ARCHS = sizeof archs / sizeof archs[0] };

static int
is(const char *name)
{
	return strcmp(drawn.arch, name) == 0;
}

/* Layers without experts first, and an expert for all rows */
static int
is_routed(void)
{
	return is("deepseek2") || is("glm4moe") || is("dots1") || is("ernie4_5-moe");
}

static int
has_experts(void)
{
	return is_routed() || is("gpt-oss") || is("granitemoe") || is("qwen2moe");
}

static void
choose_model(void)
{
	static const uint32_t types[] = { 0, 1, 30, 0, 8, 2, 3, 6, 7, 39, 12, 13, 14, 20, 24 };

	drawn.arch = archs[rarely(40) ? ARCHS - 1 : below(ARCHS - 1)];
	model.layers = 1 + below(2);
	model.kv_heads = 1 + below(2);
	model.heads = model.kv_heads * (1 + below(2));
	model.type = types[rarely(2) ? 0 : below(15)];
	model.width = 2 * (1 + below(4));
	model.hidden = model.type >= 12 && model.type < 15 ? 256 : 32;
	model.ffn = model.hidden;
	if (model.hidden == 256 || rarely(3))
		model.width = model.hidden / model.heads;
	model.tokens = 0;
	model.experts = 2 + below(3);
	model.dense = is_routed() ? below(model.layers + 1) : 0;
	model.shared = 1 + below(2);
	model.query_rank = rarely(2) ? model.hidden : 0;
	model.rope = 2 * (1 + below(3));
	model.apart = rarely(2);
}

static void
put_latent(void)
{
	const uint32_t rank = model.hidden, key = 32 + model.rope;

	put_whole(".attention.kv_lora_rank", rank);
	if (model.query_rank > 0)
		put_whole(".attention.q_lora_rank", model.query_rank);
	put_whole(".rope.dimension_count", model.rope);
	put_whole(".attention.key_length", model.apart ? rank + model.rope : key);
	put_whole(".attention.value_length", model.apart ? rank : 32);
	if (!model.apart)
		return;
	put_whole(".attention.key_length_mla", key);
	put_whole(".attention.value_length_mla", 32);
}

static void
put_experts(void)
{
	put_whole(".expert_count", model.experts);
	put_whole(".expert_used_count", 1 + below(2));
	put_whole(".expert_feed_forward_length", model.ffn);
	if (is("granitemoe") ? rarely(2) : is("qwen2moe"))
		put_whole(".expert_shared_feed_forward_length", model.ffn);
	if (!is_routed())
		return;
	put_whole(".leading_dense_block_count", model.dense);
	put_whole(".expert_shared_count", model.shared);
	if (is("ernie4_5-moe")) {
		put_whole(".interleave_moe_layer_step", rarely(8) ? 2 : 1);
		return;
	}
	put_whole(".expert_gating_func", rarely(40) ? below(5) : is("deepseek2") ? 1 + below(2) :
	    2);
	put_real(".expert_weights_scale", 2);
	if (!rarely(3))
		put_flag(".expert_weights_norm", 1);
	if (rarely(2)) {
		put_whole(".expert_group_count", 1 + below(2));
		put_whole(".expert_group_used_count", 1);
	}
	if (rarely(8))
		put_whole(".nextn_predict_layers", below(2));
}

static void
put_config(void)
{
	static const char *const scalings[] = { "linear", "yarn", "none", "longrope", "ntk" };

	put_word("general.architecture", drawn.arch);
	if (rarely(20))
		put_word("general.type", rarely(2) ? "model" : "adapter");
	if (rarely(20))
		put_whole("general.alignment", rarely(2) ? 64 : 48);
	put_whole(".block_count", model.layers);
	put_whole(".embedding_length", model.hidden);
	put_whole(".feed_forward_length", model.ffn);
	put_whole(".attention.head_count", model.heads);
	put_whole(".attention.head_count_kv", model.kv_heads);
	if (is("deepseek2"))
		put_latent();
	else {
		put_whole(".attention.key_length", model.width);
		put_whole(".attention.value_length", model.width);
		put_whole(".rope.dimension_count", (is("phi3") || is("glm4moe")) && rarely(3) ? 2 :
		    model.width);
	}
	if (has_experts())
		put_experts();
	put_whole(".context_length", 64 << below(6));
	put_real(".attention.layer_norm_rms_epsilon", 1e-5f);
	put_real(".rope.freq_base", 10000);
	if (rarely(6)) {
		put_word(".rope.scaling.type", scalings[below(5)]);
		put_real(".rope.scaling.factor", (float)(1 + below(8)));
		put_whole(".rope.scaling.original_context_length", 32);
		if (is("deepseek2"))
			put_real(".rope.scaling.yarn_log_multiplier", 0.1f);
	}
	if (is("granite") || is("granitemoe")) {
		put_real(".embedding_scale", 2);
		put_real(".residual_scale", 0.5f);
		put_real(".attention.scale", 0.25f);
		put_real(".logit_scale", 4);
	}
	if (is("gemma2") || is("gemma3") || is("phi3") || is("gpt-oss") || rarely(20))
		put_whole(".attention.sliding_window", below(40));
	if (is("gemma2") || rarely(20))
		put_real(".attn_logit_softcapping", 30);
	if (rarely(20))
		put_whole(rarely(2) ? ".expert_count" : ".mystery", below(2));
	if (rarely(30))
		put_whole(rarely(2) ? "split.count" : "split.no", below(3));
}

/* ---- a vocabulary ---- */

/* out <- the character that stands for a byte (GPT-2). Returns its bytes. */
static size_t
spelled(unsigned byte, char *out)
{
	unsigned c = byte, b, n = 0;

	if (!((byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte != 0xad))) {
		for (b = 0; b < byte; b++)
			n += !((b >= 0x21 && b < 0x7f) || (b >= 0xa1 && b != 0xad));
		c = 256 + n;
	}
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	out[0] = (char)(0xc0 | c >> 6);
	out[1] = (char)(0x80 | (c & 63));
	return 2;
}

static struct token {
	char text[64];
	size_t n;
	uint32_t type;
} token[512];
static char merge[256][130];
static uint32_t merges;

static void
add_token(const char *bytes, size_t n, uint32_t type)
{
	struct token *t = &token[model.tokens++];

	n = n < sizeof t->text ? n : sizeof t->text;
	memcpy(t->text, bytes, n);
	t->n = n;
	t->type = type;
}

/* Tokens that join two earlier ones */
static void
join_tokens(uint32_t from, uint32_t n)
{
	char both[128];
	const struct token *a, *b;
	uint32_t i;

	for (i = 0; i < n && model.tokens > from; i++) {
		a = &token[from + below(model.tokens - from)];
		b = &token[from + below(model.tokens - from)];
		if (a->n + b->n >= sizeof a->text)
			continue;
		memcpy(both, a->text, a->n);
		memcpy(both + a->n, b->text, b->n);
		snprintf(merge[merges++], sizeof merge[0], "%.*s %.*s", (int)a->n, a->text,
		    (int)b->n, b->text);
		add_token(both, a->n + b->n, 1);
	}
}

static void
put_tokens(int pieces)
{
	uint32_t i;

	if (put_list("tokenizer.ggml.tokens", STRING, model.tokens))
		for (i = 0; i < model.tokens; i++)
			put_text(token[i].text, token[i].n);
	if (!rarely(10) && put_list("tokenizer.ggml.token_type", I32, model.tokens))
		for (i = 0; i < model.tokens; i++)
			put_n(rarely(500) ? any() : token[i].type, 4);
	if (pieces && put_list("tokenizer.ggml.scores", F32, model.tokens))
		for (i = 0; i < model.tokens; i++)
			put_n(rarely(2000) ? any() : bits(-(float)i), 4);
	if (!pieces && put_list("tokenizer.ggml.merges", STRING, merges))
		for (i = 0; i < merges; i++)
			put_text(merge[i], strlen(merge[i]));
}

static void
put_vocabulary(void)
{
	static const char *const pres[] = { "llama-bpe", "qwen2", "smollm", "gpt-2", "tekken",
		"gpt-4o", "deepseek-v3", "default", "nothing" };
	static const char *const letters[] = { "\xe2\x96\x81", "a", "b", "e", "h", "l", "o",
		"\xc3\xb6" };
	const int pieces = rarely(2);
	char one[8];
	uint32_t i;

	merges = 0;
	if (pieces) {
		add_token("<unk>", 5, 2);
		add_token("<s>", 3, 3);
		add_token("</s>", 4, 3);
		for (i = 0; i < 256; i++) {
			snprintf(one, sizeof one, "<0x%02X>", i);
			add_token(one, 6, 6);
		}
		for (i = 0; i < 8; i++)
			add_token(letters[i], strlen(letters[i]), 1);
	} else
		for (i = 0; i < 256; i++)
			add_token(one, spelled(i, one), 1);
	join_tokens(pieces ? 259 : 0, below(120));
	add_token("<|im_end|>", 10, 3 + below(2));
	add_token("[PAD0]", 6, 5);
	put_word("tokenizer.ggml.model", rarely(60) ? "bert" : pieces ? "llama" : "gpt2");
	if (!pieces)
		put_word("tokenizer.ggml.pre", pres[rarely(30) ? 8 : below(8)]);
	put_tokens(pieces);
	put_whole("tokenizer.ggml.bos_token_id", 1);
	put_whole("tokenizer.ggml.eos_token_id", 2);
	if (rarely(2))
		put_flag("tokenizer.ggml.add_bos_token", rarely(2));
	if (rarely(2))
		put_flag("tokenizer.ggml.add_space_prefix", rarely(2));
	if (rarely(2))
		put_word("tokenizer.chat_template", "{{ messages[0].content }}");
	if (rarely(6))
		put_word("tokenizer.chat_template.tool", "{{ bos_token }}");
}

/* ---- tensors ---- */

static uint64_t tensors, at;
static uint64_t offsets[TENSORS], bytes[TENSORS];

static uint64_t
size_of(uint32_t type, uint64_t n)
{
	switch (type) {
	case 0:  return 4 * n;
	case 1: case 30: return 2 * n;
	case 2:  return n / 32 * 18;
	case 3:  return n / 32 * 20;
	case 6:  return n / 32 * 22;
	case 7:  return n / 32 * 24;
	case 8:  return n / 32 * 34;
	case 39: return n / 32 * 17;
	case 12: return n / 256 * 144;
	case 13: return n / 256 * 176;
	case 14: return n / 256 * 210;
	case 20: return n / 32 * 18;
	default: return n;
	}
}

/* rows 0: a vector; all: 0, or so many matrices */
static void
tensors_of(const char *name, uint64_t in, uint64_t rows, uint64_t all, uint32_t type)
{
	const uint32_t dimensions = all > 0 ? 3 : rows > 0 ? 2 : 1;

	if (rarely(300) || tensors == TENSORS)
		return;
	type = rarely(300) ? below(44) : type;
	in = rarely(300) ? any() : in;
	put_text(name, strlen(name));
	put_n(rarely(500) ? any() : dimensions, 4);
	put_n(in, 8);
	if (rows > 0)
		put_n(rarely(500) ? any() : rows, 8);
	if (all > 0)
		put_n(rarely(500) ? any() : all, 8);
	put_n(type, 4);
	put_n(rarely(500) ? any() : at, 8);
	offsets[tensors] = at;
	bytes[tensors] = size_of(type, in * (rows > 0 ? rows : 1) * (all > 0 ? all : 1)) % 1000000;
	at += (bytes[tensors] + 31) / 32 * 32;
	tensors++;
}

static void
tensor(const char *name, uint64_t in, uint64_t rows, uint32_t type)
{
	tensors_of(name, in, rows, 0, type);
}

static void
matrices(uint32_t l, const char *part, uint64_t in, uint64_t rows, uint64_t all, uint32_t type)
{
	char name[64];

	snprintf(name, sizeof name, "blk.%u.%s", l, part);
	tensors_of(name, in, rows, all, type);
}

static void
layer_tensor(uint32_t l, const char *part, uint64_t in, uint64_t rows, uint32_t type)
{
	matrices(l, part, in, rows, 0, type);
}

/* The type, or f32 where rows of this width are no whole blocks of it */
static uint32_t
type_of(uint32_t in)
{
	return in % (model.type >= 12 && model.type < 15 ? 256 : 32) == 0 ? model.type : 0;
}

static void
put_latent_layer(uint32_t l)
{
	const uint32_t D = model.hidden, H = model.heads, Q = model.query_rank;
	const uint32_t key = 32 + model.rope;

	if (Q > 0) {
		layer_tensor(l, "attn_q_a.weight", D, Q, model.type);
		layer_tensor(l, "attn_q_a_norm.weight", Q, 0, 0);
	}
	layer_tensor(l, Q > 0 ? "attn_q_b.weight" : "attn_q.weight", Q > 0 ? Q : D, H * key,
	    model.type);
	layer_tensor(l, "attn_kv_a_mqa.weight", D, D + model.rope, model.type);
	layer_tensor(l, "attn_kv_a_norm.weight", D, 0, 0);
	if (!model.apart || rarely(40))
		layer_tensor(l, "attn_kv_b.weight", D, H * 64, model.type);
	if (model.apart) {
		matrices(l, "attn_k_b.weight", 32, D, H, type_of(32));
		matrices(l, "attn_v_b.weight", D, 32, H, model.type);
	}
	layer_tensor(l, "attn_output.weight", H * 32, D, type_of(H * 32));
}

static void
put_experts_layer(uint32_t l)
{
	const uint32_t D = model.hidden, F = model.ffn, M = model.experts, type = model.type;
	const uint32_t S = is_routed() ? model.shared * F : F;

	layer_tensor(l, "ffn_gate_inp.weight", D, M, 0);
	matrices(l, "ffn_gate_exps.weight", D, F, M, type);
	matrices(l, "ffn_up_exps.weight", D, F, M, type);
	matrices(l, "ffn_down_exps.weight", F, D, M, type);
	if (is("gpt-oss")) {
		layer_tensor(l, "ffn_gate_inp.bias", M, 0, 0);
		layer_tensor(l, "ffn_gate_exps.bias", F, M, 0);
		layer_tensor(l, "ffn_up_exps.bias", F, M, 0);
		layer_tensor(l, "ffn_down_exps.bias", D, M, 0);
		return;
	}
	if (is_routed() && !rarely(8))
		layer_tensor(l, "exp_probs_b.bias", M, 0, 0);
	layer_tensor(l, "ffn_gate_shexp.weight", D, S, type);
	layer_tensor(l, "ffn_up_shexp.weight", D, S, type);
	layer_tensor(l, "ffn_down_shexp.weight", S, D, type);
	if (is("qwen2moe"))
		layer_tensor(l, "ffn_gate_inp_shexp.weight", D, 0, 0);
}

static void
put_biases(uint32_t l, uint32_t q, uint32_t kv)
{
	layer_tensor(l, "attn_q.bias", q, 0, 0);
	layer_tensor(l, "attn_k.bias", kv, 0, 0);
	layer_tensor(l, "attn_v.bias", kv, 0, 0);
	if (!is("gpt-oss"))
		return;
	layer_tensor(l, "attn_output.bias", model.hidden, 0, 0);
	layer_tensor(l, "attn_sinks.weight", model.heads, 0, 0);
}

static void
put_layer(uint32_t l)
{
	const uint32_t q = model.heads * model.width, kv = model.kv_heads * model.width;
	const uint32_t D = model.hidden, F = model.ffn, type = model.type;
	const int after = is("olmo2"), around = is("gemma2") || is("gemma3");
	const int behind = is("gpt-oss") || is("glm4moe");
	const int sparse = has_experts() && l >= model.dense;

	if (!after) {
		layer_tensor(l, "attn_norm.weight", D, 0, 0);
		layer_tensor(l, behind ? "post_attention_norm.weight" : "ffn_norm.weight", D, 0, 0);
	}
	if (after || around) {
		layer_tensor(l, "post_attention_norm.weight", D, 0, 0);
		layer_tensor(l, "post_ffw_norm.weight", D, 0, 0);
	}
	if (after || is("qwen3") || is("gemma3") || is("dots1")) {
		layer_tensor(l, "attn_q_norm.weight", after ? q : model.width, 0, 0);
		layer_tensor(l, "attn_k_norm.weight", after ? kv : model.width, 0, 0);
	}
	if (is("deepseek2"))
		put_latent_layer(l);
	else if (is("phi3"))
		layer_tensor(l, "attn_qkv.weight", D, q + 2 * kv, type);
	else {
		layer_tensor(l, "attn_q.weight", D, q, type);
		layer_tensor(l, "attn_k.weight", D, kv, type);
		layer_tensor(l, "attn_v.weight", D, kv, type);
	}
	if (is("qwen2") || is("qwen2moe") || is("gpt-oss") || is("glm4moe"))
		put_biases(l, q, kv);
	if (!is("deepseek2"))
		layer_tensor(l, "attn_output.weight", q, D, type_of(q));
	if (sparse) {
		put_experts_layer(l);
		return;
	}
	if (!is("phi3"))
		layer_tensor(l, "ffn_gate.weight", D, F, type);
	layer_tensor(l, "ffn_up.weight", D, is("phi3") ? 2 * F : F, type);
	layer_tensor(l, "ffn_down.weight", F, D, type);
}

static void
put_tensors(void)
{
	uint32_t l;

	tensor("token_embd.weight", model.hidden, model.tokens, model.type);
	for (l = 0; l < model.layers; l++)
		put_layer(l);
	tensor("output_norm.weight", model.hidden, 0, 0);
	if (rarely(2))
		tensor("output.weight", model.hidden, model.tokens, model.type);
	if (rarely(8))
		tensor("rope_freqs.weight", model.width / 2, 0, 0);
	if (is("phi3") && rarely(4)) {
		tensor("rope_factors_long.weight", model.width / 2, 0, 0);
		tensor("rope_factors_short.weight", model.width / 2, 0, 0);
	}
}

static void
put_data(void)
{
	static const float values[] = { 1, 1, 2, 0.5f, -0.25f };
	uint64_t i, j;
	size_t end;

	drawn.size = drawn.size + 31 < MOST ? (drawn.size + 31) / 32 * 32 : drawn.size;
	end = drawn.size;
	for (i = 0; i < tensors && end + offsets[i] + bytes[i] < MOST; i++)
		for (j = 0; j + 4 <= bytes[i]; j += 4) {
			drawn.size = end + offsets[i] + j;
			put_n(bits(values[below(5)]), 4);
		}
	drawn.size = end + at < MOST ? end + at : MOST;
}

/* ---- files ---- */

static void
make_file(void)
{
	size_t i, n;

	drawn.size = drawn.keys = tensors = at = 0;
	add_bytes("GGUF", 4);
	put_n(rarely(200) ? any() : 2 + below(2), 4);
	put_n(0, 8);
	put_n(0, 8);
	choose_model();
	put_config();
	put_vocabulary();
	put_tensors();
	n = drawn.size;
	drawn.size = 8;
	put_n(rarely(200) ? any() : tensors, 8);
	put_n(rarely(200) ? any() : drawn.keys, 8);
	drawn.size = n;
	put_data();
	for (i = rarely(3) ? 1 + below(6) : 0; i > 0; i--)
		drawn.file[below((uint32_t)(rarely(2) ? n : drawn.size))] ^=
		    (uint8_t)(1u << below(8));
	if (rarely(12))
		drawn.size = below((uint32_t)drawn.size + 1);
}

static void
say_which(void)
{
	fprintf(stderr, "file %llu\n", number);
}

int
main(int argc, char **argv)
{
	const unsigned long long seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	const unsigned long long files = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000;
	const time_t end = argc > 3 ? time(NULL) + atoi(argv[3]) : 0;
	struct gguf_counts c = { 0 };

	__sanitizer_set_death_callback(say_which);
	for (number = 0; number < files && (end == 0 || time(NULL) < end); number++) {
		drawn.state = seed * UINT64_C(0x9e3779b97f4a7c15) +
		    number * UINT64_C(0xd1342543de82ef95) + 1;
		next();
		memset(drawn.file, 0, drawn.size);
		make_file();
		gguf_read(drawn.file, drawn.size, &c);
	}
	printf("%lu files: %lu containers, %lu configurations, %lu with tensors, %lu tokenizers, "
	    "%lu chats, %lu models\n", c.files, c.containers, c.configurations, c.tensors,
	    c.tokenizers, c.chats, c.models);
	return 0;
}
