# make            target/release/gatekeeper and target/release/libsandbox.so
# make run        the same, and a short demonstration
# make test       everything that can be tested here
# Others: deps check bench fuzz man install uninstall dist clean. PREFIX and DESTDIR as usual.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
FUZZ_SECONDS ?= 60

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ARCH    := $(shell uname -m)
BIN     := $(DESTDIR)$(PREFIX)/bin
LIB     := $(DESTDIR)$(PREFIX)/lib
INCLUDE := $(DESTDIR)$(PREFIX)/include
MAN     := $(DESTDIR)$(PREFIX)/share/man
PAGES   := $(wildcard docs/man/*.[1-9])

# Where rustup puts cargo, for shells that were opened before it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin
# One place for what is built, whatever the environment says.
IN := --locked --target-dir target

.PHONY: build deps run test check bench fuzz man install uninstall dist clean

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
	@scripts/node-packages playwright-core
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
	install -d $(BIN) $(LIB) $(INCLUDE)
	install -m 755 target/release/gatekeeper $(BIN)/gatekeeper
	install -m 755 target/release/libsandbox.so $(LIB)/libsandbox.so
	install -m 644 libsandbox/include/sandbox.h $(INCLUDE)/sandbox.h
	for page in $(PAGES); do install -D -m 644 $$page $(MAN)/man$${page##*.}/$${page##*/} || exit 1; done

uninstall:
	rm -f $(BIN)/gatekeeper $(LIB)/libsandbox.so $(INCLUDE)/sandbox.h
	for page in $(PAGES); do rm -f $(MAN)/man$${page##*.}/$${page##*/}; done

dist:
	rm -rf dist && mkdir -p dist
	git archive --prefix=libsandbox-$(VERSION)/ -o dist/libsandbox-$(VERSION).tar.gz HEAD
	$(MAKE) install DESTDIR=$(CURDIR)/dist/root PREFIX=/usr
	tar -C dist/root -czf dist/libsandbox-$(VERSION)-$(ARCH)-linux.tar.gz .
	rm -rf dist/root
	cd dist && sha256sum *.tar.gz > SHA256SUMS && cat SHA256SUMS

clean:
	$(CARGO) clean --target-dir target
	rm -rf dist
