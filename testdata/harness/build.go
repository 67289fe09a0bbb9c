// Package harness builds and runs the real programs for tests: the scripts of testdata/script, and the crash
// tests and benchmarks of testdata/machine.
package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The two builds of monopod: Plain is the release build, Race has the race detector. monopod is also the network
// plugin, so the race detector costs seconds of CPU for each pod on containerd.
const (
	Plain = "plain"
	Race  = "race"
)

// Program is the name of an environment variable with the path of a monopod that replaces both builds. testdata/bench
// measures two programs with the same benchmarks, testdata/arch.sh runs the scripts with programs for other processors.
const Program = "BENCH_PROGRAM"

// Programs are the built programs. They remain in bin/test, so that go build links only programs that have changed.
type Programs struct{ root string }

var (
	plain   sync.Once
	race    sync.Once
	clients sync.Once
	mixin   sync.Once
	tagged  sync.Once
	helm    sync.Once
)

// Build builds the release build of monopod, and the sample image. If the machine cannot build runc, monopod contains
// no runtime and uses the machine's.
func Build(t testing.TB) Programs {
	t.Helper()
	p := Programs{root: root(t)}
	plain.Do(func() {
		defer p.lock(t)()
		if os.Getenv(Program) == "" {
			tags := "-tags=grpcnotrace"
			if lacks := lacksForRuntime(); lacks == nil {
				p.run(t, ".", nil, "testdata/runtime/build.sh", p.Path("runtime"))
				if err := CopyFile(p.Source("agent/runtime/containerd/runtime.tar.zst"), p.Path("runtime.tar.zst")); err != nil {
					t.Fatal(err)
				}
				tags += ",bundled"
			}
			p.build(t, ".", tags, "-o", p.Monopod(Plain), ".")
		}
		p.build(t, ".", "-o", p.Path("web"), "./testdata/web")
		p.build(t, ".", "-o", p.Path("pack"), "./testdata/web/pack")
		p.run(t, ".", nil, p.Path("pack"), "-program", p.Path("web"), "-o", p.Image())
	})
	return p
}

