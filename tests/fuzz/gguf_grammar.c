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

#include "tests/fuzz/gguf_read.h"

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 };
enum { MOST = 1 << 22, TENSORS = 256 };

static uint8_t file[MOST];
static size_t size;
static uint64_t state;
static unsigned long long number;

/* ---- chance ---- */

static uint64_t
next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x2545f4914f6cdd1d);
}

static uint32_t
below(uint32_t n)
{
	return (uint32_t)((next() >> 32) * n >> 32);
}

/* 1 in n */
static int
rarely(uint32_t n)
{
	return below(n) == 0;
}

static const uint64_t odd[] = { 0, 1, 2, 3, 7, 31, 33, 255, 256, 65535, 65536, 0x7fffffff,
	0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
	0xffffffffffffffff, 0xfffffffffffffff0 };

static uint64_t
any(void)
{
	return rarely(4) ? next() : odd[below(sizeof odd / sizeof odd[0])];
}

/* ---- values ---- */

static void
add_bytes(const void *data, size_t n)
{
	if (n > MOST - size)
		n = MOST - size;
	memcpy(file + size, data, n);
	size += n;
}

static void
put_n(uint64_t v, size_t n)
{
	uint8_t b[8];
	size_t i;

	for (i = 0; i < n; i++)
		b[i] = (uint8_t)(v >> 8 * i);
	add_bytes(b, n);
}

static void
put_text(const char *text, size_t n)
{
	put_n(rarely(3000) ? any() : n, 8);
	add_bytes(text, n);
}

static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

static uint64_t
bits(float x)
{
	uint32_t b;

	memcpy(&b, &x, sizeof b);
	return b;
}

static void
put_any(unsigned kind, unsigned depth)
{
	uint64_t n = below(5), i;
	unsigned of;

	if (kind == STRING)
		put_text("odd \xff text", below(11));
	else if (kind == ARRAY) {
		of = depth < 6 ? below(13) : U8;
		put_n(rarely(20) ? any() : of, 4);
		put_n(rarely(20) ? any() : n, 8);
		for (i = 0; i < n; i++)
			put_any(of, depth + 1);
	} else
		put_n(any(), sizes[kind < 13 ? kind : 0]);
}

/* ---- keys ---- */

static uint64_t keys;
static const char *arch;

/* Begins a key, of the architecture where it begins with a dot. Returns 0 where the value is not to
 * follow: it is left out, or another one is there. */
static int
key(const char *name, unsigned kind)
{
	char full[128];
	int twice = rarely(300);
	unsigned other;

	snprintf(full, sizeof full, "%s%s", name[0] == '.' ? arch : "", name);
	if (rarely(100))
		return 0;
	keys++;
	put_text(full, strlen(full));
	if (!twice && !rarely(60)) {
		put_n(kind, 4);
		return 1;
	}
	other = below(14);
	put_n(other, 4);
	put_any(other, 0);
	if (!twice)
		return 0;
	keys++;
	put_text(full, strlen(full));
	put_n(kind, 4);
	return 1;
}

static void
whole(const char *name, uint64_t v)
{
	if (key(name, U32))
		put_n(rarely(60) ? any() : v, 4);
}

static void
real(const char *name, float v)
{
	if (key(name, F32))
		put_n(rarely(60) ? any() : bits(v), 4);
}

static void
text(const char *name, const char *v)
{
	if (key(name, STRING))
		put_text(v, strlen(v));
}

static void
flag(const char *name, int v)
{
	if (key(name, BOOL))
		put_n((uint64_t)v, 1);
}

static int
list(const char *name, unsigned of, uint64_t n)
{
	if (!key(name, ARRAY))
		return 0;
	put_n(of, 4);
	put_n(rarely(200) ? any() : n, 8);
	return 1;
}

/* ---- a model ---- */

static struct {
	uint32_t layers, hidden, heads, kv_heads, width, ffn, tokens, type;
} model;

static const char *const archs[] = { "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3",
	"granite", "olmo2", "smollm3", "mamba" };

static void
choose_model(void)
{
	static const uint32_t types[] = { 0, 1, 30, 0, 8, 2, 3, 6, 7, 39, 12, 13, 14, 20, 24 };

	arch = archs[rarely(40) ? 10 : below(10)];
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
}

