// Package envtest makes this program the control plane of controller-runtime's envtest. Started as kube-apiserver, it
// serves the API without a node and without controllers; as etcd, it only answers health checks, because the server
// keeps its state itself; as kubectl, it runs the kubectl in PATH.
package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The names under which envtest starts its programs.
const (
	apiServer = "kube-apiserver"
	etcd      = "etcd"
	kubectl   = "kubectl"
)

func programs() []string { return []string{apiServer, etcd, kubectl} }

// Invoked reports whether this process was started as one of envtest's programs.
func Invoked(argv0 string) bool { return slices.Contains(programs(), filepath.Base(argv0)) }

// Main runs the program that argv names until it ends or ctx does, and returns the exit code. serve runs `monopod
// serve` with the flags that it gets.
func Main(ctx context.Context, argv []string, serve func(ctx context.Context, flags []string) error) int {
	name, args := filepath.Base(argv[0]), argv[1:]
	var err error
	switch {
	case name == kubectl:
		err = runKubectl(argv)
	case slices.Contains(args, "--help"), slices.Contains(args, "-h"):
		fmt.Print(help(name))
	case name == etcd:
		err = runEtcd(ctx, args)
	default:
		err = runAPIServer(ctx, args, serve)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s (monopod): %v\n", name, err)
		return 1
	}
	return 0
}

// AssetsCommand is `monopod envtest-assets`.
func AssetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "envtest-assets DIR",
		Short: "Create the programs with which controller-runtime's envtest starts monopod",
		Long: "Create kube-apiserver, etcd and kubectl in DIR, which start this program, and print the path of DIR.\n" +
			"Tests that use controller-runtime's envtest package then run on monopod:\n\n" +
			"  export KUBEBUILDER_ASSETS=$(monopod envtest-assets bin/envtest)\n  go test ./...",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			if err := createPrograms(dir, program); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), dir)
			return nil
		},
	}
}

// linksDir is the folder with the links to this program, below the folder with the scripts that start them.
const linksDir = "monopod"

// scriptMarker is the second line of a script.
const scriptMarker = "# Written by monopod envtest-assets."

// createPrograms creates the programs in dir: kubectl as a link to program, the others as scripts, because envtest
// first runs each with --help and a script answers faster. It replaces links and scripts, but no other file.
func createPrograms(dir, program string) error {
	if err := os.MkdirAll(filepath.Join(dir, linksDir), 0o755); err != nil {
		return fmt.Errorf("%w; choose a folder that you can write to", err)
	}
	for _, name := range programs() {
		path := filepath.Join(dir, name)
		if err := removeOwn(path); err != nil {
			return err
		}
		if name == kubectl {
			if err := os.Symlink(program, path); err != nil {
				return err
			}
			continue
		}
		target := filepath.Join(dir, linksDir, name)
		if err := removeOwn(target); err != nil {
			return err
		}
		if err := errors.Join(os.Symlink(program, target), os.WriteFile(path, []byte(script(name)), 0o755)); err != nil {
			return err
		}
	}
	return nil
}

// script returns a script that prints the help of a program, or starts it.
func script(name string) string {
	return "#!/bin/sh\n" + scriptMarker + "\n" +
		"if [ \"$1\" = --help ]; then\n\tcat <<'END'\n" + help(name) + "END\n\texit\nfi\n" +
		"exec \"${0%/*}/" + linksDir + "/" + name + "\" \"$@\"\n"
}

// removeOwn removes a link or an own script.
func removeOwn(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink == 0 {
		text, err := os.ReadFile(path)
		if lines := strings.SplitN(string(text), "\n", 3); err != nil || len(lines) < 3 || lines[1] != scriptMarker {
			return fmt.Errorf("%s exists and was not written by this command: remove it, or choose another folder", path)
		}
	}
	return os.Remove(path)
}
