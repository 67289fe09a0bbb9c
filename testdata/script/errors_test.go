package script_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/testdata/harness"
)

// mistake is a command that fails, and parts of its error: what failed, and what to do next. DATA is the data folder of
// a running monopod, STOPPED that of a stopped one, and TMP the folder of newMistaken.
type mistake struct {
	command string
	want    []string
	code    int // 0: 1
}

// nobody is the UID of a user without permissions.
const nobody = 65534

// TestErrorsOfCommands makes every command fail with common mistakes. Each error is one line that says what failed and
// what to do next, with an exit code.
func TestErrorsOfCommands(t *testing.T) {
	t.Parallel()
	w := newMistaken(t)
	t.Run("mistakes", func(t *testing.T) { // Run returns after the parallel subtests
		w.makeAll(t)
	})
	for _, cmd := range w.commands(t, nil) {
		if !w.tried[cmd] {
			t.Errorf("monopod %s: no error of this command is tested", cmd)
		}
	}
}

// makeAll runs all mistakes in parallel subtests.
func (w *mistaken) makeAll(t *testing.T) {
	t.Helper()
	for name, all := range map[string][]mistake{
		"command line": commandLine, "no server": noServer, "wrong folder": wrongFolder, "objects": ofObjects,
		"files": ofFiles, "settings": ofSettings, "in use": inUse, "services": ofServices,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, m := range all {
				w.fails(t, m, nil)
			}
		})
	}
	t.Run("without rights", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("skipped: only root can run a command as another user")
		}
		for _, m := range withoutRights {
			w.fails(t, m, &syscall.Credential{Uid: nobody, Gid: nobody})
		}
	})
	t.Run("full disk", func(t *testing.T) {
		t.Parallel()
		w.fill(t)
		for _, m := range fullDisk {
			w.fails(t, m, nil)
		}
	})
}

var commandLine = []mistake{
	{command: "statuz", want: []string{`unknown command "statuz"`, "did you mean status?", "monopod --help"}},
	{command: "--bogus", want: []string{"unknown flag: --bogus", "monopod --help"}},
	{command: "help bogus", want: []string{`unknown command "bogus"`, "monopod help --help"}},
	{command: "completion bogus",
		want: []string{`unknown command "bogus" for "monopod completion"`, "monopod completion COMMAND"}},
	{command: "completion bash extra", want: []string{"usage: monopod completion bash"}},
	{command: "completion zsh extra", want: []string{"usage: monopod completion zsh"}},
	{command: "completion fish extra", want: []string{"usage: monopod completion fish"}},
	{command: "completion powershell extra", want: []string{"usage: monopod completion powershell"}},
	{command: "images bogus", want: []string{`unknown command "bogus" for "monopod images"`, "monopod images COMMAND"}},
	{command: "images ls --bogus", want: []string{"unknown flag: --bogus", "usage: monopod images ls"}},
	{command: "images import", want: []string{"at least 1 arg", "usage: monopod images import FILE..."}},
	{command: "images rm", want: []string{"at least 1 arg", "usage: monopod images rm IMAGE..."}},
	{command: "images pull", want: []string{"at least 1 arg", "usage: monopod images pull IMAGE..."}},
	{command: "images save x", want: []string{"--file is required", "name the archive to write"}},
	{command: "addon bogus", want: []string{`unknown command "bogus"`, "monopod addon COMMAND"}},
	{command: "addon disable", want: []string{"accepts 1 arg", "usage: monopod addon disable NAME"}},
	{command: "certs bogus", want: []string{`unknown command "bogus"`, "monopod certs COMMAND"}},
	{command: "token bogus", want: []string{`unknown command "bogus"`, "monopod token COMMAND"}},
	{command: "token delete", want: []string{"at least 1 arg", "usage: monopod token delete ID|TOKEN..."}},
	{command: "snapshot bogus", want: []string{`unknown command "bogus"`, "monopod snapshot COMMAND"}},
	{command: "snapshot restore", want: []string{"accepts 1 arg", "usage: monopod snapshot restore NAME"}},
	{command: "store bogus", want: []string{`unknown command "bogus"`, "monopod store COMMAND"}},
	{command: "store copy", want: []string{"--from and --to are both required", "state.db", "etcd://"}},
	{command: "why a b c", want: []string{"usage: monopod why"}},
	{command: "why pod", want: []string{"KIND/NAME, for example pod/web-0"}},
	{command: "logs", want: []string{"usage: monopod logs POD|KIND/NAME"}},
	{command: "logs x --since=abc", want: []string{`invalid argument "abc" for "--since"`, "see monopod logs --help"}},
	{command: "logs x --tail=-5", want: []string{"--tail must be -1 or more, got -5"}},
	{command: "status -o xml", want: []string{"--output must be text or json"}},
	{command: "version -o bogus", want: []string{"--output must be json or yaml"}},
	{command: "check extra", want: []string{"usage: monopod check"}},
	{command: "dashboard extra", want: []string{"usage: monopod dashboard"}},
	{command: "inspect extra", want: []string{"usage: monopod inspect"}},
	{command: "reset extra", want: []string{"usage: monopod reset"}},
	{command: "config extra", want: []string{"usage: monopod config"}},
	{command: "serve extra", want: []string{"usage: monopod serve"}},
	{command: "drain", want: []string{"confirm with --shutdown", "kubectl drain"}},
	{command: "join a b", want: []string{"accepts at most 1 arg", "usage: monopod join [https://"}},
	{command: "join --runtime=none", want: []string{"--runtime=none: a node needs a container runtime"}},
	{command: "join --kubelet-listen=:10250", want: []string{"--kubelet-listen: the servers reach a node"}},
	{command: "leave extra", want: []string{"usage: monopod leave"}},
	{command: "envtest-assets", want: []string{"usage: monopod envtest-assets DIR"}},
	{command: "run", want: []string{"usage: monopod run [flags] -- COMMAND"}},
	{command: "run --runtime=bogus -- true", want: []string{"--runtime must be containerd or fake"}},
	{command: "run -- /none/program", want: []string{"/none/program", "no such file or directory", "name a program"},
		code: 127},
	{command: "upgrade", want: []string{"usage: monopod upgrade FILE"}},
	{command: "install --bogus", want: []string{"unknown flag", "usage: monopod install"}},
	{command: "uninstall extra", want: []string{"usage: monopod uninstall"}},
	{command: "rollback extra", want: []string{"usage: monopod rollback"}},
}

