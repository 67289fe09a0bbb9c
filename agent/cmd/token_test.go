package cmd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/apiserver/auth"
	"monopod/testdata/harness"
)

// joinServer is a server whose status is about. It records what is created.
type joinServer struct {
	mu      sync.Mutex
	created map[string][]byte // guarded by mu; by name
}

func serveJoin(t *testing.T, about string) (dir string, s *joinServer) {
	t.Helper()
	authority, err := auth.OpenAuthority(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := json.Marshal(corev1.ConfigMap{Data: map[string]string{"ca.crt": string(authority.PEM)}})
	if err != nil {
		t.Fatal(err)
	}
	s = &joinServer{created: map[string][]byte{}}
	return harness.DataFolder(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/monopod/status":
			_, _ = io.WriteString(w, about)
		case r.URL.Path == "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt":
			_, _ = w.Write(ca)
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			var object struct {
				Metadata struct{ Name string }
			}
			if json.Unmarshal(body, &object) != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			s.mu.Lock()
			s.created[object.Metadata.Name] = body
			s.mu.Unlock()
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`)
		}
	}), s
}

// runToken runs monopod token with the arguments.
func runToken(dir string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := tokenCommand(dir)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(append(args, "--data-dir", dir))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

const reachableServer = `{"address":"https://127.0.0.1:6443","external":"https://192.0.2.7:6443"}`

func TestTokenCreate(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile(
		`^monopod join (\S+) --token ([a-z0-9]{6})\.([a-z0-9]{16}) --ca-hash sha256:[0-9a-f]{64}\n$`)
	for name, c := range map[string]struct {
		about string
		args  []string
		url   string // of the command that is printed
		fails string
	}{
		"the address of the server": {reachableServer, nil, "https://192.0.2.7:6443", ""},
		"another address": {`{}`, []string{"--server", "https://box.example.com:8443/"}, "https://box.example.com:8443",
			""},
		"on loopback": {`{"address":"https://127.0.0.1:6443"}`, nil, "",
			"start serve with --listen=0.0.0.0:6443 or an address of the machine"},
		"plain HTTP": {reachableServer, []string{"--server", "http://box:6443"}, "",
			"--server must be https://HOST:PORT"},
		"with a path":    {reachableServer, []string{"--server", "https://box/x"}, "", "--server must be https://HOST:PORT"},
		"without a host": {reachableServer, []string{"--server", "https://:6443"}, "", "--server must be https://HOST:PORT"},
		"negative TTL":   {reachableServer, []string{"--ttl=-1h"}, "", "--ttl must not be negative"},
		"negative uses":  {reachableServer, []string{"--uses=-1"}, "", "--uses must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, server := serveJoin(t, c.about)
			out, errs, err := runToken(dir, append([]string{"create"}, c.args...)...)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || out != "" || len(server.created) > 0 {
					t.Errorf("%q, %v; created %d objects", out, err, len(server.created))
				}
				return
			}
			line := command.FindStringSubmatch(out)
			if err != nil || errs != "" || line == nil || line[1] != c.url {
				t.Fatalf("%q, %q, %v", out, errs, err)
			}
			var secret corev1.Secret
			if err := json.Unmarshal(server.created["bootstrap-token-"+line[2]], &secret); err != nil {
				t.Fatal(err)
			}
			d := secret.StringData
			if d["token-secret"] != line[3] || secret.Type != "bootstrap.kubernetes.io/token" ||
				d["auth-extra-groups"] != "system:bootstrappers:kubeadm:default-node-token" || d["uses"] != "" ||
				d["expiration"] == "" {
				t.Errorf("created %v", secret)
			}
			for _, name := range []string{"kubeadm:kubelet-bootstrap", "kubeadm:node-autoapprove-bootstrap",
				"kubeadm:node-autoapprove-certificate-rotation", "monopod:node"} {
				if server.created[name] == nil {
					t.Errorf("%s was not created", name)
				}
			}
		})
	}
}

// A kubeconfig for a kubelet has what it needs to request its certificate, and only its owner can read it.
func TestTokenCreateKubeconfig(t *testing.T) {
	t.Parallel()
	dir, server := serveJoin(t, reachableServer)
	file := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
	out, _, err := runToken(dir, "create", "--bootstrap-kubeconfig", file, "--ttl=0", "--uses=2", "--description=gate")
	if err != nil || !strings.HasPrefix(out, "monopod join ") {
		t.Fatalf("%q, %v", out, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil || config.Host != "https://192.0.2.7:6443" || !strings.Contains(out, config.BearerToken) ||
		len(config.CAData) == 0 {
		t.Errorf("%v, %v", config, err)
	}
	id, _, _ := strings.Cut(config.BearerToken, ".")
	var secret corev1.Secret
	if err := json.Unmarshal(server.created["bootstrap-token-"+id], &secret); err != nil {
		t.Fatal(err)
	}
	if d := secret.StringData; d["uses"] != "2" || d["description"] != "gate" || d["expiration"] != "" {
		t.Errorf("created %v", d)
	}
	out, _, err = runToken(dir, "create", "--bootstrap-kubeconfig=-")
	if err != nil || !strings.HasPrefix(out, "apiVersion: v1\n") || strings.Contains(out, "monopod join") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestPrintTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var all []corev1.Secret
	for _, data := range []map[string]string{
		{"token-id": "always", "description": "the gate"},
		{"token-id": "longer", "expiration": "2026-05-02T00:00:00Z", "uses": "2"},
		{"token-id": "sooner", "expiration": "2026-05-01T00:30:00Z", "uses": "0"},
		{"token-id": "passed", "expiration": "2026-04-30T00:00:00Z"},
	} {
		s := corev1.Secret{Data: map[string][]byte{"token-secret": []byte("0123456789abcdef")}}
		for key, value := range data {
			s.Data[key] = []byte(value)
		}
		all = append(all, s)
	}
	slices.Reverse(all)
	var out bytes.Buffer
	if err := printTokens(&out, all, now); err != nil {
		t.Fatal(err)
	}
	const want = "ID      TTL      USES       DESCRIPTION\n" +
		"passed  expired  unlimited  \nsooner  30m      0          \nlonger  24h      2          \n" +
		"always  never    unlimited  the gate\n"
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}

// An error does not repeat an argument that may be a secret.
func TestTokenDelete(t *testing.T) {
	t.Parallel()
	dir, _ := serveJoin(t, reachableServer)
	for arg, says := range map[string]string{
		"abcdef":                  "bootstrap token abcdef not found",
		"abcdef.0123456789abcdef": "bootstrap token abcdef not found",
		"0123456789abcdef":        "a token is given by its ID",
	} {
		if _, _, err := runToken(dir, "delete", arg); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
