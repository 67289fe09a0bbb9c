#!/bin/sh
# Runs tests for arm64 and armv7 on another machine: make arch-test. qemu-user runs the programs, about ten times
# slower. So the script runs only the tests that depend on the processor: unit tests of the store, the codec and the
# registry, and the scripts over the fake runtime, with kubectl and other clients for this machine's processor. It does
# not run the race detector, which qemu does not support, the scripts of kubectl's commands, containers
# (testdata/vm/run.sh tests them on arm64), and three scripts that Debian 12's qemu cannot run: it has no openat2 for
# volumes with subPath, and /proc/self/exe is qemu. The script needs root and apt.
#
#   arch.sh [GOARCH...]    by default arm64 and arm
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
[ $# != 0 ] || set -- arm64 arm
testdata/binfmt.sh "$@"
export GOARM=7
build='-trimpath -tags=grpcnotrace -ldflags=-s'
tests="$build -vet=off -timeout=60m"
# shellcheck disable=SC2086 # each flag is a separate word
for arch; do
	CGO_ENABLED=0 GOARCH=$arch "$go" build $build -o "bin/arch/$arch/monopod" .
	CGO_ENABLED=0 GOARCH=$arch "$go" test $tests ./store/... ./apiserver/codec ./apiserver/patch ./apiserver/registry/...
	BENCH_PROGRAM=$PWD/bin/arch/$arch/monopod IMAGE_ARCH=$arch "$go" test $tests -parallel 2 \
		-run TestScripts/fake -skip '/fake/^(volumes|charts|envtest)$' ./testdata/script
done
