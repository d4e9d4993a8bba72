/* options.c - one parser and one --help for all programs, made from tables
 *
 * A program's own options come first, then those of a shared part, then those of all programs. */
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <lz4.h>
#include <xxhash.h>

#include "cli/nearest_name.h"
#include "cli/old_options.h"
#include "cli/program.h"
#include "cli/tool_internal.h"
#include "libkvfile/kvfile.h"

/* Only programs with a device link cli/device.c. */
extern const char *device_description(void) __attribute__((weak));

enum { MAX_OPTS = 64 };

static int lz4, help_wanted, version_wanted;
static const char *progress_text;

static const struct {
	unsigned takes;                 /* 0: every program */
	struct opt opt;
} shared[] = {
	{ TAKES_MODEL, { 'm', "model", OPT_STRING, &settings.model, 0, "MODEL",
	    "model folder (config.json, tokenizer.json, safetensors), or a GGUF file (KV_MODEL)",
	    OPT_READS } },
	{ TAKES_CONFIG, { 0, "allow-config", OPT_STRINGS, &settings.allow_config, 0, "KEY",
	    "ignore this key of config.json (repeatable; KV_ALLOW_CONFIG)", OPT_READS } },
	{ TAKES_CONFIG, { 0, "allow-tensor", OPT_STRINGS, &settings.allow_tensor, 0, "NAME",
	    "ignore tensors of this name, * is any letters (repeatable; KV_ALLOW_TENSOR)",
	    OPT_READS } },
	{ TAKES_OUTPUT, { 'o', "output", OPT_STRING, &settings.output, 0, "FILE",
	    "write to FILE, which appears only when complete (- is standard output)",
	    OPT_WRITES } },
	{ TAKES_OUTPUT, { 'z', "lz4", OPT_FLAG, &lz4, 1, NULL,
	    "compress blocks that are not compressed", OPT_WRITES } },
	{ TAKES_JSON, { 0, "json", OPT_FLAG, &settings.json, 1, NULL,
	    "print JSON", OPT_WRITES } },
	{ TAKES_THREADS, { 'j', "threads", OPT_COUNT, &settings.threads, 0, "N",
	    "threads, 0 = all processors (KV_THREADS)", OPT_COMMON } },
	{ TAKES_THREADS, { 0, "device", OPT_STRING, &settings.device, 0, "DEVICE",
	    "cpu, cuda, cuda:N or auto (KV_DEVICE)", OPT_COMMON } },
	{ TAKES_CONFIG, { 0, "products", OPT_STRING, &settings.products, 0, "TYPE",
	    "type of activations in bf16 matmuls of a prompt: f32, bf16, auto (KV_PRODUCTS)",
	    OPT_COMMON } },
	{ TAKES_PROGRESS, { 0, "progress", OPT_STRING, &progress_text, 0, "WHEN",
	    "progress line: auto, always or never (KV_PROGRESS)", OPT_COMMON } },
	{ 0, { 'q', "quiet", OPT_FLAG, &settings.quiet, 1, NULL, "no warnings, no progress",
	    OPT_COMMON } },
	{ 0, { 'v', "verbose", OPT_FLAG, &settings.verbose, 1, NULL, "say more", OPT_COMMON } },
	{ 0, { 0, "report", OPT_STRING, &settings.report, 0, "FILE",
	    "append a record of time, memory and work to FILE (KV_REPORT)", OPT_COMMON } },
	{ 0, { 'h', "help", OPT_FLAG, &help_wanted, 1, NULL, "print this help", OPT_COMMON } },
	{ 0, { 0, "version", OPT_FLAG, &version_wanted, 1, NULL, "print the version",
	    OPT_COMMON } },
};

/* all[] <- the options of this program; returns their number. */
static size_t
collect_options(const struct tool *tool, struct opt *all)
{
	const struct opt *o;
	size_t n = 0, i;

	for (o = tool->opts; o != NULL && o->name != NULL && n < MAX_OPTS; o++)
		all[n++] = *o;
	for (o = tool->more; o != NULL && o->name != NULL && n < MAX_OPTS; o++)
		all[n++] = *o;
	for (i = 0; i < sizeof shared / sizeof *shared && n < MAX_OPTS; i++)
		if (shared[i].takes == 0 || (tool->takes & shared[i].takes) != 0)
			all[n++] = shared[i].opt;
	return n;
}

