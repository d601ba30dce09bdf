# make            target/release/gatekeeper and target/release/libsandbox.so
# make run        the same, and a short demonstration
# make test       everything that can be tested here
# make install    below PREFIX (/usr/local) and DESTDIR; make uninstall takes it away; make deb, rpm, dist: packages in dist/
# Others: deps check bench fuzz man install-files package-deb package-rpm clean.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
FUZZ_SECONDS ?= 60

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ARCH    := $(shell uname -m)
PAGES   := $(wildcard docs/man/*.[1-9])
DIST    ?= dist

# Where rustup puts cargo, for shells that were opened before it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin
# What install-files installs.
GATEKEEPER ?= target/release/gatekeeper
LIBSANDBOX ?= target/release/libsandbox.so
INSTALL = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' VERSION='$(VERSION)' GATEKEEPER='$(GATEKEEPER)' LIBSANDBOX='$(LIBSANDBOX)'
# One place for what is built, whatever the environment says.
IN := --locked --target-dir target

.PHONY: build deps run test check bench fuzz man install install-files uninstall deb rpm package-deb package-rpm dist clean

build: deps
	$(CARGO) build --release $(IN) -p gatekeeper
	@target/release/gatekeeper extract target/release/libsandbox.so >/dev/null
	@ls -l target/release/gatekeeper target/release/libsandbox.so

deps:
	@scripts/packages build

run: build
	@scripts/demo

test: deps
	@scripts/packages test
	$(CARGO) test --workspace $(IN)

check: deps
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(IN) -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check; else echo "cargo-deny is not installed: licences and advisories were not checked"; fi

bench: deps
	$(CARGO) bench -p gatekeeper $(IN)

fuzz: deps
	@if [ ! -d gatekeeper/fuzz ]; then echo "no fuzz targets yet"; exit 0; fi; \
	cd gatekeeper/fuzz && for target in $$($(CARGO) +nightly fuzz list); do \
		$(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

man: build
	@mkdir -p target/man && cp $(PAGES) target/man/ && target/release/gatekeeper man target/man && ls target/man/*

install: build
	$(MAKE) install-files

# Without building anything, for packagers.
install-files:
	@$(INSTALL) scripts/install-files install

uninstall:
	@$(INSTALL) scripts/install-files uninstall

deb: build
	@$(MAKE) package-deb

rpm: build
	@$(MAKE) package-rpm

# Without building anything either.
package-deb package-rpm: package-%:
	@scripts/packages package
	@$(INSTALL) scripts/package $* $(DIST)

dist: build
	rm -rf $(DIST) && mkdir -p $(DIST)
	git archive --prefix=libsandbox-$(VERSION)/ -o $(DIST)/libsandbox-$(VERSION).tar.gz HEAD
	$(MAKE) install-files DESTDIR=$(CURDIR)/$(DIST)/root PREFIX=/usr
	rm $(DIST)/root/usr/share/gatekeeper/installed
	tar -C $(DIST)/root --owner=0 --group=0 -czf $(DIST)/libsandbox-$(VERSION)-$(ARCH)-linux.tar.gz .
	rm -rf $(DIST)/root
	$(MAKE) package-deb package-rpm
	cd $(DIST) && sha256sum *.tar.gz *.deb *.rpm > SHA256SUMS && cat SHA256SUMS

clean:
	$(CARGO) clean --target-dir target
	rm -rf dist
