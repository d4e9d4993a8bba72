/* gguf_draw.c - numbers, and values and keys of GGUF files, by chance */
#include <stdio.h>
#include <string.h>

#include "tests/fuzz/gguf_draw.h"

struct drawn drawn;

/* ---- chance ---- */

uint64_t
next(void)
{
	drawn.state ^= drawn.state << 13;
	drawn.state ^= drawn.state >> 7;
	drawn.state ^= drawn.state << 17;
	return drawn.state * UINT64_C(0x2545f4914f6cdd1d);
}

uint32_t
below(uint32_t n)
{
	return (uint32_t)((next() >> 32) * n >> 32);
}

int
rarely(uint32_t n)
{
	return below(n) == 0;
}

static const uint64_t odd[] = { 0, 1, 2, 3, 7, 31, 33, 255, 256, 65535, 65536, 0x7fffffff,
	0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000,
	0xffffffffffffffff, 0xfffffffffffffff0 };

uint64_t
any(void)
{
	return rarely(4) ? next() : odd[below(sizeof odd / sizeof odd[0])];
}

/* ---- values ---- */

void
add_bytes(const void *data, size_t n)
{
	if (n > MOST - drawn.size)
		n = MOST - drawn.size;
	memcpy(drawn.file + drawn.size, data, n);
	drawn.size += n;
}

void
put_n(uint64_t v, size_t n)
{
	uint8_t b[8];
	size_t i;

	for (i = 0; i < n; i++)
		b[i] = (uint8_t)(v >> 8 * i);
	add_bytes(b, n);
}

void
put_text(const char *text, size_t n)
{
	put_n(rarely(3000) ? any() : n, 8);
	add_bytes(text, n);
}

static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };

uint64_t
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

/* ---- drawn.keys ---- */

/* Begins a key. Returns 0 where the value is not to follow: it is left out, or another one is
 * there. */
static int
put_key(const char *name, unsigned kind)
{
	char full[128];
	int twice = rarely(300);
	unsigned other;

	snprintf(full, sizeof full, "%s%s", name[0] == '.' ? drawn.arch : "", name);
	if (rarely(100))
		return 0;
	drawn.keys++;
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
	drawn.keys++;
	put_text(full, strlen(full));
	put_n(kind, 4);
	return 1;
}

void
put_whole(const char *name, uint64_t v)
{
	if (put_key(name, U32))
		put_n(rarely(60) ? any() : v, 4);
}

void
put_real(const char *name, float v)
{
	if (put_key(name, F32))
		put_n(rarely(60) ? any() : bits(v), 4);
}

void
put_word(const char *name, const char *v)
{
	if (put_key(name, STRING))
		put_text(v, strlen(v));
}

void
put_flag(const char *name, int v)
{
	if (put_key(name, BOOL))
		put_n((uint64_t)v, 1);
}

int
put_list(const char *name, unsigned of, uint64_t n)
{
	if (!put_key(name, ARRAY))
		return 0;
	put_n(of, 4);
	put_n(rarely(200) ? any() : n, 8);
	return 1;
}