/* ---- values ---- */

struct range {
	uint64_t least, most;
};

static void __attribute__((noreturn))
no_integer(const char *where, const char *text, struct range r)
{
	die(EXIT_USAGE, "%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64, where, text,
	    r.least, r.most);
}

/* suffixes: for 2^10, 2^20 and so on, in this order; "" = none */
static uint64_t
integer(const char *where, const char *text, struct range r, const char *suffixes)
{
	unsigned long long v;
	unsigned shift = 0;
	const char *suffix;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno != 0)
		no_integer(where, text, r);
	if (*end != '\0' && (suffix = strchr(suffixes, *end)) != NULL) {
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		end++;
	}
	if (*end != '\0' || v > r.most >> shift || v << shift < r.least)
		no_integer(where, text, r);
	return v << shift;
}

uint32_t
option_count(const char *where, const char *text, uint32_t least)
{
	return (uint32_t)integer(where, text, (struct range){ least, NOT_GIVEN - 1 }, "km");
}

static uint64_t
bytes(const char *where, const char *text, uint64_t least)
{
	const size_t n = strlen(text);

	return integer(where, text, (struct range){ least, INT64_MAX },
	    n > 0 && isupper((unsigned char)text[n - 1]) ? "KMGT" : "kmgt");
}

static double
real(const char *where, const char *text, char **end)
{
	double v;

	errno = 0;
	v = strtod(text, end);
	if (*end == text || !isfinite(v) || isspace((unsigned char)*text))
		die(EXIT_USAGE, "%s: '%s' is not a number", where, text);
	return v;
}

double
option_share(const char *where, const char *text)
{
	char *end;
	double v = real(where, text, &end);

	if (*end == '%') {
		v /= 100;
		end++;
	}
	if (*end != '\0' || !(v > 0) || v > 1)
		die(EXIT_USAGE, "%s: '%s' is not a share: more than 0, at most 1 (or 100%%)",
		    where, text);
	return v;
}

static uint32_t
layer_number(const char *option, const char *text, const char *p, char **end, uint32_t most)
{
	const unsigned long number = strtoul(p, end, 10);

	if (*p < '0' || *p > '9' || number > most)
		die(EXIT_USAGE, "--%s: '%s' is not a list of layers such as 0,1,30-31", option,
		    text);
	return (uint32_t)number;
}

void
option_layers(const char *option, const char *text, uint32_t most,
    void (*layers)(void *with, uint32_t first, uint32_t last), void *with)
{
	const char *p = text;
	uint32_t first, last;
	char *end;

	for (;; p = end + 1) {
		first = last = layer_number(option, text, p, &end, most);
		if (*end == '-')
			last = layer_number(option, text, end + 1, &end, most);
		if (first > last || (*end != ',' && *end != '\0'))
			die(EXIT_USAGE, "--%s: '%s' is not a list of layers such as 0,1,30-31",
			    option, text);
		layers(with, first, last);
		if (*end == '\0')
			return;
	}
}

enum kv_dtype
option_dtype(const char *text)
{
	const enum kv_dtype dtype = kv_dtype_named(text);

	if (dtype == 0)
		die(EXIT_USAGE, "--dtype %s: want bf16, f16 or f32", text);
	return dtype;
}

void
option_append(struct strings *list, const char *text)
{
	list->at = realloc(list->at, (list->n + 1) * sizeof *list->at);
	if (list->at == NULL)
		die(EXIT_RUN, "out of memory");
	list->at[list->n++] = text;
}