var noServer = []mistake{
	{command: "status --data-dir=STOPPED", want: started},
	{command: "why pod/x --data-dir=STOPPED", want: started},
	{command: "logs x --data-dir=STOPPED", want: started},
	{command: "images ls --data-dir=STOPPED", want: started},
	{command: "images import TMP/junk --data-dir=STOPPED", want: started},
	{command: "images rm x --data-dir=STOPPED", want: started},
	{command: "images save x -f TMP/x.tar --data-dir=STOPPED", want: started},
	{command: "images pull x --data-dir=STOPPED", want: started},
	{command: "addon list --data-dir=STOPPED", want: started},
	{command: "addon enable gateway-api --data-dir=STOPPED", want: started},
	{command: "addon disable gateway-api --data-dir=STOPPED", want: started},
	{command: "dashboard --data-dir=STOPPED", want: started},
	{command: "token create --data-dir=STOPPED", want: started},
	{command: "token list --data-dir=STOPPED", want: started},
	{command: "token delete abcdef --data-dir=STOPPED", want: started},
	{command: "join --runtime=fake --data-dir=STOPPED", want: []string{"STOPPED is the data folder of a server"}},
	{command: "leave --data-dir=STOPPED", want: []string{"STOPPED is not the data folder of a machine that has joined"}},
	{command: "drain --shutdown --data-dir=STOPPED",
		want: []string{"no monopod runs on STOPPED", "monopod reset", "--data-dir"}},
	{command: "status --kubeconfig=STOPPED/admin.kubeconfig", want: started[1:]},
	{command: "get pods --data-dir=STOPPED",
		want: []string{"no monopod runs on STOPPED", "start it with monopod serve", "--data-dir or KUBECONFIG"}},
	{command: "kubectl logs x --data-dir=TMP/none",
		want: []string{"no monopod runs on TMP/none", "start it with monopod serve", "--data-dir or KUBECONFIG"}},
}

var started = []string{"no monopod runs on STOPPED", "start it with monopod serve", "--data-dir or --kubeconfig"}

