package script_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/store/etcd/etcdtest"
	"monopod/testdata/harness"
)

// The scripts test the built program with the real kubectl and with curl. Those in this folder and in agent/ (the node
// and its pods) run over both runtimes, those in fake/ and containerd/ over one runtime, and those in kubectl/, one for
// each command of kubectl, over the fake runtime with two minor versions of kubectl.
//
// A line that begins with [fake] or [containerd] runs only with that runtime. A line that begins with an ability runs
// only if the runtime has it: [cdi], [images] (image volumes), [imagefolders] (image volumes with subPath), [userns]
// (user namespaces and strict supplemental groups); [!cdi] and so on: only if the runtime lacks it.
// A monopod that runs at the end of its script must be at rest: nothing is left to reconcile.
//
// Commands in addition to testscript's:
//
//	serve [flags]          start monopod with the data folder $DATA, and wait for /readyz
//	end [-kill]            stop monopod with SIGTERM, or SIGKILL (testscript's stop ends the script)
//	serve, end -as NAME    the same with another monopod, whose node is NAME and whose data folder is $DATA-NAME
//	etcd                   start an etcd and set ETCD to its URL
//	registry               start a registry on loopback and set REGISTRY to its host and port
//	registry push NAME     push the sample image to the registry, for example app:1
//	registry push NAME F…  push an image of these files
//	registry require U P   require a user and password from now on
//	until REGEXP CMD...    run CMD until its output matches, up to a minute
//	never REGEXP CMD...    run CMD once; its output must not match
//	why REGEXP OBJECT [NS] wait until the sentence of monopod why matches, up to a minute
//	background NAME CMD... start CMD with its output in the file NAME
//	kubectl ARGS...        run kubectl; stdout and stderr check its output

// programs are the programs that the scripts run.
type programs struct{ harness.Programs }

func buildAll(t testing.TB) programs {
	t.Helper()
	b := programs{harness.Build(t)}
	b.BuildRace(t)
	b.BuildClients(t)
	return b
}

// world selects the programs of a set of scripts.
type world struct {
	runtime string // --runtime
	monopod string // build: harness.Race or harness.Plain
	kubectl string // path of kubectl
}

func TestScripts(t *testing.T) {
	b := buildAll(t)
	// On containerd monopod is also the network plugin, and the race detector would cost seconds of CPU for each pod.
	// The scripts use the release build there.
	for runtime, build := range map[string]string{"fake": harness.Race, "containerd": harness.Plain} {
		t.Run(runtime, func(t *testing.T) {
			if runtime == "containerd" {
				harness.NeedsContainerd(t)
				b.BuildMixin(t)
			}
			t.Parallel()
			for _, dir := range []string{".", runtime, "agent"} {
				b.runScripts(t, dir, world{runtime, build, b.Path("kubectl")})
			}
		})
	}
}

// TestKubectl runs the scripts of kubectl's commands with the newest kubectl, which the test builds, and with the
// installed one. It uses the release build, because the race detector is most of a script's cost.
func TestKubectl(t *testing.T) {
	b := buildAll(t)
	t.Run("newest", func(t *testing.T) {
		t.Parallel()
		b.runScripts(t, "kubectl", world{"fake", harness.Plain, b.Path("kubectl")})
	})
	t.Run("installed", func(t *testing.T) {
		t.Parallel()
		path, err := exec.LookPath("kubectl")
		if err != nil {
			t.Skip("skipped: kubectl is not installed")
		}
		b.runScripts(t, "kubectl", world{"fake", harness.Plain, path})
	})
}

// runScripts runs the scripts in dir.
func (b programs) runScripts(t *testing.T, dir string, over world) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no scripts", dir)
	}
	testscript.Run(t, testscript.Params{
		Files: files, RequireExplicitExec: true,
		Setup:     func(env *testscript.Env) error { return b.setup(env, over) },
		Condition: func(name string) (bool, error) { return condition(name, over.runtime) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serve, "end": end, "until": until, "never": never, "background": background, "kubectl": runKubectl,
			"etcd": startEtcd, "join": join,
			"registry": askRegistry, "why": explained,
		},
	})
}

