package fake

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Files is a container's file system: its mounts of the host and of images, and a root
// in memory.
type Files struct {
	dir      string // the working directory
	mounts   []Mount
	readonly bool // all but the mounts

	mu     sync.Mutex // guards memory
	memory map[string][]byte
}

// newFiles returns the files of a container whose working directory is dir.
func newFiles(config *cri.ContainerConfig, mounts []Mount, dir string) *Files {
	return &Files{
		dir:      path.Join("/", dir),
		mounts:   mounts,
		readonly: config.GetLinux().GetSecurityContext().GetReadonlyRootfs(),
		memory:   map[string][]byte{},
	}
}

// MakeMountpoints creates missing host directories, as containerd does.
func (f *Files) MakeMountpoints() error {
	for _, m := range f.mounts {
		if m.Image != nil {
			continue
		}
		if _, err := os.Stat(m.HostPath); errors.Is(err, fs.ErrNotExist) {
			if err := os.MkdirAll(m.HostPath, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Files) absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(f.dir, name)
}

// locate returns the location of a file in the innermost mount that contains it.
func (f *Files) locate(name string) (at place, mounted bool) {
	for _, m := range f.mounts {
		rest, ok := below(m.ContainerPath, name)
		if ok && (!mounted || len(m.ContainerPath) >= len(at.ContainerPath)) {
			at, mounted = place{m, rest}, true
		}
	}
	return at, mounted
}

// below returns name relative to dir; empty for dir itself.
func below(dir, name string) (rest string, ok bool) {
	dir = path.Clean(dir)
	if name == dir {
		return "", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// ReadFile is os.ReadFile in the container.
func (f *Files) ReadFile(name string) ([]byte, error) {
	abs := f.absolute(name)
	if at, mounted := f.locate(abs); mounted {
		data, err := at.readFile()
		return data, renamed(err, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if data, ok := f.memory[abs]; ok {
		return data, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
}

// Stat returns ErrNotExist for files outside the mounts.
func (f *Files) Stat(name string) (fs.FileInfo, error) {
	if at, mounted := f.locate(f.absolute(name)); mounted {
		info, err := at.stat()
		return info, renamed(err, name)
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: syscall.ENOENT}
}

// WriteFile is os.WriteFile in the container.
func (f *Files) WriteFile(name string, data []byte) error {
	abs := f.absolute(name)
	at, mounted := f.locate(abs)
	if at.GetReadonly() || !mounted && f.readonly {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	if mounted {
		return renamed(os.WriteFile(at.host(), data, 0o644), name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory[abs] = data
	return nil
}

// ReadDir returns the names in a folder, sorted.
func (f *Files) ReadDir(name string) ([]string, error) {
	abs := f.absolute(name)
	names := map[string]struct{}{}
	if at, mounted := f.locate(abs); mounted {
		entries, err := at.readDir()
		if err != nil {
			return nil, renamed(err, name)
		}
		for _, entry := range entries {
			names[entry.Name()] = struct{}{}
		}
	}
	for _, inside := range f.known() {
		if rest, ok := below(abs, inside); ok && rest != "" {
			first, _, _ := strings.Cut(rest, "/")
			names[first] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// known returns the names of the files in memory and of the mounts.
func (f *Files) known() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names = slices.Collect(maps.Keys(f.memory))
	for _, m := range f.mounts {
		names = append(names, path.Clean(m.ContainerPath))
	}
	return names
}

// renamed replaces the path on the host in an error by the path in the container.
func renamed(err error, name string) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		pathErr.Path = name
	}
	return err
}
