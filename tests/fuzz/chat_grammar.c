/* chat_grammar.c - templates from a grammar, carried out
 *
 * Bytes at random hardly ever are a template, and no macro of them is ever kept beyond the block
 * that it was made in. These are templates: each is a choice among productions, to a depth of 6 to
 * 9, of expressions that have the kinds that they need, but one in 256. What a template makes is
 * kept in a namespace, and called, gone through and printed later.
 *
 * Built with sanitizers and small limits (-DFUZZ): make fuzz-grammar. Of each rendering is checked
 *
 *   that it ends within its steps, with UTF-8 or a message that has a line;
 *   that letters that only messages and variables have (q, x, z and all beyond ASCII) are contents,
 *   and letters that only the template has (g, h, k, m) are not;
 *   that a second one, by chat_render(), prints the same.
 *
 * usage: chat_grammar SEED TEMPLATES   the same seed gives the same templates
 *        chat_grammar SEED TEMPLATES print   prints them, too */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sanitizer/common_interface_defs.h>

#include "chat/chat_internal.h"

#define TEXT_MOST 1000          /* bytes, from which on productions are those that end */
#define DATE "2024-07-26"

static char template[1 << 16];
static size_t size;
static uint64_t state;
static unsigned long long number;

/* ---- the grammar ---- */

/* Productions of each kind; those before NULL end. $ and a letter stands for one of a kind: t a
 * text, n a number, i an integer, l a list, d a mapping, b a condition, f what can be called, a any
 * of them, B statements, R a statement in a loop, g filters from text to text; T N L D F: a name
 * for such a value, which may have another one. */