void
option_set(const struct opt *o, const char *where, const char *text)
{
	char *end;

	switch (o->kind) {
	case OPT_FLAG:
		*(int *)o->to = o->value;
		break;
	case OPT_STRING:
		*(const char **)o->to = text;
		break;
	case OPT_STRINGS:
		option_append(o->to, text);
		break;
	case OPT_COUNT:
		*(uint32_t *)o->to = option_count(where, text, (uint32_t)o->value);
		break;
	case OPT_SEED:
		*(uint64_t *)o->to = integer(where, text, (struct range){ 0, INT64_MAX }, "");
		break;
	case OPT_BYTES:
		*(uint64_t *)o->to = bytes(where, text, (uint64_t)o->value);
		break;
	case OPT_REAL:
		*(double *)o->to = real(where, text, &end);
		if (*end != '\0')
			die(EXIT_USAGE, "%s: '%s' is not a number", where, text);
		break;
	case OPT_SHARE:
		*(double *)o->to = option_share(where, text);
		break;
	}
}

/* ---- help and version ---- */

/* Further lines of a form of the command are indented below its first one. */
static void
print_usage(FILE *to)
{
	const size_t n = strlen(the_tool->name);
	const char *c;

	fprintf(to, "usage: %s ", the_tool->name);
	for (c = the_tool->synopsis; *c != '\0'; c++) {
		fputc(*c, to);
		if (*c != '\n')
			continue;
		if (strncmp(c + 1, the_tool->name, n) == 0 && c[1 + n] == ' ')
			fprintf(to, "   or: ");
		else
			fprintf(to, "%*s", (int)(strlen("usage:  ") + n), "");
	}
	fputc('\n', to);
}

/* Prints also with -q: this is not a warning. */
static void __attribute__((noreturn, format(printf, 1, 2)))
misused(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	message(fmt, ap);
	va_end(ap);
	print_usage(stderr);
	exit(ends_with(EXIT_USAGE));
}

/* Prints an option and its help, whose further lines are indented, in lines of at most WIDTH. */
static void
print_option(const struct opt *o)
{
	enum { WIDTH = 100, INDENT = 28 };
	const size_t room = WIDTH - INDENT;
	const char *help = o->help;
	char letter[8], left[64];
	size_t n;

	snprintf(letter, sizeof letter, o->letter != 0 ? "-%c," : "   ", o->letter);
	snprintf(left, sizeof left, "%s --%s%s%s", letter, o->name, o->arg != NULL ? " " : "",
	    o->arg != NULL ? o->arg : "");
	printf("  %-24s  ", left);
	for (; strlen(help) > room; help += n + 1) {
		for (n = room; n > 0 && help[n] != ' '; n--)
			;
		if (n == 0)                             /* a word longer than a line */
			break;
		printf("%.*s\n%*s", (int)n, help, INDENT, "");
	}
	printf("%s\n", help);
}

/* Prints the options by group; empty groups are left out. */
static void
print_groups(const struct opt *all, size_t n)
{
	static const struct {
		enum opt_group group;
		const char *title;
	} groups[OPT_GROUPS] = {
		{ OPT_READS, "input" }, { OPT_HOW, "processing" }, { OPT_WRITES, "output" },
		{ OPT_COMMON, "common options" }
	};
	int i, any;
	size_t k;

	for (i = 0; i < OPT_GROUPS; i++)
		for (k = 0, any = 0; k < n; k++)
			if (all[k].group == groups[i].group) {
				if (!any++)
					printf("\n%s:\n", groups[i].title);
				print_option(&all[k]);
			}
}

static void
print_help(const struct opt *all, size_t n)
{
	print_usage(stdout);
	printf("\n%s\n", the_tool->about != NULL ? the_tool->about :
	    program_about(the_tool->name));
	print_groups(all, n);
	if (the_tool->example != NULL)
		printf("\nexample: %s\n", the_tool->example);
}

static void
print_version(void)
{
	unsigned xx = XXH_versionNumber();

	printf("%s %s\n", the_tool->name, KVPIPE_VERSION);
	printf("lz4 %s, xxHash %u.%u.%u, jansson %s\n", LZ4_versionString(),
	    xx / 10000, xx / 100 % 100, xx % 100, jansson_version_str());
	if ((the_tool->takes & TAKES_THREADS) && device_description != NULL)
		printf("%s\n", device_description());
}

/* ---- the command line ---- */

/* Fills the tables of getopt_long. Long options are returned as 256 + index, with a letter or
 * without. */
