# Conversations: tests/bin/jinja_lines renders templates for the tests and for tests/oracle/chat.py

test_programs += $(O)/tests/bin/jinja_lines

$(O)/tests/bin/jinja_lines: $(O)/tests/bin/jinja_lines.o $(O)/libchat.a
	$(CC) $(CFLAGS) $(sanitize) $(LDFLAGS) -o $@ $^ $(kvfile_libs) -lm

# make real-templates: templates of real models through kv-chat and through transformers, with the
# vocabularies of `make real-tokenizers`, which comes first; not a part of make test.
# tests/oracle/chat.py says what it needs.
real_templates = $(O)/real-templates

#? real-templates  chat templates of real models beside transformers
real-templates: $(O)/tests/bin/jinja_lines $(O)/kv-chat
	[ -d $(real)/vocabularies/packages ] || { echo 'first: make real-tokenizers' >&2; false; }
	$(real)/venv/bin/python -m pip install -q \
	    transformers==5.2.0 jinja2==3.1.6 mistral-common==1.13.1
	$(real)/venv/bin/python tests/oracle/chat.py unpack \
	    $(real)/vocabularies/packages $(real_templates)
	$(real)/venv/bin/python tests/oracle/chat.py compare \
	    $(O)/tests/bin/jinja_lines $(O)/kv-chat $(real_templates) $(real)/vocabularies

.PHONY: real-templates
