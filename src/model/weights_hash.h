/* weights_hash.h - what tells two sets of weights apart: a hash of all bytes of all tensors
 *
 * The fingerprint of weights, formats/kv-snapshot.md section 6. The first time a folder is opened
 * all its bytes are read; weights_known.h remembers the result. Errors are MODEL_* codes, with a
 * message in err[errlen]. */
#ifndef KVPIPE_WEIGHTS_HASH_H
#define KVPIPE_WEIGHTS_HASH_H

#include "model/safetensors.h"

/* Of kv_model.weights_rule: 0 stands for the samples of older programs */
enum { WEIGHTS_RULE = 2, WEIGHTS_SAMPLED = 0 };

/* How tensors are read for their hash. All zero: by one thread, and nothing is remembered. */
struct weights_reading {
	unsigned threads;
	const char *known;              /* file of weights_known.h; NULL: none */
	/* called by one thread as work goes on; call NULL: none */
	void (*call)(void *with, uint64_t done, uint64_t total);
	void *with;
	uint64_t bytes;                 /* <- bytes read; 0: the result was known */
};

/* hex[33] <- the hash of all bytes. */
int weights_hash(const struct tensor_set *, struct weights_reading *, char *hex, char *err,
    size_t errlen);
/* hex[33] <- what programs wrote in its place that looked at samples: 64 KiB of a tensor. */
int weights_hash_sampled(const struct tensor_set *, char *hex, char *err, size_t errlen);

#endif
