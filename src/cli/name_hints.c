/* name_hints.c - hints for unknown names of methods, policies and retrieval methods
 *
 * Paper names of exactly our methods with their defaults are aliases in the tables
 * (methods/list.h, methods/policies.h, retrieval/retrieval.h). The names here are pipelines, or
 * are not available. */
#include <stdio.h>

#include "cli/nearest_name.h"
#include "cli/name_hints.h"
#include "retrieval/retrieval.h"

static const struct {
	const char *names, *instead;
} papers[] = {
	{ "fastkv", "FastKV is kv-prefill --select tsp, then snapkv with a kernel of 7" },
	{ "gemfilter", "GemFilter is kv-prefill --select gemfilter" },
	{ "pyramidinfer", "PyramidInfer is kv-prefill --select pyramidinfer" },
	{ "duoattention duo-attention", "DuoAttention is kv-evict --head-mask FILE" },
	{ "prulong", "PruLong is kv-evict --head-mask FILE" },
	{ "laq lookahead-q-cache", "LAQ is kv-observe --ids-from a draft, then snapkv" },
	{ "speckv", "SpecKV is kv-observe --ids-from a draft, then snapkv" },
	{ "kvzip", "KVzip is kv-observe --repeat-context, method kvzip, policy global" },
	{ "observed",
	    "did you mean kvzip (maximum over probes) or meanmass (kvpress's ObservedAttention)?" },
	{ "kivi", "KIVI is kv-quantize --keys kivi2 --values kivi2, behind kv-evict" },
	{ "headkv lukv lu-kv", "its budgets of KV heads are a file: kv-evict --budgets FILE" },
	{ "finch", "FINCH is snapkv --kernel 1 --weight visible, --window the question's tokens" },
	{ "chunkkv", "ChunkKV is kv-evict --select chunk=20" },
	{ "entropygatedchunkkv", "it is kv-evict --select 'chunk=10 spiky=4'" },
	{ "think", "it is not there" },
};

static const char *
of_a_paper(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof papers / sizeof *papers; i++)
		if (names_word(papers[i].names, name))
			return papers[i].instead;
	return NULL;
}

static void
try_all(struct nearest_name *g, enum name_kind kind)
{
	const struct method *m;
	const struct policy *p;
	int r;

	for (m = methods; kind == NAME_METHOD && m->name != NULL; m++)
		nearest_name_try(g, m->name, m->aliases);
	for (p = policies; kind == NAME_POLICY && p->name != NULL; p++)
		nearest_name_try(g, p->name, p->aliases);
	for (r = 0; kind == NAME_RETRIEVE && r < RETRIEVE_METHODS; r++)
		nearest_name_try(g, retrieve_name(r), retrieve_alias(r));
}

const char *
name_hint(enum name_kind kind, const char *name)
{
	static char text[160];
	const struct method *m = method_named(name);
	const struct policy *p = policy_named(name);
	const char *paper = of_a_paper(name);
	const int r = retrieve_named(name);
	struct nearest_name g;

	if (paper != NULL)
		snprintf(text, sizeof text, ": %s", paper);
	else if (m != NULL)
		snprintf(text, sizeof text, ": it is a method: kv-score --method %s", m->name);
	else if (p != NULL)
		snprintf(text, sizeof text, ": it is a policy: kv-evict --policy %s", p->name);
	else if (r >= 0)
		snprintf(text, sizeof text, ": it is a way to read: kv-decode --retrieve %s",
		    retrieve_name(r));
	else {
		nearest_name_start(&g, name);
		try_all(&g, kind);
		return nearest_name_text(&g, "");
	}
	return text;
}

void
print_listed(int width, const char *name, const char *about, const char *uses, const char *aliases)
{
	printf("%-*s  %s", width, name, about);
	if (*aliases != '\0')
		printf(" (= %s)", aliases);
	if (*uses != '\0')
		printf(" [%s]", uses);
	putchar('\n');
}
