// Package kubectlcmd is `monopod kubectl` and its shortcuts, as `monopod get`: Kubernetes' own kubectl, which is part of the
// program with the build tag kubectl, and the installed one otherwise.
package kubectlcmd

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// shortcuts are the commands of kubectl that are commands of monopod, too. logs is one of monopod's own.
var shortcuts = []string{"get", "describe", "apply", "delete", "exec", "events", "wait", "top", "explain", "rollout"}

// group is that of the shortcuts in the help.
const group = "kubectl"

// AddTo adds the commands; dataDir is the default of --data-dir.
func AddTo(root *cobra.Command, dataDir string) {
	root.AddGroup(&cobra.Group{ID: group, Title: "kubectl's commands:"})
	root.AddCommand(command(dataDir, "kubectl", "Run kubectl with the kubeconfig of the data folder", nil))
	for _, verb := range shortcuts {
		root.AddCommand(command(dataDir, verb, "kubectl "+verb, []string{verb}))
	}
}

func command(dataDir, name, short string, first []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:                name + " [ARGS...]",
		Short:              short,
		GroupID:            group,
		DisableFlagParsing: true, // they are kubectl's; --data-dir comes first, or from the environment
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, args := folder(dataDir, args)
			return run(dir, append(slices.Clone(first), args...))
		},
	}
	return cmd
}

// variable is --data-dir in the environment.
const variable = "MONOPOD_DATA_DIR"

// folder returns the data folder, and the arguments without a --data-dir before all others.
func folder(dir string, args []string) (string, []string) {
	dir = cmp.Or(os.Getenv(variable), dir)
	if len(args) > 0 {
		if value, ok := strings.CutPrefix(args[0], "--data-dir="); ok {
			return value, args[1:]
		}
	}
	if len(args) > 1 && args[0] == "--data-dir" {
		return args[1], args[2:]
	}
	return dir, args
}

// run becomes kubectl.
func run(dir string, args []string) error {
	path, err := program()
	if err != nil {
		return err
	}
	return unix.Exec(path, append([]string{"kubectl"}, args...), environment(os.Environ(), dir))
}

// environment returns env with the kubeconfig of the data folder, unless it names one.
func environment(env []string, dir string) []string {
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") && v != "KUBECONFIG=" }) {
		return env
	}
	return append(slices.Clone(env), "KUBECONFIG="+filepath.Join(dir, "admin.kubeconfig"))
}
