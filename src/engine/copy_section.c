/* copy_section.c - copies sections of a snapshot that another one is made from */
#include "engine/copy_section.h"

/* Fails after a copy, with the message of the one that failed. */
static int
copied(const struct kv_reader *r, const struct kv_writer *w, int code, struct engine_error *e)
{
	if (*kv_reader_error(r) != '\0')
		return engine_read(e, r, code);
	return engine_wrote(e, w, code);
}

int
copy_section(struct kv_reader *r, struct kv_writer *w, struct engine_error *e)
{
	const int code = kv_copy(r, w);

	return copied(r, w, code, e);
}

int
copy_unknown_section(struct kv_reader *r, struct kv_writer *w, const struct kv_section *sec,
    int rows_changed, const struct notice_hook *hook, struct engine_error *e)
{
	const int code = kv_copy_unknown(r, w, rows_changed);

	if (code == 0)
		notice(hook, "%s: dropped the unknown section %s, which depends on the rows that "
		    "changed", kv_reader_name(r), sec->type);
	return copied(r, w, code, e);
}