static const char *const texts[] = {
	"'ab'", "''", "'g h\\n'", "(t0 if t0 is string else 'a')",
	"(t1 if t1 is string else 'b')", "(ns.t if ns.t is string else '')",
	"messages[0].content", "tools|tojson", "messages[0].role", NULL, "($t ~ $t)", "($t + $t)",
	"($t ~ $n)", "($t)[$i]", "($t)[$i:$i]", "($t)[:-1]", "$t|$g", "$l|map('string')|join($t)",
	"($t).join(($l)|map('string'))", "($t).split($t ~ ' ')[-1]", "($t).replace('a', $t)",
	"($t).strip()", "($t).lstrip($t)", "($t).rstrip('ab')", "'kM'.upper()", "$f($t)",
	"$f($t, $l)", "($t if $b else $t)", "strftime_now('%d' ~ ($n|int))",
	"($d).get('a', $t)|string", "$d|string", "$l|tojson", "$d|tojson(indent=2)", "(($t) * 3)",
	"($l|map('string')|list)[0]", "$t|default($t, true)", "$d|map('lower')|join",
	"(ns.o.previtem or $t)|string", "$f($f($t))", "{'b': $f}['b']($t)", "$l|first|string",
	"[$f][0]($t)", "$a|string"
};
static const char *const numbers[] = {
	"0", "1", "-1", "7", "2.5", "(n0 if n0 is number else 1)",
	"(ns.n if ns.n is number else 2)", "messages[1].n", NULL, "($n + $n)", "($n - $n)",
	"($n * 2)", "(($i) // 3)", "(($i) % 5)", "-($n)", "$t|length", "$l|length",
	"($t).find($t)", "$t|int", "$n|int(4)", "($n / 2)", "ns.o.index|default(1)",
	"ns.o.revindex0|default(0)", "$l|count", "($n if $b else $n)"
};
static const char *const integers[] = {
	"0", "1", "-1", "3", "n0|int", NULL, "$n|int", "$l|length"
};
static const char *const lists[] = {
	"[]", "[1, 2, 3]", "['a', 'b']",
	"(l0|reject('callable')|list if l0 is iterable else [])",
	"(l1|reject('callable')|list if l1 is iterable else [])",
	"(ns.l|reject('callable')|list if ns.l is iterable else [])", "range(3)", "messages",
	NULL, "[$t, $n]", "[$l, $d]", "($l + $l)", "($l)[$i:$i]", "($l)[::-1]", "$l|reverse|list",
	"$l|map('string')|list", "$l|select('string')|list", "$l|reject('string')|list",
	"$l|reject('string')|unique|list", "$l|select('number')|sort", "$t|list", "($t).split()",
	"($t).split($t ~ ',')", "$d|items|list", "($d).items()|list", "($d).keys()|list",
	"($d).values()", "$d|list", "{'kb': $t, 'A': $n}|dictsort",
	"messages|map(attribute='content')|list",
	"messages|selectattr('role', 'equalto', 'user')|list",
	"messages|map('items')|first|list", "($l if $b else $l)",
	"messages|map(attribute='deep.a', default=$a)|list", "range($i, $i, 2)",
	"[$f, $f]|reject('callable')|list"
};
static const char *const mappings[] = {
	"{}", "{'a': 1, 'b': 'h'}", "(d0 if d0 is mapping else {})",
	"(d1 if d1 is mapping else {'k': 1})", "messages[0]", "messages[1]", NULL, "{$t: $t}",
	"{'a': $l, $t: $n}", "dict(a=$l, b=$t)", "{'a': $l, 'b': $d}", "($d if $b else $d)",
	"(messages|last)", "{$t: $t, $t: $d}"
};
static const char *const conditions[] = {
	"true", "false", "n0", "t0", "l0", "none", "nothing", NULL, "(not $b)", "($b and $b)",
	"($b or $b)", "($t in $t)", "($a in $l)", "($t in $d)", "($a == $a)", "($t != $t)",
	"($n < $n)", "($n <= $n < $n)", "($t > $t)", "($a is defined)", "($a is string)",
	"($a is mapping)", "($a is iterable)", "($l == $l)", "($d == $d)", "($i is odd)",
	"($a is callable)", "($t is in($l))", "($t).startswith($t)", "($t).endswith(($t, 'a'))",
	"($a is not none)", "($i is divisibleby 3)", "($f == $f)", "($l|length > $n)",
	"($t not in ns.l)", "ns.o.last", "(nothing is defined)"
};
static const char *const callables[] = {
	"(f0 if f0 is callable else g0)", "(f1 if f1 is callable else g0)",
	"(ns.f if ns.f is callable else g0)", "(ns.l[-1] if ns.l[-1] is callable else f1)", NULL,
	"($f if $b else $f)", "[$f, $f][0]", "{'a': $f}['a']", "($f if $b else ($t).strip)",
	"dict(a=$f).a", "(ns.d.b if ns.d.b is callable else g0)",
	"(ns.l|select('callable')|list + [g0])[0]"
};
static const char *const filters[] = {
	"trim", "string", "safe", "default('k')", NULL, "$g|$g", "replace('b', $t)",
	"replace('q', $t, $i)", "trim($t)", "default($t)", "list|join($t)",
	"replace('a', $f($t))"
};
static const char *const statements[] = {
	"ggg", " \n ", "{{ $t }}", "{{ $n }}", "{% set $T = $t %}", "{% set ns.f = $f %}",
	"{{ ns.f($t) }}", NULL, "{{ $t }}", "{{- $l -}}", "{% set $T = $t %}",
	"{% set $N = $n %}", "{% set $L = $l %}", "{% set $D = $d %}", "{% set ns.t = $t %}",
	"{% set ns.l = $l + [$a] %}", "{% set ns.l = ns.l + [$f] %}",
	"{% set ns.d = {'b': $f, $t: $d} %}", "{% set ns.f = $f %}", "{% set $T, $L = $t, $l %}",
	"{% set ns.n = $n %}", "{% set ns.l = [ns.l, $f] %}", "{% set ns.l = [ns, $f] %}",
	"{% if $b %}$B{% endif %}", "{% if $b %}$B{% elif $b %}$B{% else %}$B{% endif %}",
	"{% for $T in $l %}$R{% endfor %}", "{% for $T in $t %}$R{% else %}$B{% endfor %}",
	"{% for $L in $l if $b %}$R{% else %}$B{% endfor %}",
	"{% for $T, $L in ($d).items() %}$R{% endfor %}", "{% for $T in $d %}$R{% endfor %}",
	"{% for $F in [$f, $f] %}$R{% endfor %}", "{% set $T %}$B{% endset %}",
	"{% set $T | $g %}$B{% endset %}", "{% filter $g %}$B{% endfilter %}",
	"{% filter replace('a', $f($t)) %}$B{% endfilter %}",
	"{% macro $F($T='', $L=[]) %}$B{% endmacro %}",
	"{% macro $F($T=$t, $N=$n) %}$B{% set ns.f = $f %}{% endmacro %}",
	"{% macro $F() %}{% set $T %}{% macro $F($T, $L='') %}$B{{ $t }}{% endmacro %}"
	"{% set ns.f = $f %}$B{% endset %}{% endmacro %}{{ f0() }}{{ f1() }}",
	"{{ $f($t) }}", "{{ $f() }}{{ ns.f() }}", "{% generation %}$B{% endgeneration %}",
	"{#- k -#}", "{% raw %} {{ m }} {% endraw %}",
	"{% if $b and $b and $b %}{{ raise_exception($t) }}{% endif %}",
	"{% for $T in $l if $f($t) %}$R{% endfor %}", "{% set ns.l = $l|map('string')|list %}",
	"$B$B"
};
static const char *const loop_statements[] = {
	"{{ loop.index }}", "{{ loop.first }}{{ loop.nextitem is string }}",
	"{% set ns.o = loop %}", "$s", "$s", NULL, "$B", "$s$s",
	"{% if $b %}{% break %}{% endif %}", "{% if $b %}{% continue %}{% endif %}$s",
	"{% if loop.last %}$B{% else %}{% set ns.o = loop %}{% endif %}",
	"{% filter $g %}$s{% break %}{% endfilter %}", "{% set ns.l = ns.l + [loop, $f] %}",
	"{% set $T %}$B{% continue %}{% endset %}",
	"{% set ns.l = ns.l + [$f, $L] %}{% set $L = $l %}"
};
static const char *const any[] = {
	"$t", "$n", "$l", "$d", "$b", NULL, "$t", "$l", "$d", "$f", "ns", "nothing", "none",
	"ns.o", "messages[1]"
};

