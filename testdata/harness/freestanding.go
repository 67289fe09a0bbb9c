package harness

import (
	"bytes"
	"debug/elf"
	"testing"
)

// Freestanding checks committed programs without libraries: each is static, has at most most bytes, and is what gcc
// compiles from the source with these flags. amd64 and arm64 need a program; arm and riscv64 may have one.
func Freestanding(t *testing.T, flags, source string, most int, program func(arch string) []byte) {
	t.Helper()
	for arch, machine := range map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV,
	} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			committed := program(arch)
			if committed == nil && arch != "amd64" && arch != "arm64" {
				t.Skip("skipped: no program for this architecture")
			}
			f, err := elf.NewFile(bytes.NewReader(committed))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != machine || len(committed) > most {
				t.Errorf("machine %s, %d bytes; want machine %s, at most %d bytes", f.Machine, len(committed), machine, most)
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
					t.Error("the program needs a dynamic loader")
				}
			}
			if built := Compile(t, arch, flags, source); !bytes.Equal(built, committed) {
				t.Errorf("the committed program differs from the build of %s (%d and %d bytes)", source, len(committed), len(built))
			}
		})
	}
	if program("mips") != nil {
		t.Error("got a program for the unsupported architecture mips")
	}
}