// condition evaluates the condition of a line: the runtime, an ability of the runtime, loop devices, or Debian's
// containernetworking-plugins.
func condition(name, runtime string) (bool, error) {
	if name == "loop" {
		_, loop := os.Stat("/dev/loop-control")
		_, mkfs := exec.LookPath("mkfs.ext4")
		return loop == nil && mkfs == nil, nil
	}
	if name == "cniplugins" {
		_, err := os.Stat("/usr/lib/cni/bridge")
		return err == nil, nil
	}
	if name == "fake" || name == "containerd" {
		return name == runtime, nil
	}
	v, err := versionOf(runtime)
	if err != nil {
		return false, err
	}
	return can(name, v)
}

// can reports whether a runtime has an ability.
func can(name string, v *cri.VersionResponse) (bool, error) {
	is := runtime.AbilitiesOf(v)
	switch name {
	case "cdi":
		return is.CDI, nil
	case "images":
		return is.Images, nil
	case "imagefolders":
		return is.ImageSubPaths, nil
	case "userns": // containerd has both since 2.0, like CDI; the fake runtime has neither
		return is.CDI && v.RuntimeName == "containerd", nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// versionOf returns the version of the fake runtime, or of the containerd that the scripts run.
func versionOf(runtime string) (*cri.VersionResponse, error) {
	if runtime == "fake" {
		return &cri.VersionResponse{RuntimeName: runtime}, nil
	}
	version, err := containerdVersion()
	return &cri.VersionResponse{RuntimeName: runtime, RuntimeVersion: version}, err
}

// containerdVersion runs containerd once, because scripts have hundreds of conditions. It runs the one in PATH if
// monopod contains none.
var containerdVersion = sync.OnceValues(func() (string, error) {
	program, err := filepath.Abs("../../bin/test/runtime/containerd")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err != nil {
		program = "containerd"
	}
	out, err := exec.Command(program, "--version").Output()
	fields := append(strings.Fields(string(out)), "", "", "") // the third field is the version
	return fields[2], err
})

func TestCan(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"1.6.20": "", "v2.0.5": "cdi userns", "v2.1.4": "cdi images userns",
		"v2.2.0": "cdi images imagefolders userns"} {
		var got []string
		for _, name := range []string{"cdi", "images", "imagefolders", "userns"} {
			if ok, err := can(name, &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: version}); ok {
				got = append(got, name)
			} else if err != nil {
				t.Error(err)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("containerd %s has the abilities %v, want %s", version, got, want)
		}
	}
}

type (
	programsKey struct{}
	serverKey   struct{}
	othersKey   struct{}
	testKey     struct{}
)

func (b programs) setup(env *testscript.Env, over world) error {
	dir, err := b.NewFolder()
	if err != nil {
		return err
	}
	monopod := b.Monopod(over.monopod)
	s := &harness.Server{Dir: dir}
	env.Values[programsKey{}] = b
	env.Values[serverKey{}] = s
	env.Values[othersKey{}] = map[string]*harness.Server{}
	env.Values[registryKey{}] = &registryOf{}
	env.Values[testKey{}] = env.T()
	env.Setenv("RUNTIME", over.runtime)
	env.Setenv("DATA", dir)
	env.Setenv("SOCKET", filepath.Join(dir, "monopod.sock"))
	env.Setenv("KUBECONFIG", filepath.Join(dir, "admin.kubeconfig"))
	env.Setenv("KUBECTL", over.kubectl)
	env.Setenv("MONOPOD", monopod)
	sample, err := filepath.Abs("../web.yaml")
	if err != nil {
		return err
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		return err
	}
	env.Setenv("SAMPLE", sample)
	env.Setenv("DOCS", docs)
	env.Setenv("PATH", strings.Join([]string{filepath.Dir(monopod), filepath.Dir(over.kubectl), b.Dir(),
		os.Getenv("PATH")}, string(os.PathListSeparator)))
	env.Setenv("HOME", env.WorkDir)
	env.Defer(func() { // runs after the cleanups of the script's commands
		atRest := atRest(env.T(), s)
		s.CleanUp(over.runtime == "containerd")
		unix.Unmount(dir, unix.MNT_DETACH) // a script may have mounted a small file system there
		os.RemoveAll(dir)
		sound(env.T(), s, atRest)
	})
	return nil
}

// atRest returns an error if the server runs at the end of the script and is not at rest.
func atRest(t testscript.T, s *harness.Server) error {
	if failed, ok := t.(interface{ Failed() bool }); ok && failed.Failed() {
		return nil // the test has already failed
	}
	if !s.Running() {
		t.Log("did not check for rest: no monopod runs at the end")
		return nil
	}
	return s.Settled()
}

// shownLog is the size of the end of a server's log that a failed test shows, in bytes.
const shownLog = 8 << 10

// sound fails the test if the server had a data race or is not at rest. It shows the log of a failed test.
func sound(t testscript.T, s *harness.Server, atRest error) {
	if failed, ok := t.(interface{ Failed() bool }); ok && failed.Failed() && s.Log != nil {
		log := s.Log.String()
		t.Log(log[max(0, len(log)-shownLog):])
	}
	switch {
	case s.Log != nil && s.Raced():
		t.Fatal("monopod has a data race\n" + s.Log.String())
	case atRest != nil:
		t.Fatal(atRest.Error() + "\n" + s.Log.String())
	}
}

func of(ts *testscript.TestScript) *harness.Server { return ts.Value(serverKey{}).(*harness.Server) }

// named returns the server of a command, the name of its node, and the arguments without -as NAME.
func named(ts *testscript.TestScript, args []string) (s *harness.Server, node string, rest []string) {
	if len(args) < 2 || args[0] != "-as" {
		return of(ts), "node1", args
	}
	others := ts.Value(othersKey{}).(map[string]*harness.Server)
	node = args[1]
	if others[node] == nil {
		s := &harness.Server{Dir: of(ts).Dir + "-" + node}
		others[node] = s
		ts.Defer(func() {
			s.CleanUp(false)
			os.RemoveAll(s.Dir)
			sound(ts.Value(testKey{}).(testscript.T), s, nil)
		})
	}
	return others[node], node, args[2:]
}

func serve(ts *testscript.TestScript, _ bool, args []string) {
	s, node, args := named(ts, args)
	// These flags make the scripts independent of the free disk space of the machine.
	own := []string{"--node-name", node, "--runtime", ts.Getenv("RUNTIME"), "--eviction-hard=memory.available<100Mi",
		"--image-gc-high-threshold=100"}
	if len(args) > 0 && args[0] == "-again" { // at the address of the last start
		config, err := os.ReadFile(filepath.Join(s.Dir, "admin.kubeconfig"))
		ts.Check(err)
		args = append([]string{"--listen", regexp.MustCompile(`127[.0-9]*:\d+`).FindString(string(config))}, args[1:]...)
	}
	*s = *harness.NewServer(ts.Getenv("MONOPOD"), s.Dir, append(own, args...)...)
	s.Start()
	if err := s.Ready(); err != nil {
		s.End(syscall.SIGKILL)
		ts.Fatalf("%v\n%s", err, s.Log)
	}
}

// join runs monopod join as the node NAME, with the arguments in FILE, a line that monopod token create has printed; or
// without any, on a machine that has joined. It does not wait.
func join(ts *testscript.TestScript, neg bool, args []string) {
	s, node, args := named(ts, args)
	if neg || len(args) > 1 || node == "node1" {
		ts.Fatalf("usage: join -as NAME [FILE]")
	}
	own := []string{"monopod", "join", "--data-dir", s.Dir, "--node-name", node, "--runtime", ts.Getenv("RUNTIME"),
		"--eviction-hard=memory.available<100Mi", "--image-gc-high-threshold=100"}
	if len(args) == 1 {
		line, ok := strings.CutPrefix(ts.ReadFile(args[0]), "monopod join ")
		if !ok {
			ts.Fatalf("%s contains no command to join: %q", args[0], line)
		}
		own = append(own, strings.Fields(line)...)
	}
	log := &bytes.Buffer{}
	if s.Log != nil {
		log = s.Log
	}
	*s = harness.Server{Dir: s.Dir, Log: log, Cmd: &exec.Cmd{Path: ts.Getenv("MONOPOD"), Args: own}}
	s.Start()
}

func end(ts *testscript.TestScript, _ bool, args []string) {
	s, _, args := named(ts, args)
	sig := syscall.SIGTERM
	if len(args) == 1 && args[0] == "-kill" {
		sig = syscall.SIGKILL
	}
	s.End(sig)
	if s.Raced() {
		ts.Fatalf("monopod has a data race\n%s", s.Log)
	}
}

func startEtcd(ts *testscript.TestScript, _ bool, _ []string) {
	url, stop, err := etcdtest.Run(context.Background(), of(ts).Dir)
	ts.Check(err)
	ts.Defer(stop)
	ts.Setenv("ETCD", url)
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	look := output
	if args[1] == "kubectl" {
		look = sparingly()
	}
	var out string
	if !harness.Eventually(harness.Enough, func() bool {
		out = look(ts, args[1:])
		return want.MatchString(out)
	}) {
		ts.Fatalf("%s did not print %q, last output:\n%s", strings.Join(args[1:], " "), args[0], out)
	}
}

// sparingly returns a function that runs a command, but only if the server's state has changed since the last run, or
// after a growing pause: kubectl needs a fifth of a second of CPU to start. The function returns the last output.
func sparingly() func(*testscript.TestScript, []string) string {
	var out, revision string
	var last time.Time
	pause := 100 * time.Millisecond
	return func(ts *testscript.TestScript, args []string) string {
		now := of(ts).Revision()
		if now == revision && time.Since(last) < pause {
			return out
		}
		if now == revision {
			pause = min(pause*3/2, time.Second)
		}
		revision, out, last = now, output(ts, args), time.Now()
		return out
	}
}

func never(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: never REGEXP COMMAND...")
	}
	if out := output(ts, args[1:]); regexp.MustCompile("(?m)" + args[0]).MatchString(out) {
		ts.Fatalf("%s printed %q:\n%s", strings.Join(args[1:], " "), args[0], out)
	}
}

