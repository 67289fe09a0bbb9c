package cmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/local"
	"monopod/apiserver/status"
)

// installer changes the machine below root.
type installer struct {
	*service
	root    string // "/": the machine itself
	program string // where the program is installed
	verb    string // the command of the service: serve, which empty stands for, or join
	dataDir string
	timeout time.Duration // until the service must be healthy
	settle  time.Duration // how long it must stay healthy
	clock   clock.Clock
	out     io.Writer
}

func (i *installer) say(format string, args ...any) { fmt.Fprintf(i.out, format+"\n", args...) }

func (i *installer) at(path string) string { return filepath.Join(i.root, path) }

func (i *installer) previous() string { return i.at(i.program) + ".previous" }

// former is the previous program of the last upgrade, until the next one has succeeded.
func (i *installer) former() string { return i.previous() + ".former" }

// put replaces a file atomically, unless it has this content.
func (i *installer) put(path string, content []byte, mode os.FileMode) (changed bool, err error) {
	path = i.at(path)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return false, os.Chmod(path, mode)
	}
	return true, replaceFile(path, bytes.NewReader(content), mode)
}

// putProgram replaces the program atomically by a copy of a file, unless it is the same. A program is never read into
// memory as a whole: on a small machine, pods would be evicted for it.
func (i *installer) putProgram(file string) (changed bool, err error) {
	program := i.at(i.program)
	if same, err := sameContent(program, file); same {
		return false, os.Chmod(program, 0o755)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, copyProgram(file, program)
}

// copyProgram replaces a file atomically by a copy of another one.
func copyProgram(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return replaceFile(to, f, 0o755)
}

// replaceFile replaces a file atomically.
func replaceFile(path string, content io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// A child process would inherit the open file, and a program cannot be executed while it is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// sameContent reports whether two files have the same content.
func sameContent(a, b string) (bool, error) {
	var sums [2][sha256.Size]byte
	for n, path := range []string{a, b} {
		f, err := os.Open(path)
		if err != nil {
			return false, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return false, err
		}
		hash.Sum(sums[n][:0])
	}
	return sums[0] == sums[1], nil
}

// runMonopod runs a monopod program and returns its output.
func runMonopod(ctx context.Context, program string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// packaged returns an error if Monopod is installed as a Debian package, whose unit that of install would hide.
func (i *installer) packaged() error {
	if _, err := os.Stat(i.at(i.file)); err == nil || i.deb == "" {
		return nil
	}
	if _, err := os.Stat(i.at(i.deb)); err != nil {
		return nil
	}
	return errors.New("monopod is installed as a Debian package: install, upgrade and remove it with apt, " +
		"and set its flags in /etc/default/monopod")
}

// install makes the machine run the program with these flags of the service's command. It changes only what differs.
func (i *installer) install(ctx context.Context, self string, flags []string) error {
	i.dataDir = flagValue(flags, "--data-dir", i.dataDir)
	if !filepath.IsAbs(i.dataDir) {
		return fmt.Errorf("--data-dir must be an absolute path, got %q: a service starts in another folder", i.dataDir)
	}
	if err := i.packaged(); err != nil {
		return err
	}
	flags, err := i.prepareFlags(ctx, self, flags)
	if err != nil {
		return err
	}
	copied, err := i.putProgram(self)
	if err != nil {
		return err
	}
	if copied {
		i.say("installed %s", i.program)
	}
	written, err := i.put(i.file, []byte(i.render(append([]string{i.program, cmp.Or(i.verb, serveVerb)}, flags...))), i.mode)
	if err != nil {
		return err
	}
	if written {
		i.say("wrote %s", i.file)
	}
	if err := errors.Join(runProgram(ctx, i.reload), runProgram(ctx, i.enable)); err != nil {
		return err
	}
	if !copied && !written && runProgram(ctx, i.active) == nil {
		i.say("monopod is already installed and runs; nothing to do")
		return nil
	}
	if err := i.start(ctx, ""); err != nil {
		return fmt.Errorf("%w; look at its log: %s", err, i.log)
	}
	i.say("monopod runs, and starts with the machine (%s)", i.service.name)
	return nil
}

// checkFlags returns an error if a program refuses the flags of the service.
func (i *installer) checkFlags(ctx context.Context, program string, flags []string) error {
	if i.verb == joinVerb {
		return i.runJoin(ctx, program, append([]string{"--check"}, flags...))
	}
	_, err := runMonopod(ctx, program, append([]string{"config"}, flags...)...)
	return err
}

// runJoin runs monopod join, whose log the user sees. Its flags, which may contain a token, are not part of the error.
func (i *installer) runJoin(ctx context.Context, program string, flags []string) error {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append([]string{joinVerb}, flags...)...)
	cmd.Stderr = io.MultiWriter(&said, i.out)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	return errors.New(strings.TrimPrefix(lines[len(lines)-1], "monopod: "))
}

// prepareFlags checks the flags, and returns those of the service. A machine joins before the service starts: the token
// is not for the service's file.
func (i *installer) prepareFlags(ctx context.Context, self string, flags []string) ([]string, error) {
	if err := i.checkFlags(ctx, self, flags); err != nil {
		return nil, fmt.Errorf("the flags of %s are not valid: %w", cmp.Or(i.verb, serveVerb), err)
	}
	if i.verb != joinVerb || !slices.ContainsFunc(flags, ofFirstJoin) {
		return flags, nil
	}
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	if err := i.runJoin(ctx, self, append([]string{"--only", "--log-level=warn", "--log-format=console"}, flags...)); err != nil {
		return nil, fmt.Errorf("cannot join the cluster: %w", err)
	}
	i.say("joined the cluster")
	var out []string
	for j := 0; j < len(flags); j++ {
		switch flag := flags[j]; {
		case !ofFirstJoin(flag):
			out = append(out, flag)
		case strings.HasPrefix(flag, "--") && !strings.Contains(flag, "="):
			j++ // its value
		}
	}
	return out, nil
}

// The commands of a service. That of joinVerb makes the machine a node of another machine's server.
const (
	serveVerb = "serve"
	joinVerb  = "join"
)

// ofFirstJoin reports whether an argument of join is only for the first time.
func ofFirstJoin(flag string) bool {
	name, _, _ := strings.Cut(flag, "=")
	return strings.HasPrefix(flag, "https://") || name == "--token" || name == "--ca-hash"
}

// start restarts the service and waits until one process of it, of the version unless that is empty, has been healthy
// for a while. Its health may change meanwhile: after a restart a node is first reported as ready, from before the
// restart, until containerd responds.
func (i *installer) start(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	began := i.clock.Now()
	if err := runProgram(ctx, i.restart); err != nil {
		return err
	}
	lacks := errors.New("it became ready too late") // the result of the last health check
	first, since := 0, time.Time{}                  // the PID of the first healthy process, and the begin of its health
	for retry := (backoff.Retry{First: 20 * time.Millisecond, Most: 500 * time.Millisecond}); ; {
		pid, err := i.healthy(ctx, version)
		switch {
		case err != nil:
			since = time.Time{}
			if ctx.Err() == nil {
				lacks = err
			}
		case first == 0:
			first, since = pid, i.clock.Now()
			i.say("ready after %.1f s", since.Sub(began).Seconds())
		case pid != first:
			return fmt.Errorf("monopod did not stay healthy for %v: process %d ended, %d runs now", i.settle, first, pid)
		case since.IsZero():
			since = i.clock.Now()
		case i.clock.Since(since) >= i.settle:
			return nil
		}
		if !retry.Wait(ctx, i.clock) {
			return fmt.Errorf("monopod is not healthy within %v: %w", i.timeout, lacks)
		}
	}
}

// healthy returns the PID of the process that serves the data folder, or an error if it is not healthy.
func (i *installer) healthy(ctx context.Context, version string) (pid int, err error) {
	if i.verb == joinVerb {
		return i.healthyNode(ctx, version)
	}
	facts, err := status.Collect(ctx, local.At(i.at(i.dataDir)), i.clock.Now())
	if err != nil {
		return 0, err
	}
	report := status.Of(facts)
	switch {
	case version != "" && report.Process.Version != version:
		return 0, fmt.Errorf("version %s runs, not %s", report.Process.Version, version)
	case !report.Ready:
		return 0, errors.New(strings.Join(append([]string{"it is not ready."}, report.Warnings...), " "))
	}
	return report.Process.PID, nil
}

// healthyNode is healthy of a machine that has joined.
func (i *installer) healthyNode(ctx context.Context, version string) (pid int, err error) {
	r, err := readJoined(ctx, local.At(i.at(i.dataDir)))
	switch {
	case err != nil:
		return 0, err
	case version != "" && r.Version != version:
		return 0, fmt.Errorf("version %s runs, not %s", r.Version, version)
	case len(r.Problems) > 0:
		return 0, errors.New("the node is not ready: " + strings.Join(r.Problems, "; "))
	case r.Away != nil && version == "": // an upgrade works without a server, too
		return 0, errors.New("no server answers")
	}
	return r.PID, nil
}

// installed reads the flags of the installed service.
func (i *installer) installed() (flags []string, err error) {
	content, err := os.ReadFile(i.at(i.file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cmp.Or(i.packaged(), fmt.Errorf("%s does not exist: run monopod install first", i.file))
	}
	if err != nil {
		return nil, err
	}
	command := i.parse(string(content))
	at := slices.IndexFunc(command, func(word string) bool { return word == serveVerb || word == joinVerb })
	if at < 1 {
		return nil, fmt.Errorf("%s does not run monopod serve: replace the program as it was installed", i.file)
	}
	i.program, i.verb = command[0], command[at]
	i.dataDir = flagValue(command[at+1:], "--data-dir", i.dataDir)
	return command[at+1:], nil
}

// uninstall ends the service and removes its files. The data folder stays, unless purge is true.
func (i *installer) uninstall(ctx context.Context, keepPods, purge bool) error {
	if _, err := i.installed(); err != nil {
		return err
	}
	if err := errors.Join(runProgram(ctx, i.stop), runProgram(ctx, i.disable)); err != nil {
		return err
	}
	if purge && i.verb == joinVerb { // the server still has the Node
		if _, err := runMonopod(ctx, i.at(i.program), "leave", "--data-dir", i.at(i.dataDir)); err != nil {
			return err
		}
		keepPods = true // there are none
	}
	if !keepPods {
		if _, err := runMonopod(ctx, i.at(i.program), "reset", "--data-dir", i.at(i.dataDir)); err != nil {
			i.say("pods may still run: %v", err)
		}
	}
	for _, path := range []string{i.at(i.file), i.at(i.program), i.previous(), i.former()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := runProgram(ctx, i.reload); err != nil {
		return err
	}
	if purge {
		i.say("monopod is removed, and its data with it")
		return os.RemoveAll(i.at(i.dataDir))
	}
	i.say("monopod is removed; its data stay in %s", i.dataDir)
	return nil
}
