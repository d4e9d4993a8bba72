/* completion.c - the option table as text, for shell completion
 *
 * `kv-evict --list-options` prints a line for each option, with fields separated by tabs:
 * letter (- for none), name, placeholder of its value (- for a flag), possible values, help.
 * The first line is about the operands: @file, @snapshot, or words. cli/completions.sh makes
 * completions for bash, zsh and fish from it, when the programs are built. */
#include <stdio.h>
#include <string.h>

#include "cli/program.h"
#include "cli/tool_internal.h"
#include "methods/methods.h"

/* Names from an X-macro, each followed by a blank */
#define METHOD(name, ...) #name " "
static const char method_names[] =
#include "methods/list.h"
    ;
/* words that may follow a method in kv-prefill --score */
static const char score_words[] =
#include "methods/list.h"
    "lookahead= kernel= pool= reduce= order= over-queries= weight= sink= seed= keep-last lag= "
    "cross filters= local= norms= query-stats= future= epsilon= no-covariance "
    "no-value-norm blend= lambda= gamma= z-score sketch= recent= lazy= window= since=";
#undef METHOD
#define POLICY(name, ...) name " "
static const char policy_names[] =
#include "methods/policies.h"
    ;
#undef POLICY

#define RETRIEVAL(NAME, symbol, word, ...) word " "
static const char retrieve_words[] =
#include "retrieval/retrievals.h"
    "budget= reduce= dense= head= per= sink= recent=";
#undef RETRIEVAL

#define TEMPLATE(name, tokens, text) name " "
static const char template_names[] =
#include "chat/builtin.h"
    ;
#undef TEMPLATE

static const char row_types[] = "q8_0 q4_0 q4_1 q5_0 int8 fp8 q8_0-hadamard q4_0-hadamard "
    "q4_1-hadamard q5_0-hadamard int8-hadamard fp8-hadamard kivi2 kivi4 bf16 f16 f32";

/* An entry for one program precedes the entry of the same option for all. */
static const struct {
	const char *option, *values, *program;
} known[] = {
	{ "select", "tsp gemfilter pyramidinfer layer= rate= window= kernel= pool= budget= decay= "
	    "interval= recent= weight= min=", "kv-prefill" },
	{ "accumulate", "sum max", NULL },
	{ "by", "keys values random", "kv-recompute" },
	{ "by", "layer head", NULL },
	{ "device", "cpu cuda auto", NULL },
	{ "dtype", "bf16 f16 f32", NULL },
	{ "evict", "budget= rate= budgets= threshold= of= policy= alpha= normalize "
	    "tau1= tau2= select= first-stage= epsilon= head-mask= sparsity= sink= recent= "
	    "small= since= skip-layers=", NULL },
	{ "keys", row_types, NULL },
	{ "method", method_names, NULL },
	{ "norms", "product mean keys values", NULL },
	{ "of", "rows tokens", NULL },
	{ "offload", "memory= weights= head-weights= budget= batch=", NULL },
	{ "order", "pool-first reduce-first", NULL },
	{ "over-queries", "sum max", NULL },
	{ "policy", policy_names, NULL },
	{ "pool", "avg max", NULL },
	{ "positions", "original compact", NULL },
	{ "products", "auto f32 bf16", NULL },
	{ "prulong", "prompt= generate= chunk= head-sparsity= sink= recent= sparsity=", NULL },
	{ "progress", "auto always never", NULL },
	{ "reduce", "mean max sum", NULL },
	{ "retrieve", retrieve_words, NULL },
	{ "select", "head layer chunk= spiky=", NULL },
	{ "score", score_words, NULL },
	{ "small", "keep refuse", NULL },
	{ "template", template_names, NULL },
	{ "values", row_types, NULL },
	{ "weight", "none visible", NULL },
};

/* Returns words; @dir, @file, @snapshot; or -. */
static const char *
values(const struct opt *o)
{
	size_t i;

	if (o->arg == NULL)
		return "-";
	for (i = 0; i < sizeof known / sizeof *known; i++)
		if (strcmp(known[i].option, o->name) == 0 && (known[i].program == NULL ||
		    strcmp(known[i].program, the_tool->name) == 0))
			return known[i].values;
	if (strcmp(o->arg, "DIR") == 0)
		return "@dir";
	if (strcmp(o->arg, "SNAPSHOT") == 0 || strcmp(o->name, "output") == 0)
		return "@snapshot";
	return strcmp(o->arg, "FILE") == 0 || strcmp(o->arg, "TABLE") == 0 ||
	    strcmp(o->arg, "MODEL") == 0 || strcmp(o->arg, "REPORT") == 0 ? "@file" : "-";
}

/* The names as kvpipe accepts them. */
static void
print_program_names(void)
{
	const struct program *p;

	for (p = programs; p->about != NULL; p++)
		if (p->name != NULL)
			printf("%s ", p->name + strlen("kv-"));
	puts("help");
}

void
print_options(const struct tool *tool, const struct opt *all, size_t n)
{
	size_t i;

	printf("%s\t", tool->name);
	if (strstr(tool->synopsis, " program ") != NULL)
		print_program_names();
	else
		puts(strstr(tool->synopsis, "[snapshot") != NULL ? "@snapshot" : "@file");
	for (i = 0; i < n; i++)
		printf("%c\t%s\t%s\t%s\t%s\n", all[i].letter != 0 ? all[i].letter : '-',
		    all[i].name, all[i].arg != NULL ? all[i].arg : "-", values(&all[i]),
		    all[i].help);
}
