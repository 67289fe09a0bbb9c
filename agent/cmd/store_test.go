package cmd

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/etcd"
	"monopod/store/etcd/etcdtest"
	"monopod/store/state"
	"monopod/store/storetest"
)

// copyState runs `store copy` and returns what it prints, or its error.
func copyState(t *testing.T, args ...string) string {
	t.Helper()
	cmd := storeCommand(func() state.Config {
		return state.Config{Config: storetest.Config(), Resources: []string{"configmaps", "leases"}}
	})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage = true
	cmd.SetArgs(append([]string{"copy"}, args...))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return "error: " + err.Error()
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

func key(name string) store.Key {
	return store.Key{Resource: "configmaps", Namespace: "ns", Name: name}
}

// fill creates a state file with two objects, and returns its path and the JSON of one object without its
// resourceVersion.
func fill(t *testing.T) (path, plain string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	s, err := bolt.Open(path, storetest.Config())
	if err != nil {
		t.Fatal(err)
	}
	storetest.Put(t, s, key("a"), "1")
	e := storetest.Put(t, s, key("b"), "2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path, withoutVersion(e)
}

func withoutVersion(e *store.Entry) string {
	return strings.Replace(string(e.JSON()), `"resourceVersion":"`+e.Object.GetResourceVersion()+`",`, "", 1)
}

// The test copies a state from a file to etcd, and from etcd to another file.
func TestMigrationRoundTrip(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	path, want := fill(t)
	if got := copyState(t, "--from", path, "--to", url); got != "configmaps 2 copied 2" {
		t.Fatalf("to etcd: %s", got)
	}
	back := filepath.Join(t.TempDir(), "new", "state.db")
	if got := copyState(t, "--from", url, "--to", back); got != "configmaps 2 copied 2" {
		t.Fatalf("to the file: %s", got)
	}
	s, err := bolt.Open(back, storetest.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := s.Get(t.Context(), key("b"))
	if err != nil || withoutVersion(e) != want {
		t.Errorf("got %s, %v, want %s", e.JSON(), err, want)
	}
}

func TestTargetIsNotEmpty(t *testing.T) {
	t.Parallel()
	url := etcdtest.Start(t)
	path, _ := fill(t)
	etcdtest.Put(t, url, "/registry/deployments/ns/web", "{}")
	if got := copyState(t, "--from", path, "--to", url); !strings.Contains(got, "is not empty: it contains deployments") {
		t.Errorf("got %s", got)
	}
	if got := copyState(t, "--from", path, "--to", url, "--force"); got != "configmaps 2 copied 2" {
		t.Errorf("with --force: %s", got)
	}
	if got := copyState(t, "--from", url, "--to", path); !strings.Contains(got, "is not empty: it contains configmaps") {
		t.Errorf("got %s", got)
	}
	if got := copyState(t, "--from", url, "--to", path,
		"--force"); got != "configmaps 2 copied 2 not copied, not served by monopod: deployments 1" {
		t.Errorf("with --force: %s", got)
	}
}

func TestNoSource(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	if got := copyState(t, "--from", path, "--to", path+"2"); !strings.Contains(got, "no such file") {
		t.Errorf("got %s", got)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	files := etcd.TLS{CAFile: "ca.crt"}
	for _, c := range []struct {
		url   string
		files etcd.TLS
		want  string
	}{
		{"etcd://a:2379", etcd.TLS{}, "http://a:2379"},
		{"etcd://a:2379,b:2379", files, "https://a:2379 https://b:2379"},
		{"https://a:2379,https://b:2379/", etcd.TLS{}, "https://a:2379 https://b:2379"},
		{"http://[::1]:2379", files, "http://[::1]:2379"},
		{"unix:///run/etcd.sock", etcd.TLS{}, "unix:///run/etcd.sock"},
		{"etcd://", etcd.TLS{}, "error"},
		{"etcd://a:1,", etcd.TLS{}, "error"},
		{"etcd://a:1/registry", etcd.TLS{}, "error"},
		{"redis://a:1", etcd.TLS{}, "error"},
	} {
		got, err := etcd.Endpoints(c.url, c.files)
		if s := strings.Join(got, " "); (err == nil && s != c.want) || (err != nil) != (c.want == "error") {
			t.Errorf("%s: %q, %v, want %q", c.url, s, err, c.want)
		}
	}
}
