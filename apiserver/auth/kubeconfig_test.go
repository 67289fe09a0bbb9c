package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/apiserver/auth"
)

// A start writes only the server's own fields of the kubeconfig, and only if their values have changed.
func TestKubeconfigOfUserIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "admin.kubeconfig")
	write := func(server, token string) string {
		t.Helper()
		data, err := auth.Kubeconfig(server, []byte("ca"), auth.Pair{Cert: []byte("cert"), Key: []byte("key")}, token)
		if err != nil {
			t.Fatal(err)
		}
		if err := auth.WriteKubeconfig(path, data); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(now)
	}
	first := write("https://a:1", "t1")

	// As kubectl config set-context --current --namespace=web, rename-context, set-cluster other and a comment.
	users := "# mine\n" + strings.NewReplacer(
		"    cluster: monopod\n    user: admin\n  name: monopod\n",
		"    cluster: monopod\n    namespace: web\n    user: admin\n  name: box\n- context: {cluster: other, user: me}\n"+
			"  name: other\n",
		"clusters:\n", "clusters:\n- cluster: {server: https://other}\n  name: other\n", "current-context: monopod",
		"current-context: box").Replace(first)
	if err := os.WriteFile(path, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Unix(1000, 0)
	if err := os.Chtimes(path, before, before); err != nil {
		t.Fatal(err)
	}
	if now := write("https://a:1", "t1"); now != users {
		t.Errorf("nothing has changed, but the file: %s", now)
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(before) {
		t.Errorf("the file was written again: %v, %v", info, err)
	}

	now := write("https://a:2", "t2")
	for _, want := range []string{"server: https://a:2", "token: t2", "namespace: web", "name: box",
		"current-context: box", "server: https://other", "user: me"} {
		if !strings.Contains(now, want) {
			t.Errorf("no %s in %s", want, now)
		}
	}
	for _, not := range []string{"https://a:1", "t1", "current-context: monopod"} {
		if strings.Contains(now, not) {
			t.Errorf("%s in %s", not, now)
		}
	}
	if strings.Count(now, "cluster: monopod") != 1 {
		t.Errorf("a second context for the same cluster: %s", now)
	}

	for _, broken := range []string{"", "{", "kind: Config\nclusters: 3\nusers: [1]\ncontexts: {}\n", "a: b"} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if now := write("https://a:1", "t1"); !strings.Contains(now, "https://a:1") || !strings.Contains(now, "token: t1") ||
			!strings.Contains(now, "current-context: monopod") {
			t.Errorf("%q becomes %s", broken, now)
		}
	}
}