// output runs a command and returns its output, regardless of the exit code.
func output(ts *testscript.TestScript, args []string) string {
	cmd := prepared(ts, args)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func prepared(ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := exec.Command(resolve(ts, args[0]), args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"KUBECONFIG", "PATH", "HOME", "DATA", "SOCKET"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	if args[0] == "kubectl" {
		cmd.Env = append(cmd.Env, uncollected)
	}
	return cmd
}

// uncollected disables garbage collection in kubectl, which is half of the CPU time of the short process.
const uncollected = "GOGC=off"

// resolve returns the path of a program under test, or the name of another program.
func resolve(ts *testscript.TestScript, name string) string {
	if name == "kubectl" {
		return ts.Getenv("KUBECTL")
	}
	switch name {
	case "monopod":
		return ts.Getenv("MONOPOD")
	case "informers", "deviceplugin", "dradriver", "csidriver":
		return ts.Value(programsKey{}).(programs).Path(name)
	}
	return name
}

func background(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: background FILE COMMAND...")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	cmd := prepared(ts, args[1:])
	cmd.Stdout, cmd.Stderr = f, f
	ts.Check(cmd.Start())
	ts.Defer(func() {
		cmd.Process.Kill()
		cmd.Wait()
		f.Close()
	})
}

func runKubectl(ts *testscript.TestScript, neg bool, args []string) {
	name, value, _ := strings.Cut(uncollected, "=")
	ts.Setenv(name, value)
	err := ts.Exec(ts.Getenv("KUBECTL"), args...)
	ts.Setenv(name, "")
	if neg && err == nil {
		ts.Fatalf("kubectl %s succeeded", strings.Join(args, " "))
	}
	if !neg {
		ts.Check(err)
	}
}
