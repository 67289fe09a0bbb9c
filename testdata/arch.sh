#!/bin/sh
# Tests for arm64 and armv7 on another machine: make arch-test. qemu-user runs the programs, some ten times slower, so
# only those tests run that depend on the processor: unit tests of the store, the codec and the registry, and the scripts
# over the fake runtime, whose kubectl and other clients are this machine's. Left out are the race detector, which qemu
# cannot run, the scripts of kubectl's commands, containers (testdata/vm/run.sh has them for arm64), and three scripts
# that Debian 12's qemu cannot run: it has no openat2 for volumes with subPath, and /proc/self/exe is qemu. It needs root
# and apt.
#
#   arch.sh [GOARCH...]    arm64 arm, or one of them
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
[ $# != 0 ] || set -- arm64 arm
testdata/binfmt.sh "$@"
export GOARM=7
build='-trimpath -tags=grpcnotrace -ldflags=-s'
tests="$build -vet=off -timeout=60m"
# shellcheck disable=SC2086 # one word for each flag
for arch; do
	CGO_ENABLED=0 GOARCH=$arch "$go" build $build -o "bin/arch/$arch/monopod" .
	CGO_ENABLED=0 GOARCH=$arch "$go" test $tests ./store/... ./apiserver/codec ./apiserver/patch ./apiserver/registry/...
	BENCH_PROGRAM=$PWD/bin/arch/$arch/monopod IMAGE_ARCH=$arch "$go" test $tests -parallel 2 \
		-run TestScripts/fake -skip '/fake/^(volumes|charts|envtest)$' ./testdata/script
done
