# make dist, make install-strip, make help. A release: CONTRIBUTING.md.

# Without time, owner or order of the machine: the same commit gives the same bytes.
DIST = $(O)/kvpipe-$(VERSION).tar.gz
#? dist            the sources of the last commit as build/kvpipe-VERSION.tar.gz
dist:
	@mkdir -p $(O)
	git archive --format=tar --prefix=kvpipe-$(VERSION)/ HEAD | gzip -9n >$(DIST)

#? check           the same as test
check: test

#? install-strip   install, without symbols for debuggers
STRIP = strip
install-strip: INSTALL_PROGRAM = $(INSTALL) -s --strip-program=$(STRIP)
install-strip: install

#? release-check   what must hold before a version is tagged
release-check:
	sh tests/release_check.sh

# What stands behind #? in the makefiles
#? help            these lines
help:
	@echo 'make [O=build] [PREFIX=/usr/local] [DESTDIR=] [GPU=auto|0|1] [CC=] [CFLAGS=] TARGET'
	@sed -n 's/^#? /  /p' Makefile $(sort $(wildcard *.mk)) $(sort $(wildcard tests/*.mk))

.PHONY: dist check install-strip release-check help
