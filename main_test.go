package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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

	"monopod/agent/abilities"
	"monopod/store/etcd/etcdtest"
)

// The scripts below testdata/script drive the built program with the real
// kubectl and with curl. Those directly in it run over both runtimes, those in
// fake/ and containerd/ over that alone, those in agent/ (what a node does with
// its pods) over both, and those in kubectl/, one for each of
// its commands, over the fake one with two minors of kubectl.
//
// A line may begin with [fake] or [containerd] where it is for that runtime alone, and
// with what the runtime must be able to do: [cdi], [images] (volumes that show an
// image), [imagefolders] (or a folder of one), [userns] (users of a pod's own, and only
// the groups that it names); with [!cdi] and so on where it cannot.
// Beside testscript's own commands they have:
//
//	serve [flags]          start monopod on $WORK/data, wait for /readyz, set KUBECONFIG
//	end [-kill]            stop it with SIGTERM, or SIGKILL (stop would end the script)
//	serve, end -as NAME    the same with another monopod, whose node is NAME: its
//	                       folder is $DATA-NAME
//	etcd                   start an etcd and set ETCD to its URL
//	registry               start a registry on loopback and set REGISTRY to its host and port
//	registry push NAME     put the sample image into it: app:1
//	registry push NAME F…  put an image of these files into it
//	registry require U P   have it want a user and password from now on
//	until REGEXP CMD...    run CMD until its output matches, up to a minute
//	never REGEXP CMD...    run CMD once; its output must not match
//	background NAME CMD... start CMD with its output in the file NAME
//	kubectl ARGS...        run it with what the script says; stdout and stderr are kept

// bin is where the programs under test are.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "monopod-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	return m.Run()
}

// built says that buildAll ran.
var built sync.Once

// fastBuild leaves the race detector out, for measuring by hand.
const fastBuild = "MONOPOD_TEST_FAST"

// buildAll builds what the scripts run: monopod with the race detector, the
// sample image, kubectl, and the clients of testdata/clients.
func buildAll(t testing.TB) {
	t.Helper()
	built.Do(func() { buildEach(t) })
}

func buildEach(t testing.TB) {
	t.Helper()
	race := []string{"-race"}
	if os.Getenv(fastBuild) != "" {
		race = nil
	}
	build(t, ".", nil, append(race, "-o", filepath.Join(bin, "monopod"), ".")...)
	static := []string{"CGO_ENABLED=0"}
	build(t, ".", static, "-o", filepath.Join(bin, "web"), "./testdata/web")
	command(t, ".", nil, "go", "run", "./testdata/web/pack", "-program", filepath.Join(bin, "web"), "-o", filepath.Join(bin, "web.tar"))
	build(t, ".", static, "-o", filepath.Join(bin, "deviceplugin"), "./testdata/deviceplugin")
	build(t, "testdata/kubectl", static, "-trimpath", "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2",
		"-o", filepath.Join(bin, "kubectl"), ".")
	build(t, "testdata/clients", static, "-trimpath", "-ldflags=-s -w", "-o", bin+"/", "./informers", "./cache", "./helm")
}

func build(t testing.TB, dir string, env []string, args ...string) {
	t.Helper()
	command(t, dir, env, "go", append([]string{"build"}, args...)...)
}

func command(t testing.TB, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func TestScripts(t *testing.T) {
	buildAll(t)
	for _, runtime := range []string{"fake", "containerd"} {
		t.Run(runtime, func(t *testing.T) {
			if runtime == "containerd" {
				needsContainerd(t)
			}
			t.Parallel()
			for _, dir := range []string{"testdata/script", "testdata/script/" + runtime, "testdata/script/agent"} {
				runScripts(t, dir, runtime, filepath.Join(bin, "kubectl"))
			}
		})
	}
}

// TestKubectl runs the scripts of kubectl's commands with the newest kubectl,
// which the test builds, and with the one that the machine has.
func TestKubectl(t *testing.T) {
	buildAll(t)
	t.Run("newest", func(t *testing.T) {
		t.Parallel()
		runScripts(t, "testdata/script/kubectl", "fake", filepath.Join(bin, "kubectl"))
	})
	t.Run("installed", func(t *testing.T) {
		t.Parallel()
		path, err := exec.LookPath("kubectl")
		if err != nil {
			t.Skip("left out: there is no kubectl on this machine's PATH")
		}
		runScripts(t, "testdata/script/kubectl", "fake", path)
	})
}

// runScripts runs the scripts in dir with one kubectl.
func runScripts(t *testing.T, dir, runtime, kubectl string) {
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
		Setup:     func(env *testscript.Env) error { return setup(env, runtime, kubectl) },
		Condition: func(name string) (bool, error) { return condition(name, runtime) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serve, "end": end, "until": until, "never": never, "background": background, "kubectl": runKubectl, "etcd": startEtcd,
			"registry": askRegistry,
		},
	})
}

