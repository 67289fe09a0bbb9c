package cri

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Shim is a process of containerd's shim.
type Shim struct {
	PID    int
	ID     string // of the pod's sandbox
	Helper bool   // the process only starts or removes a shim
	Empty  bool   // it has no child processes except inits
	inits  []int  // processes of containers that were created and never started
}

// FindShims returns the shims whose arguments match.
func FindShims(matches func(args []string) bool) ([]Shim, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var shims []Shim
	for _, p := range processes {
		args, err := p.CmdLine()
		if err != nil || !matches(args) {
			continue // another program, or the process has ended
		}
		if id := argAfter(args, "-id"); id != "" {
			last := args[len(args)-1]
			shims = append(shims, Shim{PID: p.PID, ID: id, Helper: last == "start" || last == "delete"})
		}
	}
	if len(shims) == 0 {
		return nil, nil
	}
	parents, inits := map[int]bool{}, map[int][]int{}
	for _, p := range processes {
		stat, err := p.Stat()
		if err == nil && stat.State == "Z" { // the process has ended, but its shim hangs and has not reaped it
			continue
		}
		if args, _ := p.CmdLine(); err == nil && len(args) == 2 && filepath.Base(args[0]) == "runc" && args[1] == "init" {
			inits[stat.PPID] = append(inits[stat.PPID], p.PID)
		} else if err == nil {
			parents[stat.PPID] = true
		}
	}
	for i := range shims {
		shims[i].Empty, shims[i].inits = !parents[shims[i].PID], inits[shims[i].PID]
	}
	return shims, nil
}

// argAfter returns the argument that follows name; empty: there is none.
func argAfter(args []string, name string) string {
	if i := slices.Index(args, name); i > 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// MatchShims returns a function for FindShims that matches sandboxes in a namespace of any containerd. That is safe,
// because IDs are random.
func MatchShims(namespace string, is func(id string) bool) func(args []string) bool {
	return func(args []string) bool {
		return argAfter(args, "-namespace") == namespace && is(argAfter(args, "-id"))
	}
}

// Kill kills the shim and the processes of containers that were never started. When the shim has ended, containerd
// kills the running ones.
func (s Shim) Kill() error {
	for _, pid := range append(slices.Clone(s.inits), s.PID) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end the shim of %s: %w", s.ID, err)
		}
	}
	return nil
}
