/* score.h - the options of scoring methods, and the judgement of one layer: what kv-score shares
 * with programs that score in process
 *
 * It knows no snapshot. One method with its options for a process. */
#ifndef KVPIPE_SCORE_H
#define KVPIPE_SCORE_H

#include "methods/methods.h"
#include "cli/device.h"
#include "cli/tool.h"

extern const struct opt scoring_opts[];         /* for struct tool's more */

/* One line for each method, on standard output. */
void scoring_list(void);

/* Takes the method and judges the options together, when all have been set: one that the method
 * does not use is refused. Dies with EXIT_USAGE; name NULL: so, too. */
const struct method *scoring_check(const char *name);

/* From now on only rows at this position and later are judged, as with --since. */
void scoring_since(uint32_t position);

/* How many observation queries the method needs where they can still be kept: --window, without
 * it as many as `otherwise` says; 1 for a method that looks at the last one; 0 for none. */
uint32_t scoring_queries(uint32_t otherwise);

/* How many observation queries the method looks at, of those that a layer has: all, or --window.
 * Dies with EXIT_USAGE when that is more. */
uint32_t scoring_window(uint32_t stored, uint32_t layer);

/* label[size] <- the method and each option that it uses, as an sCOR section has them
 * (kv-snapshot(5), 4.6); queries: how many there were. */
void scoring_label(char *label, size_t size, uint32_t queries);
/* Tells the same to the provenance. */
void scoring_sign(uint32_t queries);

/* What the judgement of a layer is made from. */
struct scoring_layer {
	/* rows, and what the method needs of keys, mass, window positions; window_mass is made
	 * here. Without rows on the device, NEED_WINDOW needs keys, too. */
	struct score_input in;
	/* [W][H][E], with NEED_WINDOW: on the host, or, NULL there, on the device */
	const float *queries, *queries_there;
	/* host [G][n_own][E] of in.dtype: keys of the last n_own of the window's queries and
	 * of those before, which are of tokens that are not stored, and their positions */
	const void *own_keys;
	const uint32_t *own_pos;                /* host [n_own] */
	uint32_t n_own;                         /* 0 = none */
	/* the same rows where the device has them already; NULL: they are taken there */
	const struct layer_rows *there;
	/* then also device [H][mass_stride] what they have received, instead of in.mass */
	const float *mass_there;
	size_t mass_stride;
	/* scoring_begin()'s: where scoring_finish() finds what the device has made; -1: nothing
	 * is made there */
	int place;
};

/* score[sum S] <- the method's scores; rows before --since get +inf, and nothing else is as if
 * they were there: softmax, anchor, neighbours are those of the later rows alone. d: opened, with
 * NEED_WINDOW. Dies, also when a score is not a number. */
void scoring_judge(const struct device *d, struct scoring_layer *layer, float *score);

/* The same in two steps. The first has the device begin with its part, for which in.mass and
 * in.probe_mass need not be there yet. The second waits for that, and for nothing that the device was given
 * to do in between. in.keys are needed in the second step where the first has left no place. At
 * most FETCHES layers are begun. */
void scoring_begin(const struct device *d, struct scoring_layer *layer);
void scoring_finish(const struct device *d, struct scoring_layer *layer, float *score);

/* Frees what scoring_judge() keeps from one layer to the next. d NULL: it was never used. */
void scoring_end(const struct device *d);

#endif
