# make dist, make deb, make install-strip, make help. A release: CONTRIBUTING.md.

# Without time, owner or order of the machine: the same commit gives the same bytes.
DIST = $(O)/kvpipe-$(VERSION).tar.gz
#? dist            the sources of the last commit as build/kvpipe-VERSION.tar.gz
dist:
	@mkdir -p $(O)
	git archive --format=tar --prefix=kvpipe-$(VERSION)/ HEAD | gzip -9n >$(DIST)

# The tarball is the upstream source of the package. What a command line of make sets is not for
# debian/rules.
#? deb             Debian packages of the last commit, in build/deb
deb: dist
	rm -rf $(O)/deb
	mkdir -p $(O)/deb
	cp $(DIST) $(O)/deb/kvpipe_$(VERSION).orig.tar.gz
	tar -xzf $(DIST) -C $(O)/deb
	cd $(O)/deb/kvpipe-$(VERSION) && \
	    env -u MAKEFLAGS -u MAKEOVERRIDES -u MAKELEVEL dpkg-buildpackage -us -uc

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

.PHONY: dist deb check install-strip release-check help