var wrongFolder = []mistake{
	{command: "status --data-dir=TMP/none", want: []string{"no monopod runs on TMP/none", "--data-dir"}},
	{command: "snapshot save --data-dir=TMP/none",
		want: []string{"TMP/none: no such file", "name the folder that serve uses"}},
	{command: "snapshot save --data-dir=TMP/empty",
		want: []string{"TMP/empty is not a data folder", "name the folder that serve uses"}},
	{command: "snapshot list --data-dir=TMP/empty",
		want: []string{"TMP/empty is not a data folder", "name the folder that serve uses"}},
	{command: "snapshot verify --data-dir=TMP/empty",
		want: []string{"TMP/empty is not a data folder", "name the folder that serve uses"}},
	{command: "snapshot restore x --data-dir=TMP/empty",
		want: []string{"TMP/empty is not a data folder", "name the folder that serve uses"}},
	{command: "snapshot compact --data-dir=TMP/empty",
		want: []string{"TMP/empty is not a data folder", "name the folder that serve uses"}},
	{command: "certs list --data-dir=TMP/empty", want: []string{"not a data folder", "--data-dir"}},
	{command: "certs rotate --data-dir=TMP/empty", want: []string{"not a data folder", "--data-dir"}},
	{command: "reset --data-dir=TMP/empty",
		want: []string{"TMP/empty is not a data folder", "name the folder that serve uses"}},
	{command: "serve --runtime=fake --data-dir=TMP/junk",
		want: []string{"--data-dir", "not a directory", "choose a folder"}},
}

var ofObjects = []mistake{
	{command: "why bogus/x --data-dir=DATA", want: []string{`got "bogus"`, "kubectl api-resources lists them"}},
	{command: "why pod/none --data-dir=DATA",
		want: []string{`pods "none" not found`, "kubectl get pods --all-namespaces"}},
	{command: "why pod/x -n none --data-dir=DATA",
		want: []string{`pods "x" not found`, "kubectl get pods --all-namespaces"}},
	{command: "logs none --data-dir=DATA", want: []string{`pods "none" not found`, "kubectl get pods --all-namespaces"}},
	{command: "logs bogus/x --data-dir=DATA", want: []string{"bogus has no logs", "name a pod"}},
	{command: "token create --data-dir=DATA", want: []string{"other machines cannot reach", "--listen=0.0.0.0:6443"}},
	{command: "token delete none00 --data-dir=DATA", want: []string{"token none00 not found", "monopod token list"}},
	{command: "token delete NONE --data-dir=DATA", want: []string{"ID", "monopod token list"}},
	{command: "images rm none:1 --data-dir=DATA", want: []string{`images "none:1" not found`, "monopod images ls"}},
	{command: "images save none:1 -f TMP/x.tar --data-dir=DATA",
		want: []string{`images "none:1" not found`, "monopod images ls"}},
	{command: "images pull UPPER --data-dir=DATA", want: []string{"UPPER", "must be lowercase"}},
	{command: "images pull 127.0.0.1:1/none:1 --data-dir=DATA",
		want: []string{"127.0.0.1:1/none:1", "connection refused"}},
	{command: "snapshot restore none --data-dir=STOPPED", want: []string{"snapshot none", "monopod snapshot list"}},
	{command: "snapshot verify none --data-dir=STOPPED", want: []string{"snapshot none", "monopod snapshot list"}},
	{command: "logs x -c none --data-dir=DATA", want: []string{`pods "x" not found`}},
}

var ofFiles = []mistake{
	{command: "addon enable bogus --data-dir=DATA", want: []string{`"bogus" is built in`, "--file", "gateway-api"}},
	{command: "addon enable site --file TMP/none.yaml --data-dir=DATA", want: []string{"TMP/none.yaml", "no such file"}},
	{command: "images import TMP/none.tar --data-dir=DATA",
		want: []string{"import TMP/none.tar", "no such file", "name an archive, as docker save writes it"}},
	{command: "images import TMP/junk --data-dir=DATA",
		want: []string{"import TMP/junk", "not a complete image archive", "write it with docker save"}},
	{command: "images import TMP/nothing --data-dir=DATA",
		want: []string{"import TMP/nothing", "not a complete image archive", "write it with docker save"}},
	{command: "images import TMP/junk TMP/none.tar --data-dir=DATA",
		want: []string{"import TMP/junk: not a complete image archive", "import TMP/none.tar: no such file"}},
	{command: "images import TMP --data-dir=DATA", want: []string{"import TMP: not a file", "name an archive"}},
	{command: "images save x -f TMP --data-dir=DATA", want: []string{"TMP is a folder", "name the archive to write"}},
	{command: "images save app:1 -f TMP/x.tar --data-dir=DATA",
		want: []string{"the fake runtime", "--runtime=containerd"}},
	{command: "inspect --file=TMP/none/x.tgz --data-dir=DATA",
		want: []string{"TMP/none/x.tgz", "no such file", "name another one with --file"}},
	{command: "status --kubeconfig=TMP/none", want: []string{"kubeconfig TMP/none: no such file", "--kubeconfig"}},
	{command: "status --kubeconfig=TMP/junk", want: []string{"kubeconfig TMP/junk", "--kubeconfig"}},
	{command: "status --kubeconfig=TMP/nothing", want: []string{"kubeconfig TMP/nothing", "--kubeconfig"}},
	{command: "store copy --from=TMP/none --to=TMP/to.db",
		want: []string{"--from", "TMP/none: no such file", "name the state.db"}},
	{command: "store copy --from=STOPPED --to=TMP/to.db", want: []string{"--from", "is a directory", "name the state.db"}},
	{command: "store copy --from=TMP/junk --to=TMP/to.db", want: []string{"--from", "TMP/junk"}},
	{command: "store copy --from=STOPPED/state.db --to=TMP/junk/to.db",
		want: []string{"--to", "not a directory", "name the state.db"}},
	{command: "store copy --from=etcd://127.0.0.1:1 --to=TMP/to.db",
		want: []string{"--from", "etcd at", "check that it runs there"}},
	{command: "envtest-assets TMP/junk", want: []string{"TMP/junk: not a directory", "choose a folder"}},
}

