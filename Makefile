# make build, make run and make test install what is missing (as root, with apt)
# and need nothing else but Go.
GO ?= go
LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The race detector's pause at every exit would slow down each pod: the tests'
# programs are network plugins too.
export GORACE ?= atexit_sleep_ms=0

# ./... leaves out folders called testdata; what takes longest comes first.
PACKAGES = ./testdata/script ./testdata/machine ./testdata/abuse/... ./... ./testdata/harness ./testdata/load ./testdata/bench ./testdata/deviceplugin/... ./testdata/conformance/images ./testdata/web/...

# What vet, the tests and the tests' race build of monopod compile alike is compiled once, and again
# only if it changed: also in another clone, since no path is in it. Without gRPC's traces a test
# program is a quarter smaller (see build). A package's result is kept like that, too: -count=1 in
# GOFLAGS runs every test again.
COMPILE = -race -trimpath -tags grpcnotrace

# Linking two hundred test programs without symbols that nobody reads takes a third less
# time (traces keep their lines), and vet has run before.
TESTFLAGS = $(COMPILE) -parallel 4 -vet=off -ldflags='-s -w' -timeout 60m

.PHONY: build build-lean deb dist sbom run test arch-test vm-test arm64-test lint bench clean kubectl web openapi

# The version is the commit's tag, or what Go finds out; VERSION=v1.2.3 names another one.
VERSION ?= $(shell git describe --tags --exact-match --dirty 2>/dev/null)

# gRPC's traces use html/template, whose calls of methods by name would keep every exported
# method in the binary.
#
# TAGS=kubectl puts Kubernetes' kubectl, compressed, into the program.
BUILD = CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w -X $(LINKED).release=$(VERSION) -X $(LINKED).publicKey=$(PUBLIC_KEY) -X $(LINKED).parts=$(subst $(SPACE),$(COMMA),$(strip $(PARTS)))' -o $(PROGRAM)
LINKED = monopod/agent/cmd/commandline
COMMA = ,
SPACE = $(COMMA:,=) $(COMMA:,=)

# With MINISIGN_KEY, a secret key of `minisign -G`, dist signs SHA256SUMS. The public key, by default the file beside it,
# is in the programs: monopod upgrade accepts what it has signed.
MINISIGN_PUB ?= $(MINISIGN_KEY:.key=.pub)
PUBLIC_KEY = $(if $(MINISIGN_PUB),$(or $(shell sed -n 2p '$(MINISIGN_PUB)'),$(error MINISIGN_PUB: no public key in $(MINISIGN_PUB))))

# What monopod version says about the programs inside.
PARTS = $(if $(KUBECTL),kubectl=$(KUBECTL_VERSION))
build: PARTS += $(shell sed -nE 's|.*github.com/containerd/containerd/v2 (v[^ ]+).*|containerd=\1|p; s|.*github.com/opencontainers/runc (v[^ ]+).*|runc=\1|p' testdata/runtime/go.mod)
KUBECTL_VERSION = v1.37.2
PROGRAM = bin/monopod
KUBECTL = $(if $(filter kubectl,$(TAGS)),agent/cmd/kubectl.zst)

# containerd, its shim and runc, for the architecture of the build.
RUNTIME = bin/runtime-$(shell $(GO) env GOARCH)

build: $(RUNTIME).tar.zst $(KUBECTL) ## bin/monopod, static, with the runtime inside; GOARCH=arm64 for another machine
	cp $(RUNTIME).tar.zst agent/runtime/containerd/runtime.tar.zst
	$(BUILD) -tags 'grpcnotrace bundled $(TAGS)' .

build-lean: $(KUBECTL) ## bin/monopod without the runtime: needs Go alone, and containerd and runc where it runs
	$(BUILD) -tags 'grpcnotrace $(TAGS)' .

$(RUNTIME).tar.zst: testdata/runtime/go.mod testdata/runtime/build.sh testdata/runtime/containerd/main.go testdata/compress/main.go
	testdata/runtime/build.sh $(RUNTIME)

# Debian's version: VERSION without its v, with rc.1 before the release, or the commit's date and name.
DEBVERSION = $(if $(VERSION),$(subst -,~,$(VERSION:v%=%)),0~git$(shell TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M --format=%cd.%h))
DEBARCH = $(subst 386,i386,$(patsubst arm,armhf,$(shell $(GO) env GOARCH)))

