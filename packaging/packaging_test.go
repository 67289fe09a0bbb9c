// Package packaging_test runs what people install Monopod with: the script, the Ansible role, and the examples.
package packaging_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jedisct1/go-minisign"
)

// TestMain lets the test binary be the program of a release, which records its arguments.
func TestMain(m *testing.M) {
	if record := os.Getenv("FAKE_RECORD"); record != "" {
		if err := pretend(record, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func pretend(record string, args []string) error {
	if args[0] == "version" {
		return nil
	}
	f, err := os.OpenFile(record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if args[0] == "upgrade" {
		args = []string{"upgrade", filepath.Base(args[1])}
	}
	_, err = fmt.Fprintln(f, strings.Join(args, " "))
	return err
}

var arch = map[string]string{"arm": "armv7"}

func program() string {
	if name, ok := arch[runtime.GOARCH]; ok {
		return "monopod-linux-" + name
	}
	return "monopod-linux-" + runtime.GOARCH
}

// site is a release, and a server for it.
type site struct {
	files   map[string][]byte
	key     string
	private minisign.PrivateKey
	served  atomic.Int32 // requests
	url     string
}

func newSite(t *testing.T) *site {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{files: map[string][]byte{program(): content}}
	s.private = minisign.PrivateKey{SignatureAlgorithm: [2]byte{'E', 'd'}, KeyId: [8]byte{1}}
	copy(s.private.SecretKey[:], key)
	s.key = base64.StdEncoding.EncodeToString(append([]byte{'E', 'd', 1, 0, 0, 0, 0, 0, 0, 0}, pub...))
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	s.sign(t)
	return s
}

// sign makes SHA256SUMS and its signature.
func (s *site) sign(t *testing.T) {
	t.Helper()
	s.files["SHA256SUMS"] = fmt.Appendf(nil, "%064x  monopod-linux-other\n%x  %s\n", 0, sha256.Sum256(s.files[program()]),
		program())
	signature, err := s.private.Sign(s.files["SHA256SUMS"], minisign.SignOptions{Hashed: true})
	if err != nil {
		t.Fatal(err)
	}
	s.files["SHA256SUMS.minisig"] = signature.Encode()
}

// ServeHTTP serves the release at / and at /v1. A file whose name begins with cut- is one whose second half is missing.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	name := filepath.Base(r.URL.Path)
	content, ok := s.files[name]
	if !ok || filepath.Dir(r.URL.Path) != "/" && filepath.Dir(r.URL.Path) != "/v1" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if _, cut := s.files["cut-"+name]; cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		content = content[:len(content)/2]
	}
	_, _ = w.Write(content) // after an error the client has its own
}

// script returns install.sh as make dist writes it.
func (s *site) script(t *testing.T, key string) string {
	t.Helper()
	text, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	out := strings.Replace(string(text), "\nkey=\n", "\nkey='"+key+"'\n", 1)
	out = strings.Replace(out, "\nsite=\n", "\nsite='"+s.url+"/'\n", 1)
	if strings.Count(out, s.url) != 1 {
		t.Fatal("install.sh has no line site=")
	}
	return out
}

// tools are the programs that the script finds, with the given ones; name=TEXT is a script.
func tools(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append([]string{"chmod", "cut", "grep", "head", "id", "ls", "mktemp", "od", "rm", "sed", "sh",
		"sha256sum", "tail", "tr", "uname"}, more...) {
		name, text, isScript := strings.Cut(name, "=")
		path := filepath.Join(dir, name)
		_ = os.Remove(path) // there may be none
		if isScript {
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		target, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("skipped: %s is not installed", name)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run pipes a script to sh, and returns the calls of the program, and the output.
func run(t *testing.T, script, path string, env []string, args ...string) (calls, out string, err error) {
	t.Helper()
	dir := t.TempDir()
	record, tmp := filepath.Join(dir, "record"), filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-s", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append([]string{"PATH=" + path, "TMPDIR=" + tmp, "FAKE_RECORD=" + record}, env...)
	text, err := cmd.CombinedOutput()
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("%s is still there", left[0].Name())
	}
	got, _ := os.ReadFile(record) // there is none if the program was not called
	return strings.ReplaceAll(string(got), "\n", ";"), string(text), err
}

const (
	asRoot  = "id=echo 0"
	noUnit  = "systemctl=exit 1"
	hasUnit = "systemctl=echo '# /etc/systemd/system/monopod.service'"
)

func TestInstallScript(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tools []string
		args  []string
		env   []string
		want  string // the calls of the program
		says  string
	}{
		"curl and minisign": {[]string{"curl", "minisign", noUnit}, nil, nil, "install;", ""},
		"wget and openssl":  {[]string{"wget", "openssl", noUnit}, []string{"--", "--max-pods=5"}, nil, "install -- --max-pods=5;", ""},
		"neither":           {[]string{"curl", noUnit}, nil, nil, "install;", "its signature is not"},
		"no systemd":        {[]string{"curl", "openssl"}, []string{"--force"}, nil, "install --force;", ""},
		"a version":         {[]string{"curl", "openssl", noUnit}, nil, []string{"MONOPOD_VERSION=v1"}, "install;", ""},
		"upgrade":           {[]string{"curl", "openssl", hasUnit}, nil, nil, "upgrade " + program() + ";", ""},
		"upgrade and flags": {[]string{"curl", "openssl", hasUnit}, []string{"--", "--max-pods=5"}, nil,
			"upgrade " + program() + ";install -- --max-pods=5;", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			calls, out, err := run(t, s.script(t, s.key), tools(t, append(c.tools, asRoot)...), c.env, c.args...)
			if err != nil || calls != c.want || !strings.Contains(out, c.says) || c.says == "" && out != "" {
				t.Errorf("%v, calls %q, want %q: %s", err, calls, c.want, out)
			}
		})
	}
}

// What is wrong with a release or a machine is said in one line, and the program is not executed.
func TestInstallScriptRefuses(t *testing.T) {
	t.Parallel()
	wrongKey := newSite(t).key
	for name, c := range map[string]struct {
		change func(t *testing.T, s *site)
		tool   string
		key    string // empty: the site's
		want   string
	}{
		"sum":            {func(_ *testing.T, s *site) { s.files[program()] = append(s.files[program()], 0) }, "", "", "is damaged or not complete"},
		"cut off":        {func(_ *testing.T, s *site) { s.files["cut-"+program()] = nil }, "", "", "cannot download "},
		"cut-off sums":   {func(_ *testing.T, s *site) { s.files["cut-SHA256SUMS"] = nil }, "", "", "cannot download "},
		"half a program": {func(_ *testing.T, s *site) { s.files[program()] = s.files[program()][:5000] }, "", "", "is damaged or not complete"},
		"architecture":   {otherProcessor, "", "", "for another processor"},
		"processor":      {nil, "uname=echo mips", "", "there is no Monopod for the processor mips"},
		"no program":     {nil, "uname=echo " + another(), "", "does not list monopod-linux-"},
		"no sums":        {func(_ *testing.T, s *site) { delete(s.files, "SHA256SUMS") }, "", "", "cannot download "},
		"no signature":   {func(_ *testing.T, s *site) { delete(s.files, "SHA256SUMS.minisig") }, "", "", "cannot download "},
		"minisign":       {nil, "minisign", wrongKey, "SHA256SUMS is wrong"},
		"openssl":        {nil, "openssl", wrongKey, "SHA256SUMS is wrong"},
		"changed sums":   {func(_ *testing.T, s *site) { s.files["SHA256SUMS"][3] = 'a' }, "openssl", "", "SHA256SUMS is wrong"},
		"user":           {nil, "id=echo 1000", "", "needs root"},
		"package":        {nil, "systemctl=echo '# /lib/systemd/system/monopod.service'", "", "use apt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if c.change != nil {
				c.change(t, s)
			}
			key, more := s.key, []string{"curl", asRoot, noUnit}
			if c.key != "" {
				key = c.key
			}
			if c.tool != "" {
				more = append(more, c.tool)
			}
			calls, out, err := run(t, s.script(t, key), tools(t, more...), nil)
			if err == nil || calls != "" || !strings.Contains(out, "install.sh: ") || !strings.Contains(out, c.want) {
				t.Errorf("%v, calls %q, want %q: %s", err, calls, c.want, out)
			}
		})
	}
}

// otherProcessor makes the program one for another processor.
func otherProcessor(t *testing.T, s *site) {
	s.files[program()] = bytes.Clone(s.files[program()])
	s.files[program()][18] ^= 1
	s.sign(t)
}

func another() string {
	if runtime.GOARCH == "riscv64" {
		return "x86_64"
	}
	return "riscv64"
}

// A script whose end is missing does nothing.
func TestInstallScriptCutOff(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	script, path := s.script(t, s.key), tools(t, "curl", asRoot, noUnit)
	for n := 0; n < len(script)-1; n += 101 {
		if n > len(script)-200 {
			n -= 98 // main is called at the end
		}
		if calls, out, _ := run(t, script[:n], path, nil); calls != "" || s.served.Load() > 0 {
			t.Fatalf("%d of %d bytes: %s %s", n, len(script), calls, out)
		}
	}
	if calls, out, err := run(t, script, path, nil); calls != "install;" {
		t.Errorf("the whole script: %v %s", err, out)
	}
}

func TestShellCheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("skipped: shellcheck is not installed")
	}
	if out, err := exec.Command("shellcheck", "install.sh", "../testdata/deb.sh").CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}
