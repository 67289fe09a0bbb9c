package machine

import (
	"debug/elf"
	"debug/gosym"
	"testing"

	"monopod/testdata/harness"
)

// The linker keeps every exported method of every type as soon as one reachable function calls methods by a name that is
// only known at run time. text/template does, which makes the binary 9 MB larger.
func TestUnusedMethodsAreNotLinked(t *testing.T) {
	t.Parallel()
	functions := linked(t, harness.Build(t).Monopod(harness.Plain))
	for name, want := range map[string]bool{
		"main.main":                                            true,
		"text/template.(*Template).Execute":                    false,
		"html/template.(*Template).Execute":                    false,
		"net/http.(*Client).PostForm":                          false, // exported methods that nothing calls, of types that are used
		"bufio.(*Reader).WriteTo":                              true,  // called through an interface
		"k8s.io/api/core/v1.(*Pod).SwaggerDoc":                 false,
		"github.com/spf13/cobra.(*Command).SetVersionTemplate": false,
	} {
		if functions[name] != want {
			t.Errorf("%s is linked: %t, want %t; `go build -ldflags=-dumpdep` prints why the linker keeps a function, and the word <ReflectMethod> where it keeps all methods",
				name, functions[name], want)
		}
	}
}

// linked returns the names of the functions in a program.
func linked(t *testing.T, program string) map[string]bool {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(lines, f.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, fn := range table.Funcs {
		names[fn.Name] = true
	}
	return names
}