// lacksForRuntime returns an error if the machine lacks a program or header to build the runtime.
func lacksForRuntime() error {
	for _, program := range []string{"gcc", "pkg-config"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	_, err := os.Stat("/usr/include/seccomp.h")
	return err
}

// BuildRace builds monopod with the race detector and the Makefile's flags for tests, which share the build cache.
func (p Programs) BuildRace(t testing.TB) {
	t.Helper()
	race.Do(func() {
		if os.Getenv(Program) != "" {
			return
		}
		defer p.lock(t)()
		p.run(t, ".", nil, "go", "build", "-race", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", p.Monopod(Race),
			".")
	})
}

// BuildClients builds kubectl, the clients of testdata/clients, the sample device plugin, and the sample
// DRA and CSI drivers.
func (p Programs) BuildClients(t testing.TB) {
	t.Helper()
	clients.Do(func() {
		defer p.lock(t)()
		p.build(t, ".", "-o", p.Path("deviceplugin"), "./testdata/deviceplugin")
		p.build(t, ".", "-o", p.Path("dradriver"), "./testdata/dradriver")
		p.build(t, ".", "-o", p.Path("csidriver"), "./testdata/csidriver")
		p.build(t, "testdata/kubectl", "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2", "-o",
			p.Path("kubectl"), ".")
		p.build(t, "testdata/clients", "-o", p.Dir()+"/", "./informers", "./cache", "./helm", "./signer", "./cbor")
		p.run(t, "testdata/clients", []string{"CGO_ENABLED=0"}, "go", "test", "-c", "-trimpath", "-ldflags=-s -w", "-o",
			p.Path("operator.test"), "./operator")
	})
}

// BuildHelm builds the client of Helm.
func (p Programs) BuildHelm(t testing.TB) {
	t.Helper()
	helm.Do(func() {
		defer p.lock(t)()
		p.build(t, "testdata/clients", "-o", p.Path("helm"), "./helm")
	})
}

// BuildWithKubectl builds monopod with kubectl inside, as `make build TAGS=kubectl` does, and returns its path.
func (p Programs) BuildWithKubectl(t testing.TB) string {
	t.Helper()
	p.BuildClients(t)
	tagged.Do(func() {
		defer p.lock(t)()
		packed, err := os.Create(p.Source("agent/cmd/kubectl.zst"))
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Close()
		kubectl, err := os.Open(p.Path("kubectl"))
		if err != nil {
			t.Fatal(err)
		}
		defer kubectl.Close()
		p.build(t, ".", "-o", p.Path("compress"), "./testdata/compress")
		cmd := exec.Command(p.Path("compress"))
		cmd.Stdin, cmd.Stdout = kubectl, packed
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		p.build(t, ".", "-tags=grpcnotrace,kubectl", "-o", p.Monopod(tag), ".")
	})
	return p.Monopod(tag)
}

// tag is the variant of monopod that contains kubectl.
const tag = "tagged"

// BuildMixin builds testdata/mixin, which evaluates dashboards with Prometheus' engine.
func (p Programs) BuildMixin(t testing.TB) {
	t.Helper()
	mixin.Do(func() {
		defer p.lock(t)()
		p.build(t, "testdata/mixin", "-o", p.Path("mixin"), ".")
	})
}

// Dir returns the folder of all programs except monopod.
func (p Programs) Dir() string { return filepath.Join(p.root, "bin", "test") }

// Path returns the path of a program.
func (p Programs) Path(name string) string { return filepath.Join(p.Dir(), name) }

// Monopod returns the path of a build of monopod.
func (p Programs) Monopod(variant string) string {
	if given := os.Getenv(Program); given != "" && variant != tag {
		return given
	}
	return p.Path(filepath.Join(variant, "monopod"))
}

// Image returns the path of the sample image.
func (p Programs) Image() string { return p.Path("web.tar") }

// Source returns the path of a source file, from its path in the repository.
func (p Programs) Source(path string) string { return filepath.Join(p.root, path) }

// build runs go build with the flags of `make build`.
func (p Programs) build(t testing.TB, dir string, args ...string) {
	t.Helper()
	p.run(t, dir, []string{"CGO_ENABLED=0"}, "go",
		append([]string{"build", "-tags=grpcnotrace", "-trimpath", "-ldflags=-s -w"}, args...)...)
}

func (p Programs) run(t testing.TB, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = p.Source(dir), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// lock prevents tests of other packages from building at the same time.
func (p Programs) lock(t testing.TB) (unlock func()) {
	t.Helper()
	if err := os.MkdirAll(p.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(p.Path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { f.Close() }
}

// root returns the top folder of the repository: the nearest parent folder with a go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no parent folder contains go.mod")
		}
	}
}

// Compile returns the program that gcc compiles from a C source with these flags. It skips the test if the cross
// compiler is missing, or if another version built the committed programs: it may generate other code.
func Compile(t testing.TB, arch, flags, source string) []byte {
	t.Helper()
	const version = "12.2.0"
	compiler := map[string]string{
		"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc", "arm": "arm-linux-gnueabihf-gcc",
		"riscv64": "riscv64-linux-gnu-gcc",
	}[arch]
	gcc, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("skipped: %s is not installed, so %s cannot be compiled", compiler, source)
	}
	is, err := exec.CommandContext(t.Context(), gcc, "-dumpfullversion").Output()
	if err != nil {
		t.Fatal(err)
	}
	if v := strings.TrimSpace(string(is)); v != version {
		t.Skipf("skipped: gcc %s built the committed program, this is gcc %s", version, v)
	}
	out := filepath.Join(t.TempDir(), "program")
	args := append(strings.Fields(flags), "-o", out, source)
	if msg, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, msg)
	}
	program, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return program
}
