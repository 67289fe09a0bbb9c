package machine_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// TestDebianPackage installs, upgrades, removes and purges the package of `make deb` with a real systemd.
func TestDebianPackage(t *testing.T) {
	needsSystemd(t)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("skipped: dpkg-deb is not installed")
	}
	programs := harness.Build(t)
	t.Parallel()
	m := newMachine(t, programs)
	inside := map[string]string{}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		name := "monopod_" + version + ".deb"
		inside[version] = "/var/lib/monopod/" + name
		arch, err := exec.Command("dpkg", "--print-architecture").Output()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(programs.Source("testdata/deb.sh"), programs.Monopod(harness.Plain), version,
			strings.TrimSpace(string(arch)), filepath.Join(m.Dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	m.boot(t)
	m.run(t, "rm", "/etc/systemd/system/monopod.service") // the package contains its own unit
	m.run(t, "sh", "-c", "mkdir -p /etc/default && echo MONOPOD_NODE_NAME=node1 >/etc/default/monopod")

	m.run(t, "dpkg", "-i", "--force-confold", inside["1.0.0"])
	if code, text := m.Get("/readyz"); code != http.StatusOK {
		t.Errorf("dpkg returned before monopod was ready: %d %s", code, text)
	}
	if out := m.run(t, "systemctl", "is-enabled", "monopod"); out != "enabled\n" {
		t.Errorf("%s", out)
	}
	m.until(t, "the node is ready", m.nodeReady)
	m.run(t, "/usr/bin/monopod", "status")
	for file, want := range map[string]string{
		"/usr/share/man/man1/monopod.1.gz":                  "monopod-install(1)",
		"/usr/share/man/man1/monopod-upgrade.1.gz":          "FILE|URL",
		"/usr/share/bash-completion/completions/monopod":    "complete -o default -F __start_monopod monopod",
		"/usr/share/zsh/vendor-completions/_monopod":        "#compdef monopod",
		"/usr/share/fish/vendor_completions.d/monopod.fish": "complete -c monopod",
	} {
		if out := m.run(t, "zcat", "-f", file); !strings.Contains(out, want) {
			t.Errorf("%s has no %q", file, want)
		}
	}
	m.create(t, "steady", "", time.Second)
	before := m.await(t, "steady", isReady)

	m.run(t, "dpkg", "-i", inside["1.1.0"])
	now := m.await(t, "steady", isReady)
	if was, is := before.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID ||
		is.RestartCount != 0 {
		t.Errorf("the upgrade restarted the pod: %s", describe(now))
	}
	if out := m.run(t, "dpkg-query", "-W", "-f", "${Version} ${Status}", "monopod"); out != "1.1.0 install ok installed" {
		t.Errorf("%s", out)
	}
	if out := m.run(t, "/usr/bin/monopod", "snapshot", "list"); !strings.Contains(out, ".db") {
		t.Errorf("no snapshot from before the upgrade: %s", out)
	}
	if out := m.run(t, "cat", "/etc/default/monopod"); out != "MONOPOD_NODE_NAME=node1\n" {
		t.Errorf("the settings after the upgrade are %s", out)
	}

	m.run(t, "dpkg", "--remove", "monopod")
	if out := m.run(t, "sh", "-c",
		"ls /usr/bin/monopod /lib/systemd/system/monopod.service 2>&1; pgrep containerd-shim || echo none"); strings.Count(
		out, "No such file") != 2 || !strings.Contains(out, "none") {
		t.Errorf("after the removal: %s", out)
	}
	for path, want := range map[string]bool{"state.db": true, "admin.kubeconfig": true} {
		if _, err := os.Stat(filepath.Join(m.Dir, path)); (err == nil) != want {
			t.Errorf("%s after the removal: %v", path, err)
		}
	}
	m.run(t, "dpkg", "--purge", "monopod")
	if left, err := os.ReadDir(m.Dir); err != nil || len(left) > 0 {
		t.Errorf("after the purge: %v, %v", left, err)
	}
	m.run(t, "systemctl", "poweroff")
	m.awaitOff(t)
}
