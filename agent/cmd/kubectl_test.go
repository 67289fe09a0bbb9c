package cmd

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"monopod/apiserver/kit/local"
)

func TestFolder(t *testing.T) {
	for args, want := range map[string]string{
		"get pods":                        "/default: get pods",
		"--data-dir /d get pods":          "/d: get pods",
		"--data-dir=/d get --data-dir=/e": "/d: get --data-dir=/e",
		"get pods --data-dir=/d":          "/d: get pods",
		"get --data-dir /d pods":          "/d: get pods",
		"exec web -- ls --data-dir=/d":    "/default: exec web -- ls --data-dir=/d",
		"--data-dir":                      "/default: --data-dir",
		"":                                "/default: ",
	} {
		dir, _, rest := dataDirOf("/default", strings.Fields(args))
		if got := dir + ": " + strings.Join(rest, " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	t.Setenv(dataDirVariable, "/env")
	if dir, given, _ := dataDirOf("/default", nil); dir != "/env" || given {
		t.Errorf("%s", dir)
	}
}

func TestEnvironmentHasAKubeconfig(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{
		"A=b":                "A=b KUBECONFIG=/d/admin.kubeconfig",
		"KUBECONFIG=/x A=b":  "KUBECONFIG=/x A=b",
		"KUBECONFIG= A=b":    "KUBECONFIG= A=b KUBECONFIG=/d/admin.kubeconfig", // the last one counts
		"XKUBECONFIG=/x A=b": "XKUBECONFIG=/x A=b KUBECONFIG=/d/admin.kubeconfig",
	} {
		if got := strings.Join(environment(strings.Fields(env), "/d"), " "); got != want {
			t.Errorf("%s: %s, want %s", env, got, want)
		}
	}
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stopped := "no monopod runs on " + dir +
		": start it with monopod serve, or name another one with --data-dir or KUBECONFIG"
	check := func(want string) {
		t.Helper()
		got := ""
		if err := checkServer(t.Context(), dir); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check(stopped) // the data folder is empty
	if err := os.WriteFile(kubeconfig(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check(stopped) // a kubeconfig exists, but no socket
	l, err := net.Listen("unix", local.Socket(dir))
	if err != nil {
		t.Fatal(err)
	}
	check("")
	l.Close()
	check(stopped)
	if os.Getuid() != 0 {
		if err := os.Chmod(kubeconfig(dir), 0); err != nil {
			t.Fatal(err)
		}
		check("cannot read " + kubeconfig(dir) + ": permission denied; run the command as the owner of " + dir +
			", or set KUBECONFIG")
	}
}

func TestNeedsTheServer(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"get pods": true, "logs web": true, "": false, "get --help": false, "version": false,
		"create configmap x --dry-run=client": false,
		"get pods --kubeconfig=/x":            false, "get pods -s https://x": false, "get pods --server https://x": false,
	} {
		args := strings.Fields(line)
		if got := needsServer(args) && !namesServer(nil, args); got != want {
			t.Errorf("kubectl %s needs the server: %t, want %t", line, got, want)
		}
	}
	for env, want := range map[string]bool{"KUBECONFIG=/x": true, "KUBECONFIG=": false,
		"KUBERNETES_SERVICE_HOST=10.0.0.1": true, "A=KUBECONFIG=x": false} {
		if got := namesServer([]string{env}, nil); got != want {
			t.Errorf("%s names a server: %t, want %t", env, got, want)
		}
	}
}

// No command of monopod has the same name as a shortcut to kubectl.
func TestShortcuts(t *testing.T) {
	t.Parallel()
	var names []string
	for _, cmd := range All(Deps{DataDir: "/d"}) {
		names = append(names, cmd.Name())
	}
	slices.Sort(names)
	if len(names) != len(slices.Compact(names)) || !slices.Contains(names, "kubectl") ||
		!slices.Contains(names, "rollout") {
		t.Errorf("commands: %v", names)
	}
}
