# install, uninstall. Honours PREFIX and DESTDIR.

INSTALL = install
INSTALL_PROGRAM = $(INSTALL)
DOCDIR = $(PREFIX)/share/doc/kvpipe
BATSDIR = $(PREFIX)/lib/bats
SHAREDIR = $(PREFIX)/share/kvpipe
PYTHONDIR = $(SHAREDIR)/python
# Examples in Python find the package beside them, or where Python looks for packages.
PYTHONSCRIPTDIR = $(PYTHONDIR)
BASHCOMPDIR = $(PREFIX)/share/bash-completion/completions
ZSHCOMPDIR = $(PREFIX)/share/zsh/site-functions
FISHCOMPDIR = $(PREFIX)/share/fish/vendor_completions.d
# where the programs are that become installed
BUILT = $(O)

installed_headers = $(addprefix libkvfile/,kvfile.h codec.h dtype.h kinds.h rowtype.h)
installed_docs = README.md NEWS.md SECURITY.md MODELS.md SPEED.md CONTRIBUTING.md LICENSE \
	CITATION.cff formats/kv-snapshot.md
installed_python = $(wildcard python/kvsnapshot/*.py) python/kvsnapshot/py.typed
# Below share/kvpipe they stand as in the distribution, so that they find each other; links are
# there, too, so that documents find them from either folder.
installed_trees = deps.sh examples experiments train
tree_files = find -H $(installed_trees) -type f ! -path '*/__pycache__/*' ! -name '*.swp'
pages = $(wildcard man/*.[1-9])

# A folder's name for the shell.
to = $(call quoted,$(DESTDIR)$(1))

# kvfile.pc uses its variables in quotation marks, so their values have none; # begins a comment.
hash := \#
no_mark = $(if $(findstring ",$(1)),$(error kvfile.pc cannot name $(1): it has a quotation mark))
pc_line = $(call no_mark,$(2))$(call quoted,$(1)=$(subst $(hash),\$(hash),$(2)))
# Folders below the prefix are named from it, for pkg-config --define-variable=prefix=ELSEWHERE.
from_prefix = $(if $(findstring <$(PREFIX)/,<$(1)),$${prefix}/$(subst <$(PREFIX)/,,<$(1)),$(1))
pc_folder = $(call pc_line,$(1),$(call from_prefix,$(2)))
pc_lines = $(call pc_line,prefix,$(PREFIX)) $(call pc_folder,libdir,$(LIBDIR)) \
	$(call pc_folder,includedir,$(INCLUDEDIR)) $(call pc_folder,pythondir,$(PYTHONDIR)) \
	$(call quoted,Version: $(VERSION))

#? install         everything below PREFIX
install: all $(O)/libkvfile.a
	$(INSTALL) -d $(call to,$(BINDIR)) $(call to,$(LIBDIR)/pkgconfig) \
	    $(call to,$(INCLUDEDIR)/kvfile) $(call to,$(DOCDIR)) $(call to,$(BATSDIR)/kvpipe) \
	    $(call to,$(PYTHONDIR)/kvsnapshot) $(call to,$(PYTHONSCRIPTDIR))
	$(INSTALL_PROGRAM) $(TOOLS:%=$(BUILT)/%) $(call to,$(BINDIR))
	$(INSTALL) -m 644 $(O)/libkvfile.a $(call to,$(LIBDIR))
	$(INSTALL_PROGRAM) -m 755 $(O)/libkvfile.so $(call to,$(LIBDIR)/libkvfile.so.$(SOVERSION))
	ln -sf libkvfile.so.$(SOVERSION) $(call to,$(LIBDIR)/libkvfile.so)
	$(INSTALL) -m 644 $(installed_headers) $(call to,$(INCLUDEDIR)/kvfile)
	{ printf '%s\n' $(pc_lines) && cat libkvfile/kvfile.pc.in; } \
	    >$(call to,$(LIBDIR)/pkgconfig/kvfile.pc)
	for page in $(pages); do \
		dir=$(call to,$(MANDIR))/man$${page##*.} && $(INSTALL) -d "$$dir" && \
		$(INSTALL) -m 644 $$page "$$dir" || exit; \
	done
	$(INSTALL) -m 644 $(installed_docs) $(call to,$(DOCDIR))
	$(INSTALL) -m 644 tests/kvpipe/load.bash $(call to,$(BATSDIR)/kvpipe)
	$(INSTALL) -m 644 $(installed_python) $(call to,$(PYTHONDIR)/kvsnapshot)
	[ ! -s $(O)/completions/_kvpipe ] || { \
		$(INSTALL) -d $(call to,$(BASHCOMPDIR)) $(call to,$(ZSHCOMPDIR)) \
		    $(call to,$(FISHCOMPDIR)) && \
		$(INSTALL) -m 644 $(O)/completions/kvpipe.bash $(call to,$(BASHCOMPDIR)/kvpipe) && \
		$(INSTALL) -m 644 $(O)/completions/_kvpipe $(call to,$(ZSHCOMPDIR)) && \
		$(INSTALL) -m 644 $(TOOLS:%=$(O)/completions/%.fish) $(call to,$(FISHCOMPDIR)) && \
		for tool in $(filter-out kvpipe,$(TOOLS)); do \
			ln -sf kvpipe $(call to,$(BASHCOMPDIR))/$$tool || exit; \
		done; \
	}
	$(INSTALL) -d $(call to,$(DOCDIR)/man) $(call to,$(DOCDIR)/formats)
	$(tree_files) | tar -c --mode=u=rw,go=r -T - | \
	    (cd $(call to,$(SHAREDIR)) && tar -x --no-same-owner)
	$(INSTALL) -m 644 $(wildcard examples/python/*.py) $(call to,$(PYTHONSCRIPTDIR))
	ln -srf $(call to,$(DOCDIR)/kv-snapshot.md) $(call to,$(DOCDIR)/formats)
	ln -srf -t $(call to,$(DOCDIR)/man) $(foreach page,$(pages:man/%=%), \
	    $(call to,$(MANDIR)/man$(subst .,,$(suffix $(page)))/$(page)))
	ln -srfn -t $(call to,$(DOCDIR)) \
	    $(foreach name,$(filter-out %.sh,$(installed_trees)),$(call to,$(SHAREDIR)/$(name)))
	ln -srfn -t $(call to,$(SHAREDIR)) $(foreach name, \
	    $(filter-out formats/%,$(installed_docs)) formats man,$(call to,$(DOCDIR)/$(name)))
	@[ -n $(call quoted,$(DESTDIR)) ] || { $(loader_knows); } || \
	    printf '%s\n' $(call quoted,$(loader_does_not))

# A user's PATH need not have ldconfig, and who is not root cannot use it.
loader_knows = PATH=$$PATH:/usr/sbin:/sbin; ldconfig 2>/dev/null; \
	ldconfig -p 2>/dev/null | grep -qF $(call quoted,> $(LIBDIR)/libkvfile.so)
loader_does_not = The loader does not know $(LIBDIR)/libkvfile.so: \
	LD_LIBRARY_PATH, or a line in /etc/ld.so.conf and ldconfig (as root).

#? uninstall       takes away what install brought
uninstall:
	rm -f $(foreach tool,$(TOOLS),$(call to,$(BINDIR)/$(tool)))
	rm -f $(foreach file,libkvfile.a libkvfile.so libkvfile.so.$(SOVERSION) \
	    pkgconfig/kvfile.pc,$(call to,$(LIBDIR)/$(file)))
	rm -rf $(call to,$(INCLUDEDIR)/kvfile) $(call to,$(DOCDIR)) $(call to,$(BATSDIR)/kvpipe) \
	    $(call to,$(PYTHONDIR)/kvsnapshot) $(call to,$(SHAREDIR))
	rm -f $(foreach name,$(TOOLS),$(call to,$(BASHCOMPDIR)/$(name))) \
	    $(call to,$(ZSHCOMPDIR)/_kvpipe) \
	    $(foreach tool,$(TOOLS),$(call to,$(FISHCOMPDIR)/$(tool).fish))
	for page in $(pages:man/%=%); do rm -f $(call to,$(MANDIR))/man$${page##*.}/$$page; done

.PHONY: install uninstall
