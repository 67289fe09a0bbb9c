package script_test

import (
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"monopod/agent/runtime/oci"
	"monopod/agent/runtime/runtimetest/registrytest"
)

type registryKey struct{}

// registryOf is the registry of a script; nil until the command registry starts it.
type registryOf struct{ *registrytest.Registry }

// askRegistry implements the command registry of the scripts.
func askRegistry(ts *testscript.TestScript, neg bool, args []string) {
	const usage = "usage: registry, registry push NAME [FILE...], registry require USER PASSWORD"
	r := ts.Value(registryKey{}).(*registryOf)
	switch {
	case neg || len(args) > 0 && r.Registry == nil:
		ts.Fatalf(usage)
	case len(args) == 0:
		r.Registry = registrytest.New()
		ts.Defer(r.Close)
		ts.Setenv("REGISTRY", r.Host)
	case len(args) == 2 && args[0] == "push":
		program, err := os.ReadFile(ts.Value(programsKey{}).(programs).Path("web"))
		ts.Check(err)
		_, _, err = r.Push(args[1], append(program, args[1]...)) // differs from the image of the node
		ts.Check(err)
	case len(args) > 2 && args[0] == "push":
		_, _, err := r.PushFiles(args[1], filesOf(ts, args[2:]))
		ts.Check(err)
	case len(args) == 3 && args[0] == "require":
		r.Require(args[1], args[2])
	default:
		ts.Fatalf(usage)
	}
}

// filesOf returns files of the script as files of an image.
func filesOf(ts *testscript.TestScript, names []string) (out []oci.File) {
	for _, name := range names {
		out = append(out, oci.File{Path: name, Mode: 0o755, Data: []byte(ts.ReadFile(name))})
	}
	return out
}