# Files in packages are as old as the commit, so that two builds of it are the same.
deb sbom: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)

deb: build ## bin/monopod_VERSION_ARCHITECTURE.deb; GOARCH=arm64 makes it for another machine
	testdata/deb.sh $(PROGRAM) $(DEBVERSION) $(DEBARCH) $(dir $(PROGRAM))monopod_$(DEBVERSION)_$(DEBARCH).deb

sbom: build
	GOOS= GOARCH= $(GO) run -C testdata/sbom . '$(VERSION)' ../../$(RUNTIME) ../../$(PROGRAM) >$(PROGRAM).cdx.json

# The architectures of a release.
ARCHS = amd64 arm64 armv7 riscv64

# URL is the folder from which install.sh downloads unless MONOPOD_URL says otherwise.
dist: ## bin/dist: a release for four architectures, with packages, bills of materials, install.sh and checksums; MINISIGN_KEY=FILE signs it
	rm -rf bin/dist bin/runtime-*
	mkdir -p bin/dist
	set -e; for arch in $(ARCHS); do GOOS=linux GOARCH=$${arch%v7} GOARM=7 $(MAKE) deb sbom PROGRAM=bin/dist/monopod-linux-$$arch; done
	sed -e "s|^site=$$|site='$(URL)'|" -e "s|^key=$$|key='$(PUBLIC_KEY)'|" packaging/install.sh >bin/dist/install.sh
	cd bin/dist && sha256sum * >SHA256SUMS && ls -l
ifdef MINISIGN_KEY
	minisign -S -s '$(MINISIGN_KEY)' -m bin/dist/SHA256SUMS -t 'monopod $(DEBVERSION)'
	minisign -V -q -P '$(PUBLIC_KEY)' -m bin/dist/SHA256SUMS
else
	@echo "bin/dist is not signed: MINISIGN_KEY=FILE names no key" >&2
endif

web: ## bin/web.tar, the sample image
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/web ./testdata/web
	GOOS= GOARCH= IMAGE_ARCH=$(shell $(GO) env GOARCH) $(GO) run ./testdata/web/pack -program bin/web -o bin/web.tar

kubectl: ## bin/kubectl, Kubernetes' own
	CGO_ENABLED=0 $(GO) build -C testdata/kubectl -trimpath -ldflags='-s -w -X k8s.io/component-base/version.gitVersion=$(KUBECTL_VERSION)' -o ../../bin/kubectl .

agent/cmd/kubectl.zst: kubectl
	GOOS= GOARCH= $(GO) run ./testdata/compress <bin/kubectl >$@.tmp
	mv $@.tmp $@

openapi: ## the schemas of Kubernetes' types, after a new version of them
	$(GO) run -C testdata/openapi . -o ../../apiserver/registry/definitions/definitions.zst

run: build web ## start Monopod with a sample workload; Ctrl-C stops all of it
	@testdata/install.sh curl
	@testdata/run.sh

test: ## every test
	@testdata/install.sh containerd runc curl chromium gcc libc6-dev libseccomp-dev pkgconf etcd-server openssl nftables containernetworking-plugins musl-tools crun minisign shellcheck ansible-core
	$(GO) vet $(COMPILE) $(PACKAGES)
	$(GO) test $(TESTFLAGS) $(PACKAGES)

# BENCHTIME=1x takes one round instead of five; BASE=REV compares with another commit, ROWS=REGEXP measures only some figures.
bench: ## the figures of docs/benchmarks.md, with those of the last commit beside them
	@testdata/install.sh containerd runc
	@$(GO) run -tags grpcnotrace ./testdata/bench

arch-test: ## unit tests and scripts for arm64 and armv7, under qemu-user, in some 15 minutes
	@testdata/arch.sh

arm64-test: ## preloaded pods in a virtual machine with arm64, and the memory of all processes
	@VM_ARCH=arm64 testdata/vm/run.sh

vm-test: ## a box's whole life in virtual machines: install, limits, eviction, reboot, upgrade, power cuts, releases; three of them
	@testdata/vm/run.sh
	@testdata/vm/release.sh
	@testdata/vm/nodes.sh
	@testdata/vm/machines.sh

lint:
	$(GO) run $(LINT) run $(PACKAGES)

clean:
	rm -rf bin .run
