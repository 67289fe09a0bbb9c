package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"monopod/testdata/harness"
)

// asked matches a line of a page with monopod why and a part of its answer.
var asked = regexp.MustCompile(`(?m)^bin/monopod why ((?:deployment|service)/\S+) +# (.*)$`)

// readme precedes the commands of a page. make run runs testdata/run.sh with the programs of the test, and why waits
// for the answer. runc needs the /proc of the new PID namespace.
const readme = `set -eu
mount -t proc proc /proc
mount -t tmpfs tmpfs /var/lib
ip link set lo up
why() {
	n=0
	until bin/monopod why "$1" >why 2>&1 && tr '\n' ' ' <why | grep -qF -- "$2"; do
		n=$((n + 1))
		if [ $n -gt 300 ]; then echo "monopod why $1 never said: $2" >&2; cat why >&2; exit 1; fi
		sleep 0.2
	done
}
make() {
	case $1 in run) ;; *) return ;; esac
	testdata/run.sh >run 2>&1 &
	runs=$!
	until grep -q '^Ctrl-C stops' run; do
		if ! kill -0 $runs; then cat run >&2; exit 1; fi
		sleep 0.1
	done
}
bin/monopod() {
	if [ "$1" != serve ]; then command bin/monopod "$@"; return; fi
	stop
	command bin/monopod "$@" 2>log &
	serves=$!
	until command bin/monopod status --data-dir /var/lib/monopod >/dev/null 2>&1; do # a reader is slower than a start
		if ! kill -0 $serves; then cat log >&2; exit 1; fi
		sleep 0.1
	done
}
runs= serves=
stop() {
	if [ -n "$runs" ]; then kill -TERM $runs; wait $runs || true; runs=; fi
	if [ -n "$serves" ]; then kill $serves; wait $serves || true; serves=; command bin/monopod reset --data-dir /var/lib/monopod; fi
}
trap stop EXIT
set -x
`

// breakIt is the page that breaks the sample workload.
const breakIt = "../../docs/break-it.md"

// TestReadme runs the commands of the README and of breakIt, and checks the answers of monopod why.
func TestReadme(t *testing.T) {
	harness.NeedsContainerd(t)
	t.Parallel()
	b := buildAll(t)
	for page, least := range map[string]int{"../../README.md": 1, breakIt: 7} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			var commands strings.Builder
			for _, found := range block.FindAllStringSubmatch(string(text), -1) {
				commands.WriteString(found[1])
			}
			if n := len(asked.FindAllString(commands.String(), -1)); n < least {
				t.Errorf("%s has %d answers of monopod why, want at least %d", page, n, least)
			}
			b.follow(t, commands.String())
		})
	}
}

// follow runs the commands of a page over containerd, in new namespaces and in a folder like a checkout.
func (b programs) follow(t *testing.T, commands string) {
	dir, err := os.MkdirTemp("", "mp") // a short path for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for to, from := range map[string]string{
		"bin/monopod": b.Monopod(harness.Plain), "bin/web.tar": b.Image(),
		"testdata/run.sh": b.Source("testdata/run.sh"), "testdata/web.yaml": b.Source("testdata/web.yaml"),
	} {
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := harness.CopyFile(to, from); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(to, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-c", readme+asked.ReplaceAllStringFunc(commands, func(line string) string {
		m := asked.FindStringSubmatch(line)
		return "why " + m[1] + " '" + strings.ReplaceAll(m[2], "'", `'\''`) + "'"
	}))
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Env = append(os.Environ(), "PATH="+
		strings.Join([]string{b.Dir(), os.Getenv("PATH")}, string(os.PathListSeparator)), "HOME="+dir,
		"MONOPOD_EVICTION_HARD=memory.available<100Mi") // independent of the free disk space
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
