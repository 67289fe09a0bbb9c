package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/local"
)

// shortcuts are the commands of kubectl that are commands of monopod, too. logs is one of monopod's own.
var shortcuts = []string{"get", "describe", "apply", "delete", "exec", "events", "wait", "top", "explain", "rollout"}

// kubectlCommands are `monopod kubectl` and its shortcuts; dataDir is the default of --data-dir.
func kubectlCommands(dataDir string) []*cobra.Command {
	all := []*cobra.Command{kubectlCommand(dataDir, "kubectl", "Run kubectl with the kubeconfig of the data folder", nil)}
	for _, verb := range shortcuts {
		all = append(all, kubectlCommand(dataDir, verb, "kubectl "+verb, []string{verb}))
	}
	return all
}

func kubectlCommand(dataDir, name, short string, first []string) *cobra.Command {
	return &cobra.Command{
		Use:                name + " [ARGS...]",
		Short:              short,
		GroupID:            Kubectl,
		DisableFlagParsing: true, // kubectl parses all flags except --data-dir
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, explicit, args := dataDirOf(dataDir, args)
			env := os.Environ()
			if explicit {
				env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") })
			}
			args = append(slices.Clone(first), args...)
			if !namesServer(env, args) && needsServer(args) {
				if err := checkServer(cmd.Context(), dir); err != nil {
					return err
				}
			}
			path, err := program()
			if err != nil {
				return err
			}
			return unix.Exec(path, append([]string{"kubectl"}, args...), environment(env, dir))
		},
	}
}

// dataDirVariable is the environment variable for --data-dir.
const dataDirVariable = "MONOPOD_DATA_DIR"

// dataDirOf returns the data folder, whether the arguments name it, and the arguments without --data-dir. It ignores
// arguments after --.
func dataDirOf(dir string, args []string) (string, bool, []string) {
	dir = cmp.Or(os.Getenv(dataDirVariable), dir)
	own := len(args)
	if end := slices.Index(args, "--"); end >= 0 {
		own = end
	}
	for i, arg := range args[:own] {
		if value, ok := strings.CutPrefix(arg, "--data-dir="); ok {
			return value, true, slices.Delete(slices.Clone(args), i, i+1)
		}
		if arg == "--data-dir" && i+1 < own {
			return args[i+1], true, slices.Delete(slices.Clone(args), i, i+2)
		}
	}
	return dir, false, args
}

// serverCommands are the commands of kubectl that need a server.
var serverCommands = append([]string{
	"logs", "attach", "port-forward", "cp", "debug", "edit", "scale", "cordon", "uncordon", "drain", "taint", "auth",
	"api-resources", "api-versions", "cluster-info",
}, shortcuts...)

// needsServer reports whether a command of kubectl needs a server.
func needsServer(args []string) bool {
	return len(args) > 0 && slices.Contains(serverCommands, args[0]) &&
		!slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "--help" })
}

// namesServer reports whether the environment or the arguments name the server.
func namesServer(env, args []string) bool {
	variable := func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return value != "" && (name == "KUBECONFIG" || name == "KUBERNETES_SERVICE_HOST") // the latter in a pod
	}
	flag := func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "--kubeconfig" || name == "--server" || name == "-s"
	}
	return slices.ContainsFunc(env, variable) || slices.ContainsFunc(args, flag)
}

// checkServer returns an error if no server runs on a data folder; kubectl would print six lines about localhost:8080
// instead.
func checkServer(ctx context.Context, dir string) error {
	file := kubeconfig(dir)
	f, err := os.Open(file)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("cannot read %s: permission denied; run the command as the owner of %s, or set KUBECONFIG", file,
			dir)
	}
	if err == nil {
		f.Close()
		var conn net.Conn
		if conn, err = (&net.Dialer{}).DialContext(ctx, "unix", local.Socket(dir)); err == nil {
			return conn.Close()
		}
		if !local.Stopped(err) {
			return nil // kubectl uses the address in the file
		}
	}
	if local.Joined(dir) {
		return fmt.Errorf("%s is the data folder of a machine that has joined: use the kubeconfig of its server", dir)
	}
	return fmt.Errorf(
		"no monopod runs on %s: start it with monopod serve, or name another one with --data-dir or KUBECONFIG", dir)
}

func kubeconfig(dir string) string { return filepath.Join(dir, "admin.kubeconfig") }

// environment returns env with the kubeconfig of the data folder, unless it names one.
func environment(env []string, dir string) []string {
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") && v != "KUBECONFIG=" }) {
		return env
	}
	return append(slices.Clone(env), "KUBECONFIG="+kubeconfig(dir))
}
