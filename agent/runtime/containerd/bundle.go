package containerd

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// Bundled reports whether this program contains the runtime: containerd, its shim and runc.
func Bundled() bool { return len(bundle) > 0 }

// versionLength is the length of the version at the end of the bundle: the first hexadecimal digits of the SHA-256 of
// what precedes it. The build writes it, so that a start does not read the whole bundle.
const versionLength = 12

// archive is the bundle, or a test's.
type archive struct {
	bundle []byte
	// before is called before each step that changes the disk, with what the step does and to which file or folder. An
	// error ends unpack. Only tests set it.
	before func(step, path string) error
}

// version is the name of the folder of the bundled programs.
func (a archive) version() string { return string(a.bundle[len(a.bundle)-versionLength:]) }

func (a archive) step(what, path string) error {
	if a.before == nil {
		return nil
	}
	return a.before(what, path)
}

// unpack writes the bundled programs to <dir>/<version>, unless they are there, and returns that folder. The folder
// appears complete: a power cut leaves at most a temporary folder, which the next unpack removes. Programs of other
// versions are removed, except those that a process still executes: the shims of pods that an earlier Monopod started,
// and the runc that they call. Several Monopods may share dir: a lock makes them unpack in turn.
func (a archive) unpack(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(dir) // as /proc/PID/exe names it
	if err != nil {
		return "", err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", dir, err)
	}
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err == nil && at.Flags&unix.ST_NOEXEC != 0 {
		return "", fmt.Errorf("cannot run containerd from %s: its file system is mounted noexec; "+
			"name a folder on another file system with --bin-dir", dir)
	}
	to := filepath.Join(dir, a.version())
	if _, err := os.Stat(to); errors.Is(err, fs.ErrNotExist) {
		if err := a.unpackTo(dir, to); err != nil {
			return "", fmt.Errorf("cannot unpack containerd to %s: %w", dir, err)
		}
	} else if err != nil {
		return "", err
	}
	return to, a.removeUnused(dir, to)
}

// unpackTo writes the bundled programs to a new folder below dir and renames it to to.
func (a archive) unpackTo(dir, to string) (err error) {
	if err := a.step("create", dir); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dir, unpacking)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	decoder, err := zstd.NewReader(bytes.NewReader(a.bundle[:len(a.bundle)-versionLength]), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer decoder.Close()
	for files := tar.NewReader(decoder); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := a.writeProgram(filepath.Join(tmp, filepath.Base(header.Name)), files); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := a.syncFolder(tmp); err != nil {
		return err
	}
	if err := a.step("rename", to); err != nil {
		return err
	}
	if err := os.Rename(tmp, to); err != nil {
		return err
	}
	return a.syncFolder(dir)
}

func (a archive) writeProgram(path string, from io.Reader) error {
	if err := a.step("write", path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.Copy(f, from); err == nil {
		err = a.step("sync", path)
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}

func (a archive) syncFolder(dir string) error {
	if err := a.step("sync", dir); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// unpacking begins the names of temporary folders.
const unpacking = "unpacking-"

// removeUnused removes all folders below dir but keep, and but those with a program that a process executes.
func (a archive) removeUnused(dir, keep string) error {
	folders, err := os.ReadDir(dir)
	if err != nil || len(folders) < 2 {
		return err
	}
	used, err := executed(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range folders {
		path := filepath.Join(dir, f.Name())
		if path == keep || used[path] || !f.IsDir() {
			continue
		}
		if err := a.step("remove", path); err != nil {
			return err
		}
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// executed returns the folders directly below dir with a program that a process executes.
func executed(dir string) (map[string]bool, error) {
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, link := range links {
		program, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(program, dir+"/") { // the process has ended, or is a kernel thread
			continue
		}
		used[filepath.Join(dir, strings.SplitN(program[len(dir)+1:], "/", 2)[0])] = true
	}
	return used, nil
}