var ofSettings = []mistake{
	{command: "serve --config=TMP/none", want: []string{"--config: TMP/none: no such file", "monopod config"}},
	{command: "serve --config=TMP/typo.yaml",
		want: []string{"--config: TMP/typo.yaml: line 1", `unknown key "lissten"`, "monopod config"}},
	{command: "serve --config=TMP/broken.yaml", want: []string{"--config: TMP/broken.yaml", "yaml", "monopod config"}},
	{command: "config --config=TMP/none", want: []string{"--config: TMP/none: no such file", "monopod config"}},
	{command: "config --config=TMP/broken.yaml", want: []string{"--config: TMP/broken.yaml", "monopod config"}},
	{command: "run --runtime=fake --config=TMP/typo.yaml -- true",
		want: []string{"monopod did not start", `unknown key "lissten"`, "monopod config"}},
	{command: "serve --data-dir=TMP/d --runtime=bogus", want: []string{"--runtime must be containerd, fake or none"}},
	{command: "serve --data-dir=TMP/d --max-pods=x",
		want: []string{`invalid argument "x" for "--max-pods" flag: invalid syntax`, "monopod serve --help"}},
	{command: "serve --data-dir=TMP/d --max-pods=-1", want: []string{"--max-pods must be positive, got -1"}},
	{command: "serve --data-dir=TMP/d --runtime=fake --controllers=bogus",
		want: []string{`--controllers: "bogus"`, "known controllers: "}},
	{command: "serve --data-dir=TMP/d --runtime=fake --node-name=UPPER_",
		want: []string{`--node-name: "UPPER_"`, "must consist of"}},
	{command: "serve --data-dir=TMP/d --runtime=fake --eviction-hard=bogus<1",
		want: []string{`--eviction-hard: unknown signal "bogus"`, "known: memory.available"}},
	{command: "serve --data-dir=TMP/d --runtime=fake --listen=nonsense",
		want: []string{"--listen: address nonsense", "for example --listen=127.0.0.1:0"}},
	{command: "serve --data-dir=TMP/d --runtime=fake --listen=192.0.2.1:6443",
		want: []string{"--listen", "192.0.2.1:6443", "choose an address of this machine"}},
	{command: "serve --data-dir=TMP/d --runtime=fake --listen=127.0.0.1:0 --tls-san=a/b",
		want: []string{`--tls-san: "a/b" is neither`}},
}

var inUse = []mistake{
	{command: "serve --runtime=fake --data-dir=TMP/d --listen=PORT",
		want: []string{"--listen", "address already in use", "choose another address"}},
	{command: "serve --runtime=fake --data-dir=DATA --listen=127.0.0.1:0", want: held},
	{command: "snapshot restore x --data-dir=DATA", want: held},
	{command: "snapshot compact --data-dir=DATA", want: held},
	{command: "reset --data-dir=DATA", want: held},
	{command: "certs rotate --ca --data-dir=DATA", want: []string{"monopod is running", "stop it first"}},
}

var held = []string{"DATA: in use by another process", "stop it, or choose another --data-dir"}

