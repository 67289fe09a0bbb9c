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

// asked is a line of the README that asks why, with a part of the answer.
var asked = regexp.MustCompile(`(?m)^bin/monopod why ((?:deployment|service)/\S+) +# (.*)$`)

// readme goes before the commands of the README: make run is testdata/run.sh with what the test has built. why asks
// until the answer comes, as a reader does. The kernel's files have to be those of the PID namespace for runc.
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

// TestReadme follows the README: it runs the sample, breaks it in every way that the page shows, reads why, and mends
// it.
func TestReadme(t *testing.T) {
	harness.NeedsContainerd(t)
	t.Parallel()
	b := buildAll(t)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands strings.Builder
	for _, found := range block.FindAllStringSubmatch(string(text), -1) {
		commands.WriteString(found[1])
	}
	if n := len(asked.FindAllString(commands.String(), -1)); n < 7 {
		t.Errorf("the README asks why %d times with an answer, want at least 7", n)
	}
	dir, err := os.MkdirTemp("", "mp") // paths of sockets are short
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
	cmd := exec.Command("bash", "-c", readme+asked.ReplaceAllStringFunc(commands.String(), func(line string) string {
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
		"MONOPOD_EVICTION_HARD=memory.available<100Mi") // the tests must not depend on the free disk space of the machine
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
