package host

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

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

func runAsInit() (code int, err error) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
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
