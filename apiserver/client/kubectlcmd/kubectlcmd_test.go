package kubectlcmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFolder(t *testing.T) {
	for args, want := range map[string]string{
		"get pods":                        "/default: get pods",
		"--data-dir /d get pods":          "/d: get pods",
		"--data-dir=/d get --data-dir=/e": "/d: get --data-dir=/e",
		"get --data-dir=/d":               "/default: get --data-dir=/d", // kubectl refuses it
		"--data-dir":                      "/default: --data-dir",
		"":                                "/default: ",
	} {
		dir, rest := folder("/default", strings.Fields(args))
		if got := dir + ": " + strings.Join(rest, " "); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	t.Setenv(variable, "/env")
	if dir, _ := folder("/default", nil); dir != "/env" {
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

// No command of monopod has the name of a shortcut by accident.
func TestShortcuts(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "monopod"}
	AddTo(root, "/d")
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	slices.Sort(names)
	if len(names) != len(slices.Compact(names)) || !slices.Contains(names, "kubectl") || !slices.Contains(names, "rollout") {
		t.Errorf("%v", names)
	}
}