static void
for_getopt(const struct opt *all, size_t n, char *letters, struct option *longs)
{
	size_t i;

	*letters++ = ':';               /* ':' tells a missing argument from an unknown option */
	for (i = 0; i < n; i++) {
		longs[i].name = all[i].name;
		longs[i].has_arg = all[i].kind == OPT_FLAG ? no_argument : required_argument;
		longs[i].flag = NULL;
		longs[i].val = 256 + (int)i;
		if (all[i].letter != 0) {
			*letters++ = all[i].letter;
			if (all[i].kind != OPT_FLAG)
				*letters++ = ':';
		}
	}
	*letters = '\0';
	memset(&longs[n], 0, sizeof longs[n]);
}

static const struct opt *
with_letter(const struct opt *all, size_t n, int letter)
{
	size_t i;

	for (i = 0; i < n && all[i].letter != letter; i++)
		;
	return &all[i];
}

/* Dies for an unknown "--ke" or "--ke=x", and names the options it may mean. */
static void __attribute__((noreturn))
unknown_option(const struct opt *all, size_t n, const char *text)
{
	const size_t len = strcspn(text, "=");
	char word[64], several[512] = "";
	const char *now;
	struct nearest_name g;
	size_t i;

	snprintf(word, sizeof word, "%.*s", len > 2 ? (int)len - 2 : 0, text + 2);
	if ((now = old_option(the_tool->name, word)) != NULL)
		misused("--%s is now %s", word, now);
	nearest_name_start(&g, word);
	for (i = 0; i < n; i++) {
		nearest_name_try(&g, all[i].name, "");
		if (*word != '\0' && strncmp(all[i].name, word, strlen(word)) == 0)
			snprintf(several + strlen(several), sizeof several - strlen(several),
			    "%s--%s", *several != '\0' ? ", " : "", all[i].name);
	}
	if (*several != '\0')
		misused("option '%.*s' can mean several: %s", (int)len, text, several);
	misused("there is no option '%.*s'%s", (int)len, text, nearest_name_text(&g, "--"));
}

static void __attribute__((noreturn))
bad_option(const struct opt *all, size_t n, int c, char **argv)
{
	const char *text = argv[optind - 1];

	if (c == ':')
		misused("option '%s' needs a value", text);
	if (optopt >= 256)
		misused("option '%s' takes no value", text);
	if (optopt != 0)
		misused("there is no option '-%c'", optopt);
	unknown_option(all, n, text);
}

static void
check_operands(const struct tool *tool, unsigned n)
{
	if ((tool->takes & TAKES_MODEL) && settings.model == NULL)
		misused("a model is needed: -m MODEL, or KV_MODEL");
	if (n < tool->min_operands)
		misused("an operand is missing");
	if (n > tool->max_operands)
		misused("too many operands");
}

/* Sets the option that getopt_long returned as c (for_getopt()). */
static void
set_given(const struct opt *all, size_t n, int c)
{
	const struct opt *o = c >= 256 ? &all[c - 256] : with_letter(all, n, c);
	char where[64];

	snprintf(where, sizeof where, "--%s", o->name);
	option_set(o, where, optarg);
}

int
options_parse(const struct tool *tool, int argc, char **argv)
{
	struct opt all[MAX_OPTS + 1];
	struct option longs[MAX_OPTS + 1];
	char letters[2 * MAX_OPTS + 2];
	size_t n = collect_options(tool, all);
	int c;

	if (argc == 2 && strcmp(argv[1], "--list-options") == 0) {
		print_options(tool, all, n);
		exit(finish());
	}
	for_getopt(all, n, letters, longs);
	opterr = 0;
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		if (c == '?' || c == ':')
			bad_option(all, n, c, argv);
		set_given(all, n, c);
	}
	if (help_wanted)
		print_help(all, n);
	if (version_wanted)
		print_version();
	if (help_wanted || version_wanted)
		exit(finish());
	if (progress_text != NULL)
		progress_mode("--progress", progress_text);
	if (lz4)
		settings.write_flags |= KV_LZ4;
	check_operands(tool, (unsigned)(argc - optind));
	return optind;
}