// ofServices use machines below TMP: machine has OpenRC, empty has no service manager.
var ofServices = []mistake{
	{command: "install --root=TMP/empty", want: []string{"neither systemd nor OpenRC", "start monopod serve"}},
	{command: "uninstall --root=TMP/empty", want: []string{"neither systemd nor OpenRC", "start monopod serve"}},
	{command: "uninstall --root=TMP/machine", want: []string{"/etc/init.d/monopod does not exist", "run monopod install"}},
	{command: "upgrade TMP/junk --root=TMP/machine",
		want: []string{"/etc/init.d/monopod does not exist", "run monopod install"}},
	{command: "rollback --root=TMP/machine", want: []string{"/etc/init.d/monopod does not exist", "run monopod install"}},
	{command: "upgrade TMP/none --root=TMP/installed",
		want: []string{"cannot read the new program", "TMP/none", "check the path"}},
	{command: "upgrade TMP/junk --root=TMP/installed",
		want: []string{"TMP/junk is not a monopod program for this machine", "is it executable"}},
	{command: "upgrade /bin/true --root=TMP/installed",
		want: []string{"/bin/true is not a monopod program for this machine"}},
	{command: "rollback --root=TMP/installed", want: []string{"there is no previous program"}},
	{command: "uninstall --root=TMP/foreign", want: []string{"/etc/init.d/monopod does not run monopod serve"}},
	{command: "install --root=TMP/machine --force -- --bogus",
		want: []string{"the flags of serve are not valid", "unknown flag: --bogus"}},
	{command: "install --root=TMP/machine -- --node-name=a$b",
		want: []string{"cannot contain spaces, quotes, $", "--config=FILE"}},
}

var withoutRights = []mistake{
	{command: "status --data-dir=DATA", want: []string{"permission denied", "owner of DATA"}},
	{command: "why pod/x --data-dir=DATA", want: []string{"permission denied", "owner of DATA"}},
	{command: "logs x --data-dir=DATA", want: []string{"permission denied", "owner of DATA"}},
	{command: "images ls --data-dir=DATA", want: []string{"permission denied", "owner of DATA"}},
	{command: "dashboard --data-dir=DATA", want: []string{"permission denied", "owner of DATA"}},
	{command: "certs list --data-dir=DATA", want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "certs rotate --data-dir=DATA", want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "drain --shutdown --data-dir=DATA", want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "snapshot save --data-dir=DATA", want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "snapshot restore x --data-dir=STOPPED",
		want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "snapshot compact --data-dir=STOPPED",
		want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "reset --data-dir=STOPPED", want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "store copy --from=STOPPED/state.db --to=TMP/to.db",
		want: []string{"permission denied", "run it as root, or as the owner"}},
	{command: "serve --data-dir=TMP/d --listen=127.0.0.1:0", want: []string{"root is required", "--runtime=fake"}},
	{command: "serve --data-dir=TMP/new --runtime=fake --listen=127.0.0.1:0",
		want: []string{"--data-dir", "permission denied", "choose a folder that you can write to"}},
	{command: "run --runtime=containerd -- true", want: []string{"root is required", "--runtime=fake"}},
	{command: "inspect --data-dir=DATA --file=TMP/x.tgz",
		want: []string{"TMP/x.tgz", "permission denied", "name another one with --file"}},
	{command: "envtest-assets TMP/assets", want: []string{"permission denied", "choose a folder"}},
	{command: "install --root=TMP/machine", want: []string{"monopod install needs root", "sudo"}},
	{command: "uninstall --root=TMP/machine", want: []string{"monopod uninstall needs root", "sudo"}},
	{command: "upgrade TMP/junk --root=TMP/machine", want: []string{"monopod upgrade needs root", "sudo"}},
	{command: "rollback --root=TMP/machine", want: []string{"monopod rollback needs root", "sudo"}},
}

var fullDisk = []mistake{
	{command: "serve --runtime=fake --data-dir=TMP/full/d --listen=127.0.0.1:0",
		want: []string{"TMP/full/d/state.db", "no space left", "free space"}},
	{command: "inspect --data-dir=DATA --file=TMP/full/x.tgz",
		want: []string{"TMP/full/x.tgz", "no space left", "free space"}},
	{command: "store copy --from=STOPPED/state.db --to=TMP/full/x.db",
		want: []string{"--to", "no space left", "free space"}},
}

// mistaken is the environment of the mistakes.
type mistaken struct {
	program string
	names   *strings.Replacer
	tmp     string
	mu      sync.Mutex
	tried   map[string]bool // commands that have failed; guarded by mu
}

