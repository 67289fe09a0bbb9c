package script_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"monopod/testdata/harness"
)

// block is a fenced block of a page that is marked as sh: a user can type it as it is.
var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// prelude makes a shell run a page's blocks one after another, as a user with two terminals would: monopod serve runs
// beside the rest, once the one before has stopped, and the shell waits until it is ready. The data folder is the
// default one, in a /var/lib of its own, at the default port, on a loopback of its own.
const prelude = `set -eu
mount -t tmpfs tmpfs /var/lib
ip link set lo up
export HOME=/var/lib/home
mkdir $HOME
cd $HOME
server=
end() { if [ -n "$server" ]; then kill $server; wait $server || true; server=; fi; }
monopod() {
	if [ "$1" != serve ]; then command monopod "$@"; return; fi
	end
	command monopod "$@" 2>$HOME/log &
	server=$!
	case "$*" in *--data-dir*) return ;; esac
	until curl -sf --unix-socket /var/lib/monopod/monopod.sock http://x/readyz >/dev/null; do
		if ! kill -0 $server; then cat $HOME/log >&2; exit 1; fi
		sleep 0.05
	done
}
systemctl() {
	case $1 in
	stop) end ;;
	start) monopod serve ;;
	esac
}
trap end EXIT
`

// withEtcd starts the etcd that a page uses.
const withEtcd = `etcd --data-dir $HOME/etcd >$HOME/etcd.log 2>&1 &
until curl -sf http://127.0.0.1:2379/health >/dev/null; do sleep 0.1; done
`

// fence is the first line of a fenced block.
var fence = regexp.MustCompile("(?m)^```(.*)$")

// notRun is a block of commands that no test can run, with the reason.
var notRun = regexp.MustCompile(`^sh \((.{10,})\)$`)

// TestCommandsAreRun checks that every block of the documents is run (sh), says why it is not, or contains no commands.
func TestCommandsAreRun(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, found := range fence.FindAllStringSubmatch(string(text), -1) {
			info := found[1]
			switch reason := notRun.FindStringSubmatch(info); {
			case i%2 == 1: // the end of a block
				if info != "" {
					t.Errorf("%s: block %d does not end with a plain fence: %s", page, i/2+1, info)
				}
			case slices.Contains([]string{"sh", "text", "yaml", "toml", "ini", "json", "go"}, info):
			case reason != nil:
				t.Run(fmt.Sprintf("%s block %d", filepath.Base(page), i/2+1), func(t *testing.T) {
					t.Skip("not run:", reason[1])
				})
			default:
				t.Errorf("%s: block %d is marked %q: mark commands as sh, or as sh (REASON) if no test can run them, "+
					"and others with their language or as text", page, i/2+1, info)
			}
		}
	}
}

// TestDocuments runs the commands of the pages in docs, over the fake runtime. TestReadme does so over containerd with the README
// and the page that breaks its sample.
func TestDocuments(t *testing.T) {
	b := buildAll(t)
	if os.Geteuid() != 0 {
		t.Skip("skipped: the pages use /var/lib/monopod, and only root can have a /var/lib of its own")
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for _, page := range pages {
		if page == breakIt {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var script strings.Builder
		for _, found := range block.FindAllStringSubmatch(string(text), -1) {
			script.WriteString(found[1])
		}
		if script.Len() == 0 {
			continue
		}
		run++
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			b.runPage(t, script.String())
		})
	}
	if run < 8 {
		t.Errorf("%d pages have commands, want at least 8", run)
	}
}

// runPage runs the commands of a page in namespaces of their own.
func (b programs) runPage(t *testing.T, commands string) {
	start := ""
	if strings.Contains(commands, "etcd://127.0.0.1:2379") {
		if _, err := exec.LookPath("etcd"); err != nil {
			t.Skip("skipped: there is no etcd in PATH: apt-get install etcd-server")
		}
		start = withEtcd
	}
	// The blocks have to end by themselves: what they start in the background ends with the PID namespace.
	cmd := exec.Command("bash", "-c", prelude+start+"set -x\n"+commands)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	path := strings.Join([]string{filepath.Dir(b.Monopod(harness.Plain)), b.Dir(), os.Getenv("PATH")},
		string(os.PathListSeparator))
	// The tests must not depend on the free disk space of the machine.
	cmd.Env = append(os.Environ(), "PATH="+path, uncollected, "MONOPOD_RUNTIME=fake",
		"MONOPOD_EVICTION_HARD=memory.available<100Mi")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