// condition says whether a line is for this runtime, for those that have an ability,
// or for a machine that has loop devices.
func condition(name, runtime string) (bool, error) {
	if name == "loop" {
		_, loop := os.Stat("/dev/loop-control")
		_, mkfs := exec.LookPath("mkfs.ext4")
		return loop == nil && mkfs == nil, nil
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

// can says whether a runtime has the ability that a condition is named after.
func can(name string, v *cri.VersionResponse) (bool, error) {
	is := abilities.Of(v)
	switch name {
	case "cdi":
		return is.CDI, nil
	case "images":
		return is.Images, nil
	case "imagefolders":
		return is.ImageSubPaths, nil
	case "userns": // containerd tells of both since 2.0, as of CDI; the fake runtime of neither
		return is.CDI && v.RuntimeName == "containerd", nil
	}
	return false, fmt.Errorf("no runtime and no ability is called %q", name)
}

// versionOf is that of the fake runtime, or of the containerd that is first in PATH.
func versionOf(runtime string) (*cri.VersionResponse, error) {
	if runtime == "fake" {
		return &cri.VersionResponse{RuntimeName: runtime}, nil
	}
	out, err := exec.Command("containerd", "--version").Output()
	if err != nil {
		return nil, err
	}
	fields := append(strings.Fields(string(out)), "", "", "") // the third is the version
	return &cri.VersionResponse{RuntimeName: runtime, RuntimeVersion: fields[2]}, nil
}

func TestCan(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"1.6.20": "", "v2.0.5": "cdi userns", "v2.1.4": "cdi images userns", "v2.2.0": "cdi images imagefolders userns"} {
		var got []string
		for _, name := range []string{"cdi", "images", "imagefolders", "userns"} {
			if ok, err := can(name, &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: version}); ok {
				got = append(got, name)
			} else if err != nil {
				t.Error(err)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("containerd %s can %v, want %s", version, got, want)
		}
	}
}

func needsContainerd(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: containers need root")
	}
	for _, program := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("left out: %s is not installed: apt-get install %[1]s", program)
		}
	}
}

// server is the monopod of one script.
type server struct {
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
	log  *bytes.Buffer // read after done
}

// newServer is a monopod on dir that does not run yet.
func newServer(dir string, flags []string) *server {
	return &server{dir: dir, log: &bytes.Buffer{}, cmd: &exec.Cmd{
		Path: filepath.Join(bin, "monopod"),
		Args: append([]string{"monopod", "serve", "--data-dir", dir, "--listen", "127.0.0.1:0"}, flags...),
	}}
}

type (
	serverKey struct{}
	othersKey struct{}
)

func setup(env *testscript.Env, runtime, kubectl string) error {
	dir, err := os.MkdirTemp("", "mp") // short: socket paths have 107 bytes
	if err != nil {
		return err
	}
	s := &server{dir: dir}
	env.Values[serverKey{}], env.Values[othersKey{}], env.Values[registryKey{}] = s, map[string]*server{}, &registryOf{}
	env.Setenv("RUNTIME", runtime)
	env.Setenv("DATA", dir)
	env.Setenv("SOCKET", filepath.Join(dir, "monopod.sock"))
	env.Setenv("KUBECONFIG", filepath.Join(dir, "admin.kubeconfig"))
	env.Setenv("KUBECTL", kubectl)
	env.Setenv("PATH", strings.Join([]string{filepath.Dir(kubectl), bin, os.Getenv("PATH")}, string(os.PathListSeparator)))
	env.Setenv("HOME", env.WorkDir)
	env.Defer(func() {
		s.cleanUp(runtime == "containerd")
		unix.Unmount(dir, unix.MNT_DETACH) // a script may have mounted a small disk there
		os.RemoveAll(dir)
	})
	if err := os.MkdirAll(filepath.Join(dir, "images"), 0o700); err != nil {
		return err
	}
	return copyFile(filepath.Join(dir, "images", "web.tar"), filepath.Join(bin, "web.tar"))
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// cleanUp ends the process and everything that it leaves running.
func (s *server) cleanUp(containers bool) {
	if s.cmd == nil {
		return
	}
	s.end(syscall.SIGTERM)
	if containers {
		cmd := exec.Command(filepath.Join(bin, "monopod"), "reset", "--data-dir", s.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "monopod reset: %v: %s\n", err, out)
		}
	}
}

