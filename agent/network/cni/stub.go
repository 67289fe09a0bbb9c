package cni

import (
	"bytes"
	_ "embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

//go:embed stub/stub_amd64
var stubAMD64 []byte

//go:embed stub/stub_arm64
var stubARM64 []byte

//go:embed stub/stub_arm
var stubARM []byte

//go:embed stub/stub_riscv64
var stubRISCV64 []byte

// stub returns the program for the architecture; nil if there is none.
func stub(arch string) []byte {
	switch arch {
	case "amd64":
		return stubAMD64
	case "arm64":
		return stubARM64
	case "arm":
		return stubARM
	case "riscv64":
		return stubRISCV64
	default:
		return nil
	}
}

// serverDir contains the server's socket and the link to the monopod program.
func (n Network) serverDir() string { return filepath.Join(n.Dir, "plugin") }

func (n Network) socket() string { return filepath.Join(n.serverDir(), "socket") }

// writePlugins writes the stub under the plugins' names, and a link to the executable, which the stub executes if no
// server answers. On platforms without a stub, and on noexec mounts, the plugins are links to the executable.
func (n Network) writePlugins(executable string) error {
	if err := os.MkdirAll(n.serverDir(), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(n.serverDir(), 0o700); err != nil {
		return err
	}
	if err := Link(executable, filepath.Join(n.serverDir(), "monopod")); err != nil {
		return err
	}
	program := stub(runtime.GOARCH)
	var mounted unix.Statfs_t
	if err := unix.Statfs(n.BinDir(), &mounted); err != nil {
		return err
	}
	for _, name := range []string{pluginName, loopbackName} {
		file := filepath.Join(n.BinDir(), name)
		if program == nil || mounted.Flags&unix.ST_NOEXEC != 0 {
			if err := Link(executable, file); err != nil {
				return err
			}
		} else if err := writeProgram(file, program); err != nil {
			return err
		}
	}
	return nil
}

// writeProgram replaces the file atomically, if it differs. It blocks forks meanwhile: a child would inherit the open
// file, which then could not be executed.
func writeProgram(name string, data []byte) error {
	info, err := os.Lstat(name)
	if err == nil && info.Mode() == 0o755 {
		if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
			return nil
		}
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	tmp := name + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(tmp, data, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // whatever the umask
		return err
	}
	return os.Rename(tmp, name)
}
