package cni

import (
	"testing"

	"monopod/testdata/harness"
)

// stubFlags are the compiler flags in the header of stub.c.
const stubFlags = "-Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables " +
	"-fno-pie -no-pie -fno-tree-loop-distribute-patterns -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s"

func TestStubIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	harness.Freestanding(t, stubFlags, "stub/stub.c", 4096, stub)
}