static int
is(const char *name)
{
	return strcmp(arch, name) == 0;
}

static void
put_config(void)
{
	static const char *const scalings[] = { "linear", "yarn", "none", "longrope", "ntk" };

	text("general.architecture", arch);
	if (rarely(20))
		text("general.type", rarely(2) ? "model" : "adapter");
	if (rarely(20))
		whole("general.alignment", rarely(2) ? 64 : 48);
	whole(".block_count", model.layers);
	whole(".embedding_length", model.hidden);
	whole(".feed_forward_length", model.ffn);
	whole(".attention.head_count", model.heads);
	whole(".attention.head_count_kv", model.kv_heads);
	whole(".attention.key_length", model.width);
	whole(".attention.value_length", model.width);
	whole(".context_length", 64 << below(6));
	real(".attention.layer_norm_rms_epsilon", 1e-5f);
	real(".rope.freq_base", 10000);
	whole(".rope.dimension_count", is("phi3") && rarely(3) ? 2 : model.width);
	if (rarely(6)) {
		text(".rope.scaling.type", scalings[below(5)]);
		real(".rope.scaling.factor", (float)(1 + below(8)));
		whole(".rope.scaling.original_context_length", 32);
	}
	if (is("granite")) {
		real(".embedding_scale", 2);
		real(".residual_scale", 0.5f);
		real(".attention.scale", 0.25f);
		real(".logit_scale", 4);
	}
	if (is("gemma2") || is("gemma3") || is("phi3") || rarely(20))
		whole(".attention.sliding_window", below(40));
	if (is("gemma2") || rarely(20))
		real(".attn_logit_softcapping", 30);
	if (rarely(20))
		whole(rarely(2) ? ".expert_count" : ".mystery", below(2));
	if (rarely(30))
		whole(rarely(2) ? "split.count" : "split.no", below(3));
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

	if (list("tokenizer.ggml.tokens", STRING, model.tokens))
		for (i = 0; i < model.tokens; i++)
			put_text(token[i].text, token[i].n);
	if (!rarely(10) && list("tokenizer.ggml.token_type", I32, model.tokens))
		for (i = 0; i < model.tokens; i++)
			put_n(rarely(500) ? any() : token[i].type, 4);
	if (pieces && list("tokenizer.ggml.scores", F32, model.tokens))
		for (i = 0; i < model.tokens; i++)
			put_n(rarely(2000) ? any() : bits(-(float)i), 4);
	if (!pieces && list("tokenizer.ggml.merges", STRING, merges))
		for (i = 0; i < merges; i++)
			put_text(merge[i], strlen(merge[i]));
}

