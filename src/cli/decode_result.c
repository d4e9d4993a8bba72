/* decode_result.c - the text that kv-decode has generated, as a JSON object */
#include <stdlib.h>

#include "cli/terminal_escape.h"
#include "cli/decode_result.h"
#include "cli/json.h"

void
decode_result_collect(struct decode_result *g, struct token_printer *p)
{
	if ((g->stream = open_memstream(&g->text, &g->size)) == NULL)
		die(EXIT_RUN, "out of memory");
	g->ids = json_array();
	p->to = g->stream;
}

void
decode_result_add(struct decode_result *g, uint32_t id)
{
	if (g->stream != NULL)
		json_array_append_new(g->ids, json_integer(id));
}

/* Closes the stream, which completes the text. If memory for its last byte is missing, fclose()
 * succeeds, and there is no text. */
static void
end_stream(struct decode_result *g)
{
	if (fclose(g->stream) != 0 || g->text == NULL)
		die(EXIT_RUN, "out of memory");
}

char *
decode_result_text(struct decode_result *g, size_t *size)
{
	end_stream(g);
	json_decref(g->ids);
	*size = g->size;
	return g->text;
}

void
print_answer_line(const char *text, size_t size)
{
	static const char *const escaped[] = { ['\n'] = "\\n", ['\r'] = "\\r", ['\\'] = "\\\\" };
	const unsigned char *p = (const unsigned char *)(size > 0 ? text : "");
	const unsigned char *end = p + size, *from = p;

	for (; p < end; p++) {
		if (*p >= sizeof escaped / sizeof escaped[0] || escaped[*p] == NULL)
			continue;
		(void)write_shown(stdout, (const char *)from, (size_t)(p - from));
		fputs(escaped[*p], stdout);
		from = p + 1;
	}
	(void)write_shown(stdout, (const char *)from, (size_t)(end - from));
	putchar('\n');
	if (fflush(stdout) != 0)
		stdout_failed(NULL);
}

json_t *
decode_result_json(struct decode_result *g, const char *name)
{
	static const char *const stops[] = { "tokens", "eos", "text" };
	json_t *o = json_object(), *seconds = json_object();

	end_stream(g);
	put_text(o, "snapshot", name);
	put_bytes(o, "text", g->text, g->size);
	put_value(o, "ids", g->ids);
	put_count(o, "tokens", g->n);
	put_text(o, "stop", stops[g->stop]);
	if (g->stop_text != NULL)
		put_text(o, "stop_text", g->stop_text);
	else
		put_value(o, "stop_text", json_null());
	put_value(o, "seconds", seconds);
	put_real(seconds, "load", g->load);
	put_real(seconds, "generate", g->generate);
	free(g->text);
	return o;
}
