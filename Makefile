# make            build target/release/gatekeeper, target/release/libsandbox.so and target/release/gatekeeperd
#                 gatekeeper for musl where that is possible (scripts/musl); MUSL=no: with glibc
# make run        build, then show a short demonstration
# make test       install what the tests need, then run all of them
# make install    install below DESTDIR and PREFIX (default /usr/local; without root use PREFIX=~/.local)
# make uninstall  remove what make install installed
# make deb, rpm, wheel, npm   build a package in dist/; make dist builds all, and tarballs, an SBOM and checksums.
#                 With AARCH64=1 there is a wheel for aarch64 too, and the npm package carries both programs; cross built
# make crates     package every crate for Rust's registry, and build each from the packaged files alone
# make kernels    boot other kernels under qemu and attack from inside; make aarch64: the same for aarch64, cross built
# Others: deps check deny bench peers images fuzz soak sanitize reproducible sbom man install-files package-deb|rpm|wheel|npm clean.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# Only bash expands the ~ in an argument such as PREFIX=~/.local.
override PREFIX := $(patsubst ~/%,$(HOME)/%,$(PREFIX))
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ARCH    := $(shell uname -m)
PAGES   := $(wildcard docs/man/*.[1-9])
DIST    ?= dist

# rustup installs cargo here; a shell that was opened before does not have it on PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin
# The files that install-files installs.
GATEKEEPER ?= target/release/gatekeeper
LIBSANDBOX ?= target/release/libsandbox.so
GATEKEEPERD ?= target/release/gatekeeperd
INSTALL = PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' VERSION='$(VERSION)' GATEKEEPER='$(GATEKEEPER)' LIBSANDBOX='$(LIBSANDBOX)' GATEKEEPERD='$(GATEKEEPERD)'
# Always build in target/, even if CARGO_TARGET_DIR is set.
IN := --locked --target-dir target
# Link gatekeeper statically: it starts a quarter faster, and the caller's LD_PRELOAD does not load into it.
# Naming the target keeps these flags away from build scripts and macros.
HOST    = $(shell rustc -vV | sed -n 's/^host: //p')
# The tests compare filters with libseccomp's, and link it statically too.
export LIBSECCOMP_LINK_TYPE = static
export LIBSECCOMP_LIB_PATH = $(shell pkg-config --variable=libdir libseccomp 2>/dev/null)
SHIPPED = $(IN) --target $(HOST) --config "target.$(HOST).rustflags=['-Ctarget-feature=+crt-static']"
# gatekeeper is built for musl where scripts/musl can; MUSL=no builds it with glibc. gatekeeperd is always built with glibc.
MUSL    ?= yes

.PHONY: build deps run test check deny bench peers realworld images kernels aarch64 fuzz soak sanitize reproducible sbom man install install-files \
	uninstall deb rpm wheel npm crates package-deb package-rpm package-wheel package-npm dist clean

build: deps
	@if [ "$(MUSL)" != no ] && program="$$(CARGO='$(CARGO)' scripts/musl build)"; then :; else \
		echo '$(CARGO) build --release -p gatekeeper-sandbox'; \
		$(CARGO) build --release $(SHIPPED) -p gatekeeper-sandbox || exit; program=target/$(HOST)/release/gatekeeper; fi; \
	install -D -m 755 "$$program" target/release/gatekeeper
	@target/release/gatekeeper extract target/release/libsandbox.so >/dev/null
# A build of its own: in one build, cargo would give gatekeeper the features of crates that only gatekeeperd needs.
	$(CARGO) build --release $(SHIPPED) -p gatekeeperd
	@install -D -m 755 target/$(HOST)/release/gatekeeperd target/release/gatekeeperd
	@ls -l target/release/gatekeeper target/release/libsandbox.so target/release/gatekeeperd

deps:
	@scripts/packages build

run: build
	@scripts/demo

test: deps
	@scripts/packages test
	@scripts/node-packages playwright-core @modelcontextprotocol/sdk
	@if [ "$(MUSL)" != no ] && [ -z "$$TESTED_GATEKEEPER" ] && program="$$(CARGO='$(CARGO)' scripts/musl test)"; then export TESTED_GATEKEEPER="$$program"; fi; \
	echo '$(CARGO) test --workspace' $${TESTED_GATEKEEPER:+"with $$TESTED_GATEKEEPER"}; $(CARGO) test --workspace $(SHIPPED)

check: deps
	@scripts/module-order
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets $(IN) -- -D warnings
	$(CARGO) clippy -p gatekeeper-sandbox --lib --no-default-features $(IN) -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -q --workspace --no-deps $(IN)
	@musl="$(ARCH)-unknown-linux-musl"; [ ! -d "$$(rustc --print target-libdir --target $$musl 2>/dev/null)" ] || \
		$(CARGO) check -q -p gatekeeper-sandbox --target $$musl $(IN)
	@scripts/deny

deny: deps
	@scripts/deny

bench: build
	@scripts/bench

# Installs other sandboxes for the comparison in make bench.
peers: deps
	@scripts/peers

# Runs the tests and builds of real projects unconfined and confined, and writes the comparison.
realworld: build
	@scripts/packages test
	@scripts/packages realworld
	@scripts/realworld --write docs/compatibility.md

# Builds the images of `gatekeeper box` from Debian's packages (or from a registry, with BASE=debian:bookworm-slim).
images:
	@containers/build base common browser

# Boots Debian's kernels in several variants and rewrites the table in docs/threat-model.md.
kernels: deps
	@scripts/packages test
	@scripts/packages kernels
	$(CARGO) test $(SHIPPED) -p gatekeeper-sandbox --test blackbox -- --ignored --exact --nocapture kernels::every_variant

aarch64: deps
	@scripts/packages test
	@scripts/packages kernels
	@scripts/aarch64

fuzz: deps
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

soak: deps
	@scripts/packages test
	SOAK_SECONDS=$(SOAK_SECONDS) $(CARGO) test $(SHIPPED) -p gatekeeper-sandbox --test blackbox -- --exact --nocapture soak::a_soak
	SESSIONS_IN_A_ROW=50 $(CARGO) test $(SHIPPED) -p gatekeeperd --test daemon -- --exact --nocapture leftovers::sessions_in_a_row_leave_nothing

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

# For packagers: installs without building.
install-files:
	@$(INSTALL) scripts/install-files install

uninstall:
	@$(INSTALL) scripts/install-files uninstall

deb: build
	@$(MAKE) package-deb

rpm: build
	@$(MAKE) package-rpm

wheel npm: build
	@$(MAKE) package-$@

# cargo builds each package from the packaged files, against the packages before it.
crates: deps
	$(CARGO) package $(IN) -p sandbox-contract -p libsandbox-embed -p gatekeeper-sandbox -p gatekeeperd
	@ls -l target/package/*.crate

# These do not build anything either.
package-wheel package-npm: package-%:
	@scripts/packages bindings
	@$(if $(AARCH64),scripts/packages aarch64)
	@GATEKEEPER='$(GATEKEEPER)' GATEKEEPER_AARCH64="$(if $(AARCH64),$$(scripts/aarch64 program))" scripts/bindings $* $(DIST)

package-deb package-rpm: package-%:
	@scripts/packages dist
	@$(INSTALL) scripts/package $* $(DIST)

# The times in the tarballs are those of the commit, so that two builds of it give the same files.
dist: build
	@scripts/packages dist
	rm -rf $(DIST) && mkdir -p $(DIST)
	git archive --prefix=libsandbox-$(VERSION)/ HEAD | gzip -9n > $(DIST)/libsandbox-$(VERSION).tar.gz
	$(MAKE) install-files DESTDIR=$(abspath $(DIST))/root PREFIX=/usr
	rm $(DIST)/root/usr/share/gatekeeper/installed
	tar -C $(DIST)/root --owner=0 --group=0 --numeric-owner --sort=name --mtime=@$(shell git log -1 --format=%ct 2>/dev/null || echo 0) -cf - . | \
		gzip -9n > $(DIST)/libsandbox-$(VERSION)-$(ARCH)-linux.tar.gz
	scripts/sbom $(GATEKEEPER) $(LIBSANDBOX) $(GATEKEEPERD) $(if $(AARCH64),"gatekeeper-aarch64=$$(scripts/aarch64 program)") > $(DIST)/libsandbox-$(VERSION).cdx.json
	rm -rf $(DIST)/root
	$(MAKE) package-deb package-rpm package-wheel package-npm
	cd $(DIST) && sha256sum *.tar.gz *.tgz *.whl *.deb *.rpm *.json > SHA256SUMS && cat SHA256SUMS

clean:
	$(CARGO) clean --target-dir target
	rm -rf dist
