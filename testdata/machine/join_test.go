package machine_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod/testdata/harness"
)

// TestInstallJoin installs, upgrades and removes a node that has joined, with a real systemd, on the machine of its
// server.
func TestInstallJoin(t *testing.T) {
	needsSystemd(t)
	programs := harness.Build(t)
	t.Parallel()
	m := newMachine(t, programs)
	const dir, unit = "/var/lib/monopod/edge", "/etc/systemd/system/monopod.service"
	images := filepath.Join(m.Dir, "edge", "images")
	if err := os.MkdirAll(images, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := harness.CopyFile(filepath.Join(images, "web.tar"), programs.Image()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(programs.Monopod(harness.Plain))
	if err == nil {
		err = os.WriteFile(filepath.Join(m.Dir, "newer"), append(content, '\n'), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.boot(t)
	const monopod = "/usr/local/bin/monopod"
	m.run(t, "systemd-run", "--unit=server", "--property=Type=notify", monopod, "serve", "--runtime=none",
		"--listen=127.0.0.1:7443")
	m.run(t, "rm", unit) // of a machine that runs serve
	line := m.run(t, monopod, "token", "create", "--server=https://127.0.0.1:7443")
	join := strings.Fields(strings.TrimPrefix(line, "monopod "))
	install := append([]string{monopod, "install", "--program=/opt/monopod/monopod", "--"},
		append(join, "--data-dir="+dir, "--node-name=edge", "--eviction-hard=memory.available<50Mi",
			"--image-gc-high-threshold=100")...)
	if out := m.run(t, install...); !regexp.MustCompile(`(?s)^joined the cluster\ninstalled /opt/monopod/monopod\n` +
		`wrote ` + unit + `\nready after .*starts with the machine \(systemd\)\n$`).MatchString(out) {
		t.Errorf("install: %s", out)
	}
	if out := m.run(t, "cat", unit); !strings.Contains(out, "ExecStart=/opt/monopod/monopod join --data-dir="+dir+
		" --node-name=edge --eviction-hard=memory.available<50Mi --image-gc-high-threshold=100\n") {
		t.Errorf("the unit: %s", out)
	}
	if out := m.run(t, install...); !strings.Contains(out, "monopod is already installed and runs; nothing to do\n") {
		t.Errorf("install again: %s", out)
	}
	m.create(t, "steady", "", 1)
	before := m.await(t, "steady", isReady)
	if before.Spec.NodeName != "edge" {
		t.Errorf("the pod runs on %q", before.Spec.NodeName)
	}
	if out := m.run(t, "/opt/monopod/monopod", "upgrade", "/var/lib/monopod/newer"); !strings.Contains(out,
		"to go back: monopod rollback") {
		t.Errorf("upgrade: %s", out)
	}
	if out := m.run(t, monopod, "status", "--data-dir="+dir); !strings.Contains(out, "a server answers") {
		t.Errorf("status: %s", out)
	}
	if now := instances(m.await(t, "steady", isReady)); now != instances(before) {
		t.Errorf("after the upgrade: %s, was %s", now, instances(before))
	}
	out, err := m.inside(monopod, "install", "--program=/opt/monopod/monopod").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "runs monopod join") {
		t.Errorf("install of a server there: %v: %s", err, out)
	}
	m.run(t, "/opt/monopod/monopod", "uninstall", "--purge")
	if code, text := m.Get("/api/v1/nodes/edge"); code != 404 {
		t.Errorf("the Node after it has left: %d %s", code, text)
	}
	if out := m.run(t, "sh", "-c", "ls "+dir+" /opt/monopod 2>&1; pgrep containerd-shim || echo none"); strings.Contains(out,
		"node") || !strings.HasSuffix(out, "none\n") {
		t.Errorf("what is left: %q", out)
	}
	m.run(t, "systemctl", "poweroff")
	m.awaitOff(t)
}
