# make            target/release/gatekeeper and target/release/libsandbox.so
# make run        the same, and a short demonstration
# make test       everything that can be tested here
# make install    below PREFIX (/usr/local; without root PREFIX=~/.local) and DESTDIR; make uninstall takes it away; make deb, rpm, dist: packages in dist/
# Others: deps check deny bench fuzz soak sanitize reproducible sbom man install-files package-deb package-rpm clean.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# Shells other than bash hand a leading ~ over as it stands.
override PREFIX := $(patsubst ~/%,$(HOME)/%,$(PREFIX))
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600

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
# gatekeeper is linked statically: a quarter less to wait for at each start, and no LD_PRELOAD of the caller's inside it.
# For a target that is named, so that what the build itself runs stays as it is.
HOST    = $(shell rustc -vV | sed -n 's/^host: //p')
# The tests use libseccomp as their oracle, and are linked in the same way.
export LIBSECCOMP_LINK_TYPE = static
export LIBSECCOMP_LIB_PATH = $(shell pkg-config --variable=libdir libseccomp 2>/dev/null)
SHIPPED = $(IN) --target $(HOST) --config "target.$(HOST).rustflags=['-Ctarget-feature=+crt-static']"

.PHONY: build deps run test check deny bench fuzz soak sanitize reproducible sbom man install install-files uninstall deb rpm package-deb package-rpm dist clean

build: deps
	$(CARGO) build --release $(SHIPPED) -p gatekeeper
	@install -D -m 755 target/$(HOST)/release/gatekeeper target/release/gatekeeper
	@target/release/gatekeeper extract target/release/libsandbox.so >/dev/null
	@ls -l target/release/gatekeeper target/release/libsandbox.so

deps:
	@scripts/packages build

run: build
	@scripts/demo

test: deps
	@scripts/packages test
	@scripts/node-packages playwright-core
	$(CARGO) test --workspace $(SHIPPED)

check: deps
	@scripts/module-order
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(IN) -- -D warnings
	$(CARGO) clippy -p gatekeeper --lib --no-default-features $(IN) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -q --workspace --no-deps $(IN)
	@musl="$(ARCH)-unknown-linux-musl"; [ ! -d "$$(rustc --print target-libdir --target $$musl 2>/dev/null)" ] || \
		$(CARGO) check -q -p gatekeeper --target $$musl $(IN)
	@scripts/deny

deny: deps
	@scripts/deny

bench: build
	@scripts/bench

fuzz: deps
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

soak: deps
	@scripts/packages test
	SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test $(SHIPPED) -p gatekeeper --test blackbox -- --exact --nocapture soak::a_soak

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
	@$(INSTALL) scripts/install-files install

uninstall:
	@$(INSTALL) scripts/install-files uninstall

deb: build
	@$(MAKE) package-deb

rpm: build
	@$(MAKE) package-rpm

# Without building anything either.
package-deb package-rpm: package-%:
	@scripts/packages dist
	@$(INSTALL) scripts/package $* $(DIST)

dist: build
	@scripts/packages dist
	rm -rf $(DIST) && mkdir -p $(DIST)
	git archive --prefix=libsandbox-$(VERSION)/ -o $(DIST)/libsandbox-$(VERSION).tar.gz HEAD
	$(MAKE) install-files DESTDIR=$(CURDIR)/$(DIST)/root PREFIX=/usr
	rm $(DIST)/root/usr/share/gatekeeper/installed
	tar -C $(DIST)/root --owner=0 --group=0 -czf $(DIST)/libsandbox-$(VERSION)-$(ARCH)-linux.tar.gz .
	scripts/sbom $(GATEKEEPER) $(LIBSANDBOX) > $(DIST)/libsandbox-$(VERSION).cdx.json
	rm -rf $(DIST)/root
	$(MAKE) package-deb package-rpm
	cd $(DIST) && sha256sum *.tar.gz *.deb *.rpm *.json > SHA256SUMS && cat SHA256SUMS

clean:
	$(CARGO) clean --target-dir target
	rm -rf dist
