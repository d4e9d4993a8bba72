/* keynorm - print the mean length of the keys of each layer and KV head of a snapshot
 *
 * An example of a program outside this tree, made with the installed library:
 *
 *	cc -o keynorm keynorm.c $(pkg-config --cflags --libs kvfile) -lm
 *	keynorm p.kv        or        kv-evict --budget 128 p.kv | keynorm -
 *
 * It holds one section at a time, whatever the size of the snapshot. */

#include <kvfile.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* keys: [head][row][E] of the snapshot's element type */
static void
print_layer(const struct kv_head *head, const struct kv_rows *rows, uint32_t layer,
    const char *keys)
{
	uint32_t E = head->model.head_width, g, s, i;
	size_t row_size = E * kv_dtype_size(head->dtype);
	float key[1024];                /* no head is wider, kv-snapshot(5) */
	double squares, sum;

	for (g = 0; g < rows->heads; g++) {
		sum = 0;
		for (s = 0; s < rows->count[g]; s++, keys += row_size) {
			kv_to_f32(key, keys, head->dtype, E);
			squares = 0;
			for (i = 0; i < E; i++)
				squares += (double)key[i] * key[i];
			sum += sqrt(squares);
		}
		printf("%u\t%u\t%u\t%.6g\n", layer, g, rows->count[g],
		    rows->count[g] > 0 ? sum / rows->count[g] : 0);
	}
}

int
main(int argc, char *argv[])
{
	struct kv_section sec;
	struct kv_reader *r;
	const void *keys;
	int code;

	code = kv_open(argc > 1 ? argv[1] : "-", &r);
	if (code == KV_OK)
		printf("layer\thead\trows\tnorm\n");
	/* Sections that are not loaded are checked all the same. */
	while (code == KV_OK && (code = kv_next(r, &sec)) == 1) {
		code = KV_OK;
		if (sec.kind != KV_KEYS)
			continue;
		code = kv_load(r, &keys);
		if (code == KV_OK)
			print_layer(kv_reader_head(r), kv_current_rows(r), sec.layer, keys);
	}
	if (code != KV_OK)
		fprintf(stderr, "keynorm: %s\n",
		    r != NULL ? kv_reader_error(r) : kv_error_name(code));
	kv_close(r);
	if (fflush(stdout) != 0)
		code = KV_EIO;
	return code == KV_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
