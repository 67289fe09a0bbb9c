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

// block matches a fenced block of a page that is marked as sh.
var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// prelude precedes the blocks of a page, which a shell runs one after the other. A monopod serve stops the previous
// one, runs in the background, and the shell waits until it is ready. Data folder and port are the defaults, in a
// separate /var/lib and network namespace.
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

// fence matches the first or last line of a fenced block.
var fence = regexp.MustCompile("(?m)^```(.*)$")

// notRun matches the mark of a block that no test can run, with the reason.
var notRun = regexp.MustCompile(`^sh \((.{10,})\)$`)

// TestCommandsAreRun checks that every block of the documents is marked: as commands that TestDocuments runs (sh), as
// commands that no test can run, with the reason, or as something else.
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

// TestDocuments runs the commands of the pages in docs over the fake runtime. TestReadme runs those of the README and
// of breakIt over containerd.
func TestDocuments(t *testing.T) {
	b := buildAll(t)
	if os.Geteuid() != 0 {
		t.Skip("skipped: the pages use /var/lib/monopod, and a separate /var/lib needs root")
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

// runPage runs the commands of a page in new namespaces.
func (b programs) runPage(t *testing.T, commands string) {
	start := ""
	if strings.Contains(commands, "etcd://127.0.0.1:2379") {
		if _, err := exec.LookPath("etcd"); err != nil {
			t.Skip("skipped: etcd is not installed: apt-get install etcd-server")
		}
		start = withEtcd
	}
	// Background processes of the blocks end with the PID namespace.
	cmd := exec.Command("bash", "-c", prelude+start+"set -x\n"+commands)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	path := strings.Join([]string{filepath.Dir(b.Monopod(harness.Plain)), b.Dir(), os.Getenv("PATH")},
		string(os.PathListSeparator))
	// --eviction-hard makes the tests independent of the free disk space of the machine.
	cmd.Env = append(os.Environ(), "PATH="+path, uncollected, "MONOPOD_RUNTIME=fake",
		"MONOPOD_EVICTION_HARD=memory.available<100Mi")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
