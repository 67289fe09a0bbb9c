package machine_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// TestInstall installs, upgrades and removes monopod with a real systemd, while a pod keeps running.
func TestInstall(t *testing.T) {
	needsSystemd(t)
	programs := harness.Build(t)
	t.Parallel()
	m := newMachine(t, programs)
	for name, tail := range map[string]string{"newer": "\n", "broken": ""} {
		content, err := os.ReadFile(programs.Monopod(harness.Plain))
		if tail == "" {
			content = []byte(
				"#!/bin/sh\nif [ \"$1\" = serve ]; then echo it is broken >&2; exit 1; fi\nexec /usr/local/bin/monopod \"$@\"\n")
		}
		path := filepath.Join(m.Dir, "programs", name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, append(content, tail...), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	m.boot(t)
	const program = "/opt/monopod/monopod"
	install := []string{"/usr/local/bin/monopod", "install", "--program=" + program, "--", "--node-name=node1",
		"--eviction-hard=memory.available<50Mi"}
	if out := m.run(t, install...); !regexp.MustCompile(
		`(?s)installed /opt/monopod/monopod\nwrote /etc/systemd/system/monopod.service\nready after .*starts with the ` +
			`machine \(systemd\)\n$`).MatchString(out) {
		t.Errorf("install: %s", out)
	}
	if code, text := m.Get("/readyz"); code != http.StatusOK {
		t.Errorf("install returned before monopod was ready: %d %s", code, text)
	}
	if out := m.run(t, install...); out != "monopod is already installed and runs; nothing to do\n" {
		t.Errorf("install again: %s", out)
	}
	m.create(t, "steady", "", time.Second)
	before := m.await(t, "steady", isReady)
	steady := func(after string) {
		t.Helper()
		now := m.await(t, "steady", isReady)
		if was, is := before.Status.ContainerStatuses[0],
			now.Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID || is.RestartCount != 0 {
			t.Errorf("%s: the pod was restarted: %s", after, describe(now))
		}
		if out := m.run(t, "systemctl", "is-active", "monopod"); out != "active\n" {
			t.Errorf("%s: %s", after, out)
		}
	}
	if out := m.run(t, program, "upgrade", "/var/lib/monopod/programs/newer"); !strings.Contains(out,
		"saved the snapshot ") || !strings.Contains(out, "to go back: monopod rollback") {
		t.Errorf("upgrade: %s", out)
	}
	steady("upgrade")
	out, err := m.inside(program, "upgrade", "/var/lib/monopod/programs/broken").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "runs again") {
		t.Errorf("upgrade to a broken program: %v: %s", err, out)
	}
	steady("upgrade to a broken program")
	// After the failed upgrade, version and rollback still work.
	if out := m.run(t, program, "version"); !strings.HasPrefix(out, "Monopod ") {
		t.Errorf("version: %s", out)
	}
	m.run(t, program, "rollback")
	steady("rollback")
	if out := m.run(t, program, "uninstall"); !strings.Contains(out, "its data stay in /var/lib/monopod") ||
		strings.Contains(out, "may still run") {
		t.Errorf("uninstall: %s", out)
	}
	if out := m.run(t, "sh", "-c",
		"ls /opt/monopod /etc/systemd/system; pgrep containerd-shim || echo none"); strings.Contains(out,
		"monopod.service\n") || !strings.Contains(out, "none") {
		t.Errorf("after uninstall: %s", out)
	}
	if _, err := os.Stat(filepath.Join(m.Dir, "state.db")); err != nil {
		t.Error(err)
	}
	m.run(t, "systemctl", "poweroff")
	m.awaitOff(t)
}
