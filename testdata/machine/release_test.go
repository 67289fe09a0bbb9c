package machine_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jedisct1/go-minisign"

	"monopod/testdata/harness"
)

// TestRelease installs, upgrades and rolls back with what make dist makes, and nothing else, with a real systemd.
func TestRelease(t *testing.T) {
	needsSystemd(t)
	programs := harness.Build(t)
	t.Parallel()
	m := newMachine(t, programs)
	key, script := release(t, m, programs)
	m.boot(t)
	m.run(t, "rm", "/etc/systemd/system/monopod.service") // the script shall install it
	const site, program = "file:///var/lib/monopod/site/", "/opt/monopod/monopod"
	m.run(t, "env", "MONOPOD_URL="+site, "MONOPOD_VERSION=v1", "sh", "-c", script, "sh", "--program="+program, "--",
		"--node-name=node1", "--eviction-hard=memory.available<50Mi")
	if code, text := m.Get("/readyz"); code != http.StatusOK {
		t.Errorf("the script ended before monopod was ready: %d %s", code, text)
	}
	running := func() string { return m.run(t, "systemctl", "show", "-P", "MainPID", "monopod") }
	before := running()
	for name, c := range map[string]struct{ flag, version, want string }{
		"no key":       {"--timeout=1m", "v2", "contains no key"},
		"no signature": {"--key=" + key, "unsigned", "not signed"},
		"damaged":      {"--key=" + key, "damaged", "damaged or not complete"},
	} {
		out, err := m.inside(program, "upgrade", c.flag, site+c.version+"/").CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if now := running(); now != before {
		t.Errorf("a refused upgrade restarted monopod: process %s, not %s", now, before)
	}
	if out := m.run(t, program, "upgrade", "--key="+key, site+"v2/"); !strings.Contains(out, "signed by the key ") ||
		!strings.Contains(out, "to go back: monopod rollback") {
		t.Errorf("upgrade: %s", out)
	}
	m.run(t, program, "rollback")
	m.until(t, "the node is ready", m.nodeReady)
	m.run(t, "systemctl", "poweroff")
	m.awaitOff(t)
}

// release writes releases to the folder site of the data folder, and returns the public key, and install.sh.
func release(t *testing.T, m *machine, programs harness.Programs) (key, script string) {
	t.Helper()
	pub, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key = base64.StdEncoding.EncodeToString(append([]byte{'E', 'd', 1, 0, 0, 0, 0, 0, 0, 0}, pub...))
	signer := minisign.PrivateKey{SignatureAlgorithm: [2]byte{'E', 'd'}, KeyId: [8]byte{1}}
	copy(signer.SecretKey[:], private)
	content, err := os.ReadFile(programs.Monopod(harness.Plain))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(programs.Source("packaging/install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	name := "monopod-linux-" + runtime.GOARCH // of the machines that run systemd in tests
	newer := append(slices.Clone(content), '\n')
	for version, program := range map[string][]byte{"v1": content, "v2": newer, "unsigned": newer, "damaged": newer[:1<<20]} {
		sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(program), name)
		if version == "damaged" {
			sums = fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(newer), name)
		}
		files := map[string][]byte{name: program, "SHA256SUMS": sums}
		if version != "unsigned" {
			signature, err := signer.Sign(sums, minisign.SignOptions{Hashed: true})
			if err != nil {
				t.Fatal(err)
			}
			files["SHA256SUMS.minisig"] = signature.Encode()
		} else {
			delete(files, name) // it is not read
		}
		for name, content := range files {
			path := filepath.Join(m.Dir, "site", version, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return key, strings.Replace(string(text), "\nkey=\n", "\nkey="+key+"\n", 1)
}
