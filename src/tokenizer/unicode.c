/* unicode.c - general categories by binary search */
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_table.h"
#include "tokenizer/utf8.h"

enum { LU, LL, LT, LM, LO, MN, MC, ME, ND, NL, NO, PC, CN = 28, EVEN_UPPER = 30, ODD_UPPER = 31 };

#define RANGES (sizeof(category_table) / sizeof(category_table[0]))

/* Returns the index of the entry whose range has c; shift: position of the first code point in
 * an entry. */
static size_t
find(const uint32_t *table, size_t n, unsigned shift, uint32_t c)
{
	size_t low = 0, high = n, middle;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (table[middle] >> shift <= c)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static unsigned
category_of(uint32_t entry, uint32_t c)
{
	unsigned category = entry >> 1 & 31;

	if (category == EVEN_UPPER)
		return c % 2 == 0 ? LU : LL;
	if (category == ODD_UPPER)
		return c % 2 == 0 ? LL : LU;
	return category;
}

static unsigned
category(uint32_t c)
{
	return category_of(category_table[find(category_table, RANGES, 6, c)], c);
}

int
unicode_is_space(uint32_t c)
{
	if (c < 0x80)
		return c == ' ' || (c >= '\t' && c <= '\r');
	return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	    c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Alphabetic characters that are not letters, letter-like numbers or marks are only the circled
 * and squared Latin letters. */
int
unicode_is_word(uint32_t c)
{
	if (c < 0x80)
		return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
		    (c >= 'a' && c <= 'z') || c == '_';
	switch (category(c)) {
	case LU: case LL: case LT: case LM: case LO: case MN: case MC: case ME: case ND: case NL:
	case PC:
		return 1;
	default:
		return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
		    (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
		    (c >= 0x1f170 && c <= 0x1f189);
	}
}

int
unicode_is_numeric(uint32_t c)
{
	unsigned k;

	if (c < 0x80)
		return c >= '0' && c <= '9';
	k = category(c);
	return k == ND || k == NL || k == NO || (c >= 0x11de0 && c <= 0x11de9) ||
	    (c >= 0x16ff4 && c <= 0x16ff6);
}

int
unicode_is_punctuation(uint32_t c)
{
	return punctuation_table[find(punctuation_table,
	    sizeof(punctuation_table) / sizeof(punctuation_table[0]), 1, c)] & 1;
}

/* ---- stand-ins ---- */

static int
young_block(uint32_t c)
{
	return young_blocks[c >> 13] >> (c >> 8 & 31) & 1;
}

int
unicode_may_be_young(const char *text, size_t len)
{
	unsigned used;
	size_t i;

	for (i = 0; i < len; i += used) {
		if ((unsigned char)text[i] < 0x80)
			used = 1;
		else if (young_block(utf8_get(text + i, &used)))
			return 1;
	}
	return 0;
}

static uint32_t
stand_in(unsigned category, int four)
{
	if (category == CN)
		return four ? 0x1ffff : 0xffff; /* these two will never be assigned */
	return stand_ins[2 * category + (unsigned)four];
}

uint32_t
unicode_stand_in(uint32_t c, unsigned *kind)
{
	uint32_t entry, other;
	unsigned k;

	*kind = 0;
	if (c < 0x800 || !young_block(c))
		/* the unassigned ones below U+0800 have no stand-in of their length */
		return c;
	entry = category_table[find(category_table, RANGES, 6, c)];
	if ((entry & 1) == 0)
		return c;
	k = category_of(entry, c);
	*kind = 2 * k + (c >= 0x10000);
	other = stand_in(k, c >= 0x10000);
	return other != 0 ? other : c;
}

/* Returns how one young range relates to [first, last]; its categories are k. */
static uint64_t
torn(uint32_t start, uint32_t end, unsigned k, uint32_t first, uint32_t last)
{
	uint32_t other = stand_in(k, start >= 0x10000);
	int inside = other >= first && other <= last;

	if (other == 0 || (start >= first && end <= last && inside) ||
	    ((end < first || start > last) && !inside))
		return 0;
	return (uint64_t)1 << (2 * k + (start >= 0x10000));
}

uint64_t
unicode_torn_kinds(uint32_t first, uint32_t last)
{
	uint32_t start, end;
	uint64_t bits = 0;
	size_t i;

	for (i = 0; i < RANGES; i++) {
		start = category_table[i] >> 6;
		end = i + 1 < RANGES ? (category_table[i + 1] >> 6) - 1 : 0x10ffff;
		if ((category_table[i] & 1) == 0 || end < 0x800)
			continue;
		bits |= torn(start, end, category_of(category_table[i], start), first, last);
		if ((category_table[i] >> 1 & 31) >= EVEN_UPPER)
			bits |= torn(start, end, category_of(category_table[i], start + 1), first,
			    last);
	}
	return bits;
}