static void
put_vocabulary(void)
{
	static const char *const pres[] = { "llama-bpe", "qwen2", "smollm", "gpt-2", "tekken",
		"gpt-4o", "deepseek-llm", "default", "nothing" };
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
	text("tokenizer.ggml.model", rarely(60) ? "bert" : pieces ? "llama" : "gpt2");
	if (!pieces)
		text("tokenizer.ggml.pre", pres[rarely(30) ? 8 : below(8)]);
	put_tokens(pieces);
	whole("tokenizer.ggml.bos_token_id", 1);
	whole("tokenizer.ggml.eos_token_id", 2);
	if (rarely(2))
		flag("tokenizer.ggml.add_bos_token", rarely(2));
	if (rarely(2))
		flag("tokenizer.ggml.add_space_prefix", rarely(2));
	if (rarely(2))
		text("tokenizer.chat_template", "{{ messages[0].content }}");
	if (rarely(6))
		text("tokenizer.chat_template.tool", "{{ bos_token }}");
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

/* rows 0: a vector */
static void
tensor(const char *name, uint64_t in, uint64_t rows, uint32_t type)
{
	if (rarely(300) || tensors == TENSORS)
		return;
	type = rarely(300) ? below(44) : type;
	in = rarely(300) ? any() : in;
	put_text(name, strlen(name));
	put_n(rarely(500) ? any() : rows > 0 ? 2 : 1, 4);
	put_n(in, 8);
	if (rows > 0)
		put_n(rarely(500) ? any() : rows, 8);
	put_n(type, 4);
	put_n(rarely(500) ? any() : at, 8);
	offsets[tensors] = at;
	bytes[tensors] = size_of(type, in * (rows > 0 ? rows : 1)) % 1000000;
	at += (bytes[tensors] + 31) / 32 * 32;
	tensors++;
}

static void
layer_tensor(uint32_t l, const char *part, uint64_t in, uint64_t rows, uint32_t type)
{
	char name[64];

	snprintf(name, sizeof name, "blk.%u.%s", l, part);
	tensor(name, in, rows, type);
}

static void
put_layer(uint32_t l)
{
	const uint32_t q = model.heads * model.width, kv = model.kv_heads * model.width;
	const uint32_t D = model.hidden, F = model.ffn, type = model.type;
	const int after = is("olmo2"), around = is("gemma2") || is("gemma3");
	/* rows of heads are blocks only where they are as wide */
	const uint32_t narrow = q % (type >= 12 && type < 15 ? 256 : 32) == 0 ? type : 0;

	if (!after) {
		layer_tensor(l, "attn_norm.weight", D, 0, 0);
		layer_tensor(l, "ffn_norm.weight", D, 0, 0);
	}
	if (after || around) {
		layer_tensor(l, "post_attention_norm.weight", D, 0, 0);
		layer_tensor(l, "post_ffw_norm.weight", D, 0, 0);
	}
	if (after || is("qwen3") || is("gemma3")) {
		layer_tensor(l, "attn_q_norm.weight", after ? q : model.width, 0, 0);
		layer_tensor(l, "attn_k_norm.weight", after ? kv : model.width, 0, 0);
	}
	if (is("phi3"))
		layer_tensor(l, "attn_qkv.weight", D, q + 2 * kv, type);
	else {
		layer_tensor(l, "attn_q.weight", D, q, type);
		layer_tensor(l, "attn_k.weight", D, kv, type);
		layer_tensor(l, "attn_v.weight", D, kv, type);
		layer_tensor(l, "ffn_gate.weight", D, F, type);
	}
	if (is("qwen2")) {
		layer_tensor(l, "attn_q.bias", q, 0, 0);
		layer_tensor(l, "attn_k.bias", kv, 0, 0);
		layer_tensor(l, "attn_v.bias", kv, 0, 0);
	}
	layer_tensor(l, "attn_output.weight", q, D, narrow);
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

	size = size + 31 < MOST ? (size + 31) / 32 * 32 : size;
	end = size;
	for (i = 0; i < tensors && end + offsets[i] + bytes[i] < MOST; i++)
		for (j = 0; j + 4 <= bytes[i]; j += 4) {
			size = end + offsets[i] + j;
			put_n(bits(values[below(5)]), 4);
		}
	size = end + at < MOST ? end + at : MOST;
}

/* ---- files ---- */

static void
make_file(void)
{
	size_t i, n;

	size = keys = tensors = at = 0;
	add_bytes("GGUF", 4);
	put_n(rarely(200) ? any() : 2 + below(2), 4);
	put_n(0, 8);
	put_n(0, 8);
	choose_model();
	put_config();
	put_vocabulary();
	put_tensors();
	n = size;
	size = 8;
	put_n(rarely(200) ? any() : tensors, 8);
	put_n(rarely(200) ? any() : keys, 8);
	size = n;
	put_data();
	for (i = rarely(3) ? 1 + below(6) : 0; i > 0; i--)
		file[below((uint32_t)(rarely(2) ? n : size))] ^= (uint8_t)(1u << below(8));
	if (rarely(12))
		size = below((uint32_t)size + 1);
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
		state = seed * UINT64_C(0x9e3779b97f4a7c15) +
		    number * UINT64_C(0xd1342543de82ef95) + 1;
		next();
		memset(file, 0, size);
		make_file();
		gguf_read(file, size, &c);
	}
	printf("%lu files: %lu containers, %lu configurations, %lu with tensors, %lu tokenizers, "
	    "%lu chats, %lu models\n", c.files, c.containers, c.configurations, c.tensors,
	    c.tokenizers, c.chats, c.models);
	return 0;
}
