/* gguf_pretok.c - how a text is split before byte pair encoding, by the names that llama.cpp gives
 * the ways (tokenizer.ggml.pre)
 *
 * The expressions are those that tokenizer.json has in the models from which the names come. What
 * llama.cpp has under "default" is no model's: it is taken as llama.cpp does. */
#include <stdlib.h>
#include <string.h>

#include "model/gguf_vocabulary.h"

#define SPLIT(expression) "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" expression "\"}, " \
	"\"behavior\": \"Isolated\", \"invert\": false}, "
#define BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, " \
	"\"use_regex\": false}"
#define GPT2_BYTES "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, " \
	"\"trim_offsets\": true, \"use_regex\": true}"
#define DIGITS "{\"type\": \"Digits\", \"individual_digits\": true}, "

/* Parts of expressions; backslashes are those of C and of JSON. */
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+"
#define SPACES "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define REST " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|" SPACES
#define UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define CASED(behind) "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "*" LOWER "+" behind "|" \
	"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?" UPPER "+" LOWER "*" behind
#define SLASHES " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|" SPACES
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?[^\\\\s\\\\p{L}\\\\p{N}]+|" \
	"\\\\s+(?!\\\\S)|\\\\s+"

#define OF_LLAMA3 SPLIT(SHORT "|" WORD "|\\\\p{N}{1,3}|" REST) BYTES
#define OF_QWEN2 SPLIT(SHORT "|" WORD "|\\\\p{N}|" REST) BYTES
#define OF_QWEN35 SPLIT(SHORT "|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}" \
	"| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|" SPACES) BYTES
#define OF_SEED SPLIT(SHORT "|" WORD "|\\\\p{N}{1}| ?[^\\\\s\\\\p{L}\\\\p{N}\\\\r\\\\n]+|" \
	SPACES) BYTES
#define OF_TEKKEN SPLIT(CASED("") "|\\\\p{N}|" SLASHES) BYTES
#define OF_GPT4O SPLIT(CASED(SHORT "?") "|\\\\p{N}{1,3}|" SLASHES) BYTES
#define OF_STARCODER DIGITS GPT2_BYTES
/* Letters with case, as Unicode 12 has them; Chinese, Japanese, Korean */
#define WITH_CASE "A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-" \
	"\\u01bf\\u01c4-\\u0293\\u0295-\\u02af\\u0370-\\u0373\\u0376" \
	"\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c" \
	"\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-" \
	"\\u052f\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-" \
	"\\u13fd\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-" \
	"\\u1d77\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d\\uff21-" \
	"\\uff3a\\uff41-\\uff5a\\ud801\\udc00-\\ud801\\udc4f" \
	"\\ud83a\\udd00-\\ud83a\\udd43"
#define CJK "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+"
#define LINES SPLIT("[\\r\\n]")
#define OF_DEEPSEEK_CODER LINES SPLIT("\\\\s?\\\\p{L}+") SPLIT("\\\\s?\\\\p{P}+") SPLIT(CJK) \
	DIGITS BYTES
#define OF_DEEPSEEK_LLM LINES SPLIT("\\\\s?[" WITH_CASE "]+") SPLIT("\\\\s?[!-/:-~" \
	"\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+") \
	SPLIT("\\\\s+$") SPLIT(CJK) "{\"type\": \"Digits\", \"individual_digits\": false}, " BYTES
#define OF_DEEPSEEK_V3 SPLIT("\\\\p{N}{1,3}") SPLIT("[\\u4e00-\\u9fa5\\u3040-\\u30ff]+") \
	SPLIT("[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|" \
	"[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+|" \
	" ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|" SPACES) BYTES
#define OF_DEFAULT SPLIT("[\\\\p{P}\\\\$\\\\+<=>\\\\^~\\\\|]+") SPLIT(GPT2) SPLIT("\\\\p{N}+") \
	SPLIT("[0-9][0-9][0-9]") BYTES

enum { NFC = 1, IGNORE = 2, BEGINS = 4 };

static const struct { const char *names, *steps; unsigned flags; } known[] = {
	{ " llama-bpe llama3 llama-v3 falcon3 pixtral ", OF_LLAMA3, IGNORE | BEGINS },
	{ " smaug-bpe dbrx chatglm-bpe ", OF_LLAMA3, 0 },
	{ " glm4 ", OF_LLAMA3, IGNORE },
	{ " qwen2 deepseek-r1-qwen ", OF_QWEN2, NFC },
	{ " stablelm2 ", OF_QWEN2, 0 },
	{ " seed-coder ", OF_SEED, 0 },
	{ " qwen35 ", OF_QWEN35, NFC },
	{ " smollm starcoder refact codeshell exaone minerva-7b ", OF_STARCODER, 0 },
	{ " command-r ", OF_STARCODER, NFC },
	{ " gpt-2 phi-2 mpt olmo jais exaone4 ", GPT2_BYTES, 0 },
	{ " tekken ", OF_TEKKEN, IGNORE | BEGINS },
	{ " gpt-4o llama4 ", OF_GPT4O, 0 },
	{ " deepseek-coder ", OF_DEEPSEEK_CODER, 0 },
	{ " deepseek-llm ", OF_DEEPSEEK_LLM, 0 },
	{ " deepseek-v3 ", OF_DEEPSEEK_V3, 0 },
	{ " default ", OF_DEFAULT, 0 },
};

/* Is the word in a list like " one two "? */
static int
is_listed(const char *list, const char *word)
{
	const size_t n = strlen(word);
	const char *p = n > 0 ? strstr(list, word) : NULL;

	for (; p != NULL; p = strstr(p + 1, word))
		if (p > list && p[-1] == ' ' && p[n] == ' ')
			return 1;
	return 0;
}

json_t *
gguf_pretokenizer(const char *pre, int *nfc, int *ignore_merges, int *begins)
{
	static const char around[] = "{\"type\": \"Sequence\", \"pretokenizers\": [%s]}";
	size_t i, n;
	json_t *json;
	char *text;

	for (i = 0; i < sizeof known / sizeof known[0]; i++)
		if (is_listed(known[i].names, pre))
			break;
	if (i == sizeof known / sizeof known[0])
		return NULL;
	n = strlen(known[i].steps) + sizeof around;
	if ((text = malloc(n)) == NULL)
		return NULL;
	snprintf(text, n, around, known[i].steps);
	json = json_loads(text, 0, NULL);
	free(text);
	*nfc = (known[i].flags & NFC) != 0;
	*ignore_merges = (known[i].flags & IGNORE) != 0;
	*begins = (known[i].flags & BEGINS) != 0;
	return json;
}
