package fake

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// files are what a container sees: its mounts, which are real, and around them
// a file system in memory.
type files struct {
	dir      string // what relative names start from
	mounts   []*cri.Mount
	readonly bool // all but the mounts

	mu     sync.Mutex // guards memory
	memory map[string][]byte
}

func newFiles(config *cri.ContainerConfig, dir string) *files {
	return &files{
		dir:      path.Join("/", dir),
		mounts:   config.GetMounts(),
		readonly: config.GetLinux().GetSecurityContext().GetReadonlyRootfs(),
		memory:   map[string][]byte{},
	}
}

// makeMountpoints creates the host directories that are missing, as containerd
// does.
func (f *files) makeMountpoints() error {
	for _, m := range f.mounts {
		if _, err := os.Stat(m.HostPath); errors.Is(err, fs.ErrNotExist) {
			if err := os.MkdirAll(m.HostPath, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *files) absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(f.dir, name)
}

// locate finds the innermost mount that holds a file, and its path on the host.
func (f *files) locate(name string) (host string, mount *cri.Mount) {
	for _, m := range f.mounts {
		rest, ok := below(m.ContainerPath, name)
		if ok && (mount == nil || len(m.ContainerPath) >= len(mount.ContainerPath)) {
			host, mount = filepath.Join(m.HostPath, rest), m
		}
	}
	return host, mount
}

// below cuts dir off name; it is empty for dir itself.
func below(dir, name string) (rest string, ok bool) {
	dir = path.Clean(dir)
	if name == dir {
		return "", true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

func (f *files) ReadFile(name string) ([]byte, error) {
	abs := f.absolute(name)
	if host, mount := f.locate(abs); mount != nil {
		data, err := os.ReadFile(host)
		return data, renamed(err, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if data, ok := f.memory[abs]; ok {
		return data, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
}

// Stat knows only what is mounted.
func (f *files) Stat(name string) (fs.FileInfo, error) {
	if host, mount := f.locate(f.absolute(name)); mount != nil {
		info, err := os.Stat(host)
		return info, renamed(err, name)
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: syscall.ENOENT}
}

func (f *files) WriteFile(name string, data []byte) error {
	abs := f.absolute(name)
	host, mount := f.locate(abs)
	if mount.GetReadonly() || mount == nil && f.readonly {
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EROFS}
	}
	if mount != nil {
		return renamed(os.WriteFile(host, data, 0o644), name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory[abs] = data
	return nil
}

func (f *files) ReadDir(name string) ([]string, error) {
	abs := f.absolute(name)
	names := map[string]struct{}{}
	if host, mount := f.locate(abs); mount != nil {
		entries, err := os.ReadDir(host)
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

// known are the names of the files in memory and of the mounts.
func (f *files) known() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names = slices.Collect(maps.Keys(f.memory))
	for _, m := range f.mounts {
		names = append(names, path.Clean(m.ContainerPath))
	}
	return names
}

// renamed gives an error the name that the container knows the file by.
func renamed(err error, name string) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		pathErr.Path = name
	}
	return err
}