func newMistaken(t *testing.T) *mistaken {
	t.Helper()
	programs := harness.Build(t)
	w := &mistaken{program: programs.Monopod(harness.Plain), tried: map[string]bool{}}
	tmp, err := os.MkdirTemp("", "mp") // a short path for sockets, which nobody may read
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	w.tmp = tmp
	var errs []error
	for name, text := range map[string]string{
		"junk": "junk\n", "nothing": "", "typo.yaml": "api-server: {lissten: x}\n", "broken.yaml": ": : {\n",
		"empty/.keep":             "",
		"machine/sbin/openrc-run": "", "installed/sbin/openrc-run": "", "foreign/sbin/openrc-run": "",
		"installed/etc/init.d/monopod": "command=\"/monopod\"\ncommand_args=\"serve\"\n", "installed/monopod": "old",
		"foreign/etc/init.d/monopod": "command=\"/bin/true\"\ncommand_args=\"\"\n",
	} {
		path := filepath.Join(tmp, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	if err := errors.Join(append(errs, os.Chmod(tmp, 0o755))...); err != nil {
		t.Fatal(err)
	}
	running, stopped := w.server(t, "data"), w.server(t, "stopped")
	stopped.End(syscall.SIGTERM)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w.names = strings.NewReplacer("DATA", running.Dir, "STOPPED", stopped.Dir, "TMP", tmp, "PORT", l.Addr().String())
	if out, err := exec.Command(w.program, "images", "pull", "app:1", "--data-dir",
		running.Dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return w
}

// server starts a monopod with a data folder in TMP.
func (w *mistaken) server(t *testing.T, name string) *harness.Server {
	t.Helper()
	s := harness.NewServer(w.program, filepath.Join(w.tmp, name), "--runtime=fake", "--node-name=node1")
	s.Start()
	t.Cleanup(func() { s.CleanUp(false) })
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	return s
}

// fill mounts a full file system at TMP/full.
func (w *mistaken) fill(t *testing.T) {
	t.Helper()
	full := filepath.Join(w.tmp, "full")
	if err := os.MkdirAll(full, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=16k,mode=777"); err != nil {
		t.Skip("skipped: cannot mount a file system: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(full, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(full, "all"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the file system is not full: %v", err)
	}
}

// fails runs a command as a user. It must fail with one line that contains the wanted parts.
func (w *mistaken) fails(t *testing.T, m mistake, as *syscall.Credential) {
	t.Helper()
	args := strings.Fields(w.names.Replace(m.command))
	w.mu.Lock()
	w.tried[name(args)] = true
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Scaled(30*time.Second))
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, args...)
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.tmp, "TMPDIR=/tmp"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // the exit code is checked below
	want := m.code
	if want == 0 {
		want = 1
	}
	said := stderr.String()
	if code := cmd.ProcessState.ExitCode(); code != want {
		t.Errorf("monopod %s: exit code %d, want %d: %s", m.command, code, want, said)
	}
	if line, rest, _ := strings.Cut(said, "\n"); rest != "" || !strings.HasPrefix(line, "monopod: ") {
		t.Errorf("monopod %s: the error is not one line: %s", m.command, said)
	}
	for _, part := range m.want {
		if part = w.names.Replace(part); !strings.Contains(said, part) {
			t.Errorf("monopod %s: want %q in: %s", m.command, part, said)
		}
	}
}

// groups are the commands that only have subcommands.
var groups = []string{"addon", "certs", "completion", "images", "snapshot", "store", "token"}

// name returns the name of the command that the arguments call.
func name(args []string) string {
	if len(args) > 1 && slices.Contains(groups, args[0]) {
		return args[0] + " " + args[1]
	}
	return args[0]
}

// commands returns the commands of monopod from its completion, without groups and without kubectl's commands, whose
// errors are kubectl's.
func (w *mistaken) commands(t *testing.T, of []string) (all []string) {
	t.Helper()
	out, err := exec.Command(w.program, append(append([]string{"__complete"}, of...), "")...).Output()
	if err != nil {
		t.Fatalf("__complete %v: %v", of, err)
	}
	for line := range strings.Lines(string(out)) {
		word, about, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok || strings.HasPrefix(about, "kubectl ") || word == "kubectl" {
			continue
		}
		full := append(append([]string{}, of...), word)
		if len(of) == 0 && slices.Contains(groups, word) {
			all = append(all, w.commands(t, full)...)
			continue
		}
		all = append(all, strings.Join(full, " "))
	}
	return all
}
