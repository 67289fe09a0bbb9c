package cni

import (
	"bytes"
	"debug/elf"
	"testing"

	"monopod/testdata/harness"
)

// stubFlags are those in the head of stub.c.
const stubFlags = "-Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables " +
	"-fno-pie -no-pie -fno-tree-loop-distribute-patterns -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s"

func TestStubIsSmallAndStatic(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		if size := len(stub(arch)); size > 4096 {
			t.Errorf("%s: %d bytes, want at most 4096", arch, size)
		}
		f, err := elf.NewFile(bytes.NewReader(stub(arch)))
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != machine {
			t.Errorf("%s: machine %s", arch, f.Machine)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s: needs a loader", arch)
			}
		}
	}
	if stub("mips") != nil {
		t.Error("a program for mips, which is not included")
	}
}

// The committed programs contain the code that the compilers make of stub.c.
func TestStubIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			if built := harness.Compile(t, arch, stubFlags, "stub/stub.c"); !bytes.Equal(built, stub(arch)) {
				t.Errorf("stub_%s is not what gcc makes of stub.c (%d and %d bytes)", arch, len(stub(arch)), len(built))
			}
		})
	}
}
