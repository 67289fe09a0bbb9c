package harness

import (
	"bytes"
	"debug/elf"
	"testing"
)

// Freestanding checks committed programs that use no library: for each architecture there is a static one of at most
// so many bytes, with the code that gcc makes of the source with these flags. amd64 and arm64 need one; the
// other architectures may have one.
func Freestanding(t *testing.T, flags, source string, most int, program func(arch string) []byte) {
	t.Helper()
	for arch, machine := range map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV,
	} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			committed := program(arch)
			if committed == nil && arch != "amd64" && arch != "arm64" {
				t.Skip("there is none for this architecture")
			}
			f, err := elf.NewFile(bytes.NewReader(committed))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != machine || len(committed) > most {
				t.Errorf("for machine %s, %d bytes; want %s, at most %d", f.Machine, len(committed), machine, most)
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
					t.Error("it needs a loader")
				}
			}
			if built := Compile(t, arch, flags, source); !bytes.Equal(built, committed) {
				t.Errorf("not what gcc makes of %s (%d and %d bytes)", source, len(committed), len(built))
			}
		})
	}
	if program("mips") != nil {
		t.Error("a program for mips, which is not included")
	}
}
