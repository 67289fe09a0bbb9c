package host

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RunAsInit does nothing unless this process is the first of its PID namespace: of a container or of a machine without
// an init. Then it runs the same program as a child, forwards signals to it, and reaps what is orphaned, such as the
// shims of containerd, until the child ends. It returns the child's exit code.
func RunAsInit() (code int, ran bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	code, err := runAsInit()
	if err != nil {
		fmt.Fprintln(os.Stderr, "monopod: cannot run as the first process:", err)
		return 1, true
	}
	return code, true
}

// leaveRoot moves process 1 of a container into a cgroup of its own. In cgroup v2 the children of a cgroup with
// processes get no controllers, so the limits of pods would have no effect. Only the machine's root, which has no
// cgroup.type, is an exception.
func leaveRoot(mount string) error {
	if _, err := os.Stat(filepath.Join(mount, "cgroup.type")); err != nil {
		return nil
	}
	dir := filepath.Join(mount, "init")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("1"), 0o644)
}

func runAsInit() (code int, err error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	_ = leaveRoot("/sys/fs/cgroup") // if it fails, the node reports the controllers that are missing
	child, err := os.StartProcess("/proc/self/exe", os.Args,
		&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 0, err
	}
	for s := range signals {
		if s != unix.SIGCHLD {
			_ = unix.Kill(child.Pid, s.(unix.Signal)) // it may have ended
			continue
		}
		for { // one signal may stand for several processes
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if pid == child.Pid && status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			if pid == child.Pid {
				return status.ExitStatus(), nil
			}
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	return 0, nil
}