func (s *server) running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// start runs the same command once more.
func (s *server) start() {
	// Without the pause that the race detector makes at every exit: monopod is
	// also the network plugin, which runs twice for each pod.
	s.cmd = &exec.Cmd{Path: s.cmd.Path, Args: s.cmd.Args, Stderr: s.log, Stdout: s.log,
		Env:         append(os.Environ(), "GORACE=atexit_sleep_ms=0"),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	s.done = make(chan struct{})
	if err := s.cmd.Start(); err != nil {
		close(s.done)
		return
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		cmd.Wait()
		close(done)
	}(s.cmd, s.done)
}

func (s *server) end(sig syscall.Signal) {
	s.cmd.Process.Signal(sig)
	select {
	case <-s.done:
	case <-time.After(20 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
	}
}

// http is a client of the socket.
func (s *server) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(s.dir, "monopod.sock"))
	}}}
}

func (s *server) get(path string) (int, string) {
	resp, err := s.http().Get("http://x" + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data)
}

// ready waits until the API answers.
func (s *server) ready() error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if code, _ := s.get("/readyz"); code == http.StatusOK {
			return nil
		}
		if !s.running() {
			return errors.New("monopod ended")
		}
	}
	return errors.New("monopod is not ready")
}

func of(ts *testscript.TestScript) *server { return ts.Value(serverKey{}).(*server) }

// named is the server that a command is about, which may begin with -as NAME,
// and the name of its node.
func named(ts *testscript.TestScript, args []string) (s *server, node string, rest []string) {
	if len(args) < 2 || args[0] != "-as" {
		return of(ts), "node1", args
	}
	others := ts.Value(othersKey{}).(map[string]*server)
	node = args[1]
	if others[node] == nil {
		s := &server{dir: of(ts).dir + "-" + node}
		others[node] = s
		ts.Defer(func() {
			s.cleanUp(false)
			os.RemoveAll(s.dir)
		})
	}
	return others[node], node, args[2:]
}

func serve(ts *testscript.TestScript, _ bool, args []string) {
	s, node, args := named(ts, args)
	// How full the disk is of the machine that the tests run on is no matter.
	own := []string{"--node-name", node, "--runtime", ts.Getenv("RUNTIME"), "--eviction-hard=memory.available<100Mi"}
	*s = *newServer(s.dir, append(own, args...))
	s.start()
	ts.Defer(func() {
		if s.running() {
			return
		}
		if strings.Contains(s.log.String(), "DATA RACE") {
			ts.Logf("%s", s.log)
			ts.Fatalf("monopod has a data race")
		}
	})
	if err := s.ready(); err != nil {
		s.end(syscall.SIGKILL)
		ts.Fatalf("%v\n%s", err, s.log)
	}
}

func end(ts *testscript.TestScript, _ bool, args []string) {
	s, _, args := named(ts, args)
	sig := syscall.SIGTERM
	if len(args) == 1 && args[0] == "-kill" {
		sig = syscall.SIGKILL
	}
	s.end(sig)
	if strings.Contains(s.log.String(), "DATA RACE") {
		ts.Fatalf("monopod has a data race\n%s", s.log)
	}
}

func startEtcd(ts *testscript.TestScript, _ bool, _ []string) {
	url, stop, err := etcdtest.Run(context.Background(), of(ts).dir)
	ts.Check(err)
	ts.Defer(stop)
	ts.Setenv("ETCD", url)
}

// untilTime bounds a wait for what must come.
const untilTime = time.Minute

func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var out string
	for deadline := time.Now().Add(untilTime); ; time.Sleep(30 * time.Millisecond) {
		out = output(ts, args[1:])
		if want.MatchString(out) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s never said %q, last:\n%s", strings.Join(args[1:], " "), args[0], out)
		}
	}
}

func never(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: never REGEXP COMMAND...")
	}
	if out := output(ts, args[1:]); regexp.MustCompile("(?m)" + args[0]).MatchString(out) {
		ts.Fatalf("%s said %q:\n%s", strings.Join(args[1:], " "), args[0], out)
	}
}

// output runs a command and returns what it prints, whatever becomes of it.
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
	return cmd
}

// resolve prefers the programs under test.
func resolve(ts *testscript.TestScript, name string) string {
	if name == "kubectl" {
		return ts.Getenv("KUBECTL")
	}
	if p := filepath.Join(bin, name); name == "monopod" || name == "informers" || name == "deviceplugin" {
		return p
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
	err := ts.Exec(ts.Getenv("KUBECTL"), args...)
	if neg && err == nil {
		ts.Fatalf("kubectl %s succeeded", strings.Join(args, " "))
	}
	if !neg {
		ts.Check(err)
	}
}
