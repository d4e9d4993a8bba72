/* model_quantised - matrices of model folders in fewer bits, against the numbers that the programs
 * that made the schemes give of them (tests/oracle/quantised_matrices.py)
 *
 * FP8, compressed-tensors, GPTQ, AWQ, NF4: each file has the tensors of a matrix, their
 * configuration, and its numbers in bf16, which must be the same to the bit. */
#include "model/checkpoint.h"
#include "model/checkpoint_config.h"
#include "model/safetensors.h"
#include "tests/unit/model_folder.h"

enum { ROWS = 40, COLS = 80 };

static const char *const files[] = {
	"fp8-blocks", "fp8-blocks-bf16", "fp8-cut-blocks", "fp8-tensor",
	"float-tensor", "float-channel", "float-block", "int-channel", "int-zeros",
	"pack-channel", "pack-groups", "pack-zeros", "pack-order",
	"gptq", "gptq-order", "gptq-v2", "gptq-8", "awq", "awq-one-group",
	"nf4", "nf4-nested", "nf4-f32", "fp4",
};

static int
read_config(const struct tensor_set *st, struct checkpoint_config *out, char *err, size_t errlen)
{
	struct config c = { .path = "config.json", .overrides = &no_overrides, .err = err,
		.errlen = errlen };
	json_t *q = json_loads(safetensors_metadata(st, "quantization_config"), 0, NULL);
	int rc;

	c.json = json_pack("{s:o}", "quantization_config", q);
	rc = checkpoint_config(&c, out);
	json_decref(c.json);
	return rc;
}

static void
compare(const char *name, const struct checkpoint_matrix *m, const uint16_t *want, uint32_t from,
    uint32_t n, unsigned threads)
{
	uint16_t got[ROWS * COLS];
	char err[256] = "";
	int rc = checkpoint_rows(m, from, n, threads, got, err, sizeof err);
	size_t i;

	CHECK(rc == MODEL_OK, "%s: %s", name, err);
	for (i = 0; rc == MODEL_OK && i < n * (size_t)COLS; i++)
		if (got[i] != want[from * (size_t)COLS + i]) {
			CHECK(0, "%s: row %zu, column %zu is %04x, want %04x", name,
			    from + i / COLS, i % COLS, got[i], want[from * (size_t)COLS + i]);
			break;
		}
}

static void
test_file(const char *name)
{
	char file[64], err[512] = "";
	struct checkpoint_config config;
	struct checkpoint_matrix m;
	struct tensor_set *st;
	const struct tensor *want;
	uint8_t needed[16] = { 0 };
	size_t i, n;
	int rc;

	snprintf(file, sizeof file, "%s.safetensors", name);
	rc = safetensors_open_file(QUANTISED, file, &no_overrides, &st, err, sizeof err);
	CHECK(rc == MODEL_OK, "%s: %s", name, err);
	if (rc != MODEL_OK)
		return;
	want = safetensors_find(st, "expected");
	rc = read_config(st, &config, err, sizeof err);
	CHECK(rc == MODEL_OK, "%s: %s", name, err);
	CHECK(checkpoint_has(&config, st, "m.weight"), "%s: no matrix", name);
	CHECK(!checkpoint_has(&config, st, "other.weight"), "%s: another matrix", name);
	rc = checkpoint_find(&config, st, "m.weight", ROWS, COLS, &m, err, sizeof err);
	CHECK(rc == MODEL_OK, "%s: %s", name, err);
	if (rc == MODEL_OK) {
		compare(name, &m, want->data, 0, ROWS, 1);
		compare(name, &m, want->data, 0, ROWS, 3);
		compare(name, &m, want->data, 7, 20, 2);
		compare(name, &m, want->data, ROWS - 1, 1, 1);
		checkpoint_mark(&m, st, needed);
	}
	for (i = 0, n = safetensors_count(st); rc == MODEL_OK && i < n; i++)
		CHECK(needed[i] == (safetensors_at(st, i) != want), "%s: %s is marked %d", name,
		    safetensors_at(st, i)->name, needed[i]);
	rc = checkpoint_find(&config, st, "m.weight", ROWS, COLS - 32, &m, err, sizeof err);
	CHECK(rc == MODEL_EINVALID, "%s: another shape: code %d", name, rc);
	safetensors_close(st);
}

int
main(void)
{
	size_t i;

	for (i = 0; i < sizeof files / sizeof files[0]; i++)
		test_file(files[i]);
	return failures != 0;
}
