package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"monopod/agent/cmd/commandline"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/images"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/kit/words"
)

type runOptions struct {
	runtime, config string
	images          []string
	keep            bool
	timeout         time.Duration
}

// runCommand is `monopod run`, which runs a command against a throw-away monopod.
func runCommand() *cobra.Command {
	c := &runOptions{}
	cmd := &cobra.Command{
		Use:     "run [flags] -- COMMAND [ARGS...]",
		GroupID: Start,
		Short:   "Run a command against a throw-away cluster, and remove every trace of it afterwards",
		Long: "run starts a monopod in a temporary folder on free ports, waits until its API and its node are ready, and\n" +
			"runs COMMAND with KUBECONFIG and MONOPOD_DATA_DIR set. Signals are passed on. When COMMAND ends, its\n" +
			"pods, mounts, networks and files are removed, and run ends with its exit code.\n\n" +
			"Other settings of serve come from --config and from environment variables, as MONOPOD_MAX_PODS=20.",
		Example: "  monopod run --runtime=fake -- go test ./...\n" +
			"  monopod run --image app.tar -- sh -c 'kubectl apply -f app.yaml && kubectl rollout status deploy/app'\n" +
			"  monopod run --keep-on-failure -- ./e2e.sh",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after COMMAND belong to it
	f.StringVar(&c.runtime, "runtime", "containerd",
		"Container runtime: containerd, which needs root; or fake, which runs pods in memory.")
	f.StringVar(&c.config, commandline.FileFlag, "", "YAML file with settings of serve, as monopod config prints it.")
	f.StringSliceVar(&c.images, "image", nil,
		"Image archive (.tar, .tar.gz, .tar.zst) that pods can use. May be repeated.")
	f.BoolVar(&c.keep, "keep-on-failure", false,
		"Keep the data folder and an archive of all logs if COMMAND fails, and print where they are.")
	f.DurationVar(&c.timeout, "ready-timeout", 2*time.Minute, "Maximum time to wait until the API and the node are ready.")
	return cmd
}

// forwardedSignals are the signals that COMMAND gets.
var forwardedSignals = []os.Signal{
	os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

func (c *runOptions) run(cmd *cobra.Command, argv []string) error {
	if c.runtime != "containerd" && c.runtime != "fake" {
		return fmt.Errorf("--runtime must be containerd or fake, got %q", c.runtime)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(argv[0]); err != nil { // before anything is started
		return cannotRun(err)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwardedSignals...)
	defer signal.Stop(signals)
	dir, err := os.MkdirTemp("", "monopod-run-")
	if err != nil {
		return err
	}
	i := &instance{program: program, dir: dir, runtime: c.runtime}
	err = c.start(cmd, i, argv, signals)
	cleanUpErr := c.cleanUp(cmd.ErrOrStderr(), i, err)
	if err == nil {
		return cleanUpErr
	}
	if cleanUpErr != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "monopod:", cleanUpErr)
	}
	return err
}

// start starts the instance and runs the command.
func (c *runOptions) start(cmd *cobra.Command, i *instance, argv []string, signals <-chan os.Signal) error {
	if err := os.Chmod(i.dir, 0o711); err != nil { // pods with users of their own traverse it
		return err
	}
	if err := i.prepare(); err != nil {
		return err
	}
	var flags []string
	if c.runtime == "containerd" {
		flags = append(flags, "--containerd=own") // the machine's would keep leftovers of the pods
	}
	if c.config != "" {
		flags = append(flags, "--"+commandline.FileFlag, c.config)
	}
	began := time.Now()
	if err := i.start(flags...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	if err := i.ready(ctx); err != nil {
		if cmd.Context().Err() != nil {
			return &commandline.Exit{Code: 128 + int(syscall.SIGINT), Err: errors.New("interrupted before monopod was ready")}
		}
		return err
	}
	for _, file := range c.images {
		if _, err := importArchive(cmd, nodeImages{local.At(i.data()), images.Path}, file); err != nil {
			return fmt.Errorf("--image %s: %w", file, err)
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "monopod: ready in %.2f s, KUBECONFIG=%s\n", time.Since(began).Seconds(),
		i.kubeconfig())
	return i.execute(cmd, argv, signals)
}

// execute runs the command and passes signals on to it.
func (i *instance) execute(cmd *cobra.Command, argv []string, signals <-chan os.Signal) error {
	user := exec.Command(argv[0], argv[1:]...)
	user.Stdin, user.Stdout, user.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	user.Env = append(os.Environ(), "KUBECONFIG="+i.kubeconfig(), commandline.Variable("data-dir")+"="+i.data())
	if err := user.Start(); err != nil {
		return cannotRun(err)
	}
	over := guard.Spawn(user.Wait)
	lost := i.ended
	for {
		select {
		case s := <-signals:
			if !fromTerminal(s) {
				_ = user.Process.Signal(s) // fails if the command has ended
			}
		case <-lost:
			lost = nil
			fmt.Fprintf(cmd.ErrOrStderr(), "monopod: monopod ended while the command runs (%s)%s\n", i.state, i.lastLines())
		case err := <-over:
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return &commandline.Exit{Code: exitCode(exit.ProcessState)}
			}
			return err
		}
	}
}

// fromTerminal reports whether the terminal has sent the signal to the command, too: Ctrl-C goes to the whole process
// group.
func fromTerminal(s os.Signal) bool {
	if s != os.Interrupt && s != syscall.SIGQUIT {
		return false
	}
	group, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// exitCode returns the exit code, or as a shell 128 plus the signal.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

// cannotRun returns the error for a command that cannot be run, with a shell's exit codes.
func cannotRun(err error) error {
	code := 126
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = 127
	}
	return &commandline.Exit{Code: code, Err: fmt.Errorf("%w; name a program that is in PATH, or its path", err)}
}

// cleanUp stops the instance and removes its folder. With --keep-on-failure it keeps the folder after a failure.
func (c *runOptions) cleanUp(stderr io.Writer, i *instance, failed error) error {
	if err := i.stop(); err != nil {
		return err // the folder is needed for another attempt
	}
	if failed == nil || !c.keep {
		return os.RemoveAll(i.dir)
	}
	logs := filepath.Join(i.dir, "logs.tar.gz")
	n, err := i.saveLogs(logs)
	if err != nil {
		return fmt.Errorf("cannot save the logs, see %s: %w", i.dir, err)
	}
	fmt.Fprintf(stderr, "monopod: failed (%v); kept, until you remove it:\n  %s  the log of monopod and %s\n"+
		"  %s  the data folder: monopod serve --runtime=%s --listen=127.0.0.1:0 --data-dir=%s\n",
		failed, logs, words.Count(n, "container log"), i.data(), i.runtime, i.data())
	return nil
}

// saveLogs writes the logs of the instance and of its containers to an archive. It returns the number of the latter.
func (i *instance) saveLogs(path string) (containers int, err error) {
	a, err := createArchive(path, time.Now())
	if err != nil {
		return 0, err
	}
	err = a.addFile("monopod.log", i.log())
	if err == nil {
		containers, err = a.addFolder("pods", filepath.Join(i.data(), "logs", "pods"))
	}
	return containers, errors.Join(err, a.Close())
}
