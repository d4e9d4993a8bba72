# make real [TRAIN_PYTHON=/folder/of/venv/bin/python]: a real model from PyPI against transformers,
# and every method on it; 20 minutes, and not a part of make test

#? real            SmolLM2 beside transformers, and every script of examples/methods
real: all
	O=$(O) sh tests/real.sh

.PHONY: real

# make experiments [SMOLLM2=/folder/of/the/model]: the claims of examples/experiments; with the
# model ten minutes, without it those of the demo model
experiments: all
	[ -n "$$SMOLLM2" ] || [ ! -e $(O)/smollm2/config.json ] || \
	    { SMOLLM2=$(O)/smollm2 && export SMOLLM2; }; \
	O=$(O) PATH=$(abspath $(O)):$$PATH bats examples/experiments

.PHONY: experiments
