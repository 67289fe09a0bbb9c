package cni

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// The committed programs contain the code that the compilers make of stub.c. Other
// versions of the compiler than Debian's 12.2 may make other code.
func TestStubIsBuiltFromItsSource(t *testing.T) {
	t.Parallel()
	for arch, compiler := range map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			gcc, err := exec.LookPath(compiler)
			if err != nil {
				t.Skipf("%s is not installed: the stub is not built from its source", compiler)
			}
			version, err := exec.CommandContext(t.Context(), gcc, "-dumpfullversion").Output()
			if err != nil {
				t.Fatal(err)
			}
			if v := strings.TrimSpace(string(version)); v != "12.2.0" {
				t.Skipf("the stub was built by gcc 12.2.0, this is %s", v)
			}
			out := filepath.Join(t.TempDir(), "stub")
			args := append(strings.Fields(stubFlags), "-o", out, "stub/stub.c")
			if msg, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
				t.Fatalf("gcc: %v\n%s", err, msg)
			}
			if built, err := os.ReadFile(out); err != nil || !bytes.Equal(built, stub(arch)) {
				t.Errorf("stub_%s is not what %s makes of stub.c (%d and %d bytes, %v)", arch, compiler, len(stub(arch)), len(built), err)
			}
		})
	}
}