#define KIND(letter, array) { letter, array, sizeof(array) / sizeof(array[0]) }
static const struct {
	char letter;
	const char *const *all;
	size_t n;
} kinds[] = { KIND('t', texts), KIND('n', numbers), KIND('i', integers), KIND('l', lists),
	KIND('d', mappings), KIND('b', conditions), KIND('f', callables), KIND('a', any),
	KIND('g', filters), KIND('s', statements), KIND('R', loop_statements) };

static const char prelude[] =
    "{% macro g0(t0='', l0='') %}{{ t0 }}{{ l0|length }}{% endmacro %}"
    "{% set ns = namespace(t='ab', n=1, l=[1], d={'b': g0}, f=g0, o=none) %}"
    "{% set t0, t1, n0, n1 = 'ab', zq, 3, 2.5 %}"
    "{% set l0, l1, d0, d1 = [1, 'a'], ['h', zq], {'a': 1}, {'k': zq} %}"
    "{% macro f0(t0='', l0=[]) %}{{ t0 }}{{ n0 }}{% endmacro %}"
    "{% macro f1(t1='m', l1=1) %}{% set ns.t = t1 %}{{ t1|trim }}{% endmacro %}";

/* splitmix64 */
static unsigned
choose(unsigned n)
{
	uint64_t x = state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (unsigned)((x ^ x >> 31) % n);
}

static void
put_text(const char *text, size_t n)
{
	if (n < sizeof(template) - size) {
		memcpy(template + size, text, n);
		size += n;
	}
}

static void expand(const char *production, unsigned depth);

/* One of the kind */
static void
produce(char letter, unsigned depth)
{
	size_t k, ends = 0;

	if (choose(256) == 0 && strchr("tnldbf", letter) != NULL)
		letter = 'a';
	for (k = 0; kinds[k].letter != letter; k++)
		;
	while (kinds[k].all[ends] != NULL)
		ends++;
	if (depth == 0 || size > TEXT_MOST || choose(8) == 0)
		expand(kinds[k].all[choose((unsigned)ends)], depth > 0 ? depth - 1 : 0);
	else
		expand(kinds[k].all[ends + 1 + choose((unsigned)(kinds[k].n - ends - 1))],
		    depth - 1);
}

static void
expand(const char *p, unsigned depth)
{
	unsigned i;
	char name[3];

	for (; *p != '\0'; p++) {
		if (*p != '$') {
			put_text(p, 1);
		} else if (*++p == 'B') {
			for (i = choose(3) + 1; i > 0; i--)
				produce('s', depth);
		} else if (strchr("TNLDF", *p) != NULL) {
			name[0] = (char)(*p | 32);
			name[1] = (char)('0' + choose(2));
			put_text(name, 2);
		} else {
			produce(*p, depth);
		}
	}
}

/* ---- carrying them out ---- */

static void
print_template(void)
{
	printf("\n%.*s\n(template %llu)\n", (int)size, template, number);
	fflush(stdout);
}

static void
check(int holds, const char *what, const char *more)
{
	if (holds)
		return;
	printf("%s: %s", what, more);
	print_template();
	abort();
}

static void
mark(const void *with, const char *variable, const char *key, const json_t *value,
    unsigned char *out, size_t n)
{
	(void)with;
	if (!json_is_string(value) || strcmp(variable, "messages") != 0 ||
	    strcmp(key, "role") != 0)
		memset(out, 1, n);
}

/* wide: or beyond ASCII */
static int
is_of(char c, const char *letters, int wide)
{
	return c != '\0' && (strchr(letters, c) != NULL || (wide && (unsigned char)c >= 0x80));
}

