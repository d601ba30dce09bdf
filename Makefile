# make            target/release/gatekeeper and target/release/libsandbox.so
# make run        the same, and a short demonstration
# make test       everything that can be tested here
# Others: deps check deny bench fuzz soak sanitize reproducible sbom man install install-files uninstall dist clean.
# PREFIX and DESTDIR as usual.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ARCH    := $(shell uname -m)
BIN     := $(DESTDIR)$(PREFIX)/bin
LIB     := $(DESTDIR)$(PREFIX)/lib
INCLUDE := $(DESTDIR)$(PREFIX)/include
CONFIG  := $(DESTDIR)$(PREFIX)/lib/pkgconfig
MAN     := $(DESTDIR)$(PREFIX)/share/man
PAGES   := $(wildcard docs/man/*.[1-9])

# Where rustup puts cargo, for shells that were opened before it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin
# What install-files installs.
GATEKEEPER ?= target/release/gatekeeper
LIBSANDBOX ?= target/release/libsandbox.so
# One place for what is built, whatever the environment says.
IN := --locked --target-dir target

.PHONY: build deps run test check deny bench fuzz soak sanitize reproducible sbom man install install-files uninstall dist clean

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
	$(CARGO) clippy -p gatekeeper --lib --no-default-features $(IN) -- -D warnings
	@scripts/deny

deny: deps
	@scripts/deny

bench: deps
	$(CARGO) bench -p gatekeeper $(IN)

fuzz: deps
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

soak: deps
	@scripts/packages test
	SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test $(IN) -p gatekeeper --test blackbox -- --exact --nocapture soak::a_soak

sanitize: deps
	@scripts/sanitize

reproducible: deps
	@scripts/reproducible

sbom: deps
	@scripts/packages dist
	@scripts/sbom

man: build
	@mkdir -p target/man && cp $(PAGES) target/man/ && target/release/gatekeeper man target/man && ls target/man/*

install: build
	$(MAKE) install-files

# Without building anything, for packagers.
install-files:
	install -d $(BIN) $(LIB) $(INCLUDE) $(CONFIG)
	install -m 755 $(GATEKEEPER) $(BIN)/gatekeeper
	install -m 755 $(LIBSANDBOX) $(LIB)/libsandbox.so
	install -m 644 libsandbox/include/sandbox.h $(INCLUDE)/sandbox.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' libsandbox/libsandbox.pc.in > $(CONFIG)/libsandbox.pc
	chmod 644 $(CONFIG)/libsandbox.pc
	for page in $(PAGES); do install -D -m 644 $$page $(MAN)/man$${page##*.}/$${page##*/} || exit 1; done

uninstall:
	rm -f $(BIN)/gatekeeper $(LIB)/libsandbox.so $(INCLUDE)/sandbox.h $(CONFIG)/libsandbox.pc
	for page in $(PAGES); do rm -f $(MAN)/man$${page##*.}/$${page##*/}; done

dist: deps
	@scripts/packages dist
	rm -rf dist && mkdir -p dist
	git archive --prefix=libsandbox-$(VERSION)/ -o dist/libsandbox-$(VERSION).tar.gz HEAD
	$(MAKE) install DESTDIR=$(CURDIR)/dist/root PREFIX=/usr
	tar -C dist/root -czf dist/libsandbox-$(VERSION)-$(ARCH)-linux.tar.gz .
	scripts/sbom target/release/gatekeeper target/release/libsandbox.so > dist/libsandbox-$(VERSION).cdx.json
	rm -rf dist/root
	cd dist && sha256sum *.tar.gz *.json > SHA256SUMS && cat SHA256SUMS

clean:
	$(CARGO) clean --target-dir target
	rm -rf dist