static void
check_text(const struct marked_text *t)
{
	json_t *utf8 = json_stringn(t->text, t->n);
	size_t i;

	check(utf8 != NULL, "it is not UTF-8", "");
	json_decref(utf8);
	check(t->text[t->n] == '\0', "it is not terminated", "");
	for (i = 0; i < t->n; i++) {
		check(!is_of(t->text[i], "qxzQXZ", 1) || t->mark[i] != 0, "contents are markup",
		    t->text + i);
		check(!is_of(t->text[i], "ghkmGHKM", 0) || t->mark[i] == 0, "markup is contents",
		    t->text + i);
	}
}

static json_t *
messages(void)
{
	return json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:i, s:f, s:{s:[n, b, {s:s}]}}, {s:s, s:s}]",
	    "role", "user", "content", " qz q\n", "qxq", "<z>",
	    "role", "assistant", "content", "X\xc3\xa9 \xe2\x82\xac", "n", 5, "q", 0.5,
	    "deep", "a", 1, "xz", "q", "role", "user", "content", "z");
}

struct counts {
	unsigned long long rendered, refused;
	uint64_t most_steps;
	double slowest;
};

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Which of two renderings reaches a limit is by chance: their variables have another order. */
static int
is_limit(const char *err)
{
	return strstr(err, "steps of work") != NULL || strstr(err, "of memory") != NULL;
}

/* The second rendering, of a part or of the whole; why: the first one failed, or "" */
static void
render_again(struct jinja *t, json_t *set, const struct marked_text *first, const char *why)
{
	const int failed = why[0] != '\0';
	static const unsigned flags[] = { 0, 0, CHAT_OPEN, CHAT_CONTINUE,
		CHAT_OPEN | CHAT_CONTINUE };
	struct chat c = { .template = t, .variables = json_pack("{s:s}", "bos_token", "<s>") };
	json_t *all = messages();
	struct chat_request q = { .messages = all, .set = set, .date = DATE,
		.flags = flags[choose(5)] };
	struct marked_text again;
	char err[256] = "";

	if (chat_render(&c, &q, &again, err, sizeof(err)) == 0) {
		check(q.flags != 0 || is_limit(why) || (!failed && again.n == first->n &&
		    memcmp(again.text, first->text, again.n) == 0), "it is not the same twice",
		    again.text);
		check_text(&again);
		free(again.text);
		free(again.mark);
	} else {
		check(q.flags != 0 || failed || is_limit(err),
		    "it is refused when it is rendered again", err);
		check(err[0] != '\0', "there is no message", "");
	}
	json_decref(all);
	json_decref(c.variables);
}

static void
run_template(struct counts *n)
{
	uint64_t steps = 0;
	struct jinja_context c = { .mark = mark, .date = DATE, .steps = &steps };
	json_t *set = json_pack("{s:s, s:[{s:s}]}", "zq", "zq<x>", "tools", "qz", "x");
	json_t *all = json_copy(set);
	struct marked_text out = { .n = 0 };
	struct jinja *t;
	char err[256] = "";
	double begin = now(), took;
	int rc;

	json_object_set_new(all, "messages", messages());
	json_object_set_new(all, "bos_token", json_string("<s>"));
	json_object_set_new(all, "add_generation_prompt", json_false());
	json_object_set_new(all, "documents", json_null());
	c.variables = all;
	if ((rc = jinja_read("grammar", template, size, &t, err, sizeof(err))) == 0) {
		rc = jinja_render(t, &c, &out, err, sizeof(err));
		check(rc == 0 || strstr(err, "grammar: line ") == err,
		    "there is no message with a line", err);
		if (rc == 0)
			check_text(&out);
		took = now() - begin;
		n->slowest = took > n->slowest ? took : n->slowest;
		n->most_steps = steps > n->most_steps ? steps : n->most_steps;
		render_again(t, set, &out, err);
	} else {
		check(strstr(err, "nested more than") != NULL, "it cannot be read", err);
	}
	n->rendered += rc == 0;
	n->refused += rc != 0;
	free(out.text);
	free(out.mark);
	jinja_free(t);
	json_decref(set);
	json_decref(all);
}

int
main(int argc, char **argv)
{
	struct counts n = { .rendered = 0 };
	const unsigned long long seed = argc > 2 ? strtoull(argv[1], NULL, 10) : 0;
	const unsigned long long all = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	unsigned i, depth;

	if (all == 0)
		return 2;
	__sanitizer_set_death_callback(print_template);
	for (number = 0; number < all; number++) {
		state = seed * 0x2545f4914f6cdd1du + number;
		size = 0;
		put_text(prelude, strlen(prelude));
		depth = 6 + choose(4);
		for (i = choose(4) + 2; i > 0; i--)
			produce('s', depth);
		if (argc > 3)
			print_template();
		run_template(&n);
	}
	printf("%llu templates: %llu rendered, %llu refused; at most %llu steps, %.0f ms\n", all,
	    n.rendered, n.refused, (unsigned long long)n.most_steps, 1e3 * n.slowest);
	return 0;
}
