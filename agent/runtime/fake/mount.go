package fake

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mount shows a folder or file of the host, or an image.
type mount struct {
	*cri.Mount
	image fs.FS // nil: of the host
}

// place is a file in a mount; rest is its name from there, empty for the mount's root.
type place struct {
	mount
	rest string
}

func (p place) host() string { return filepath.Join(p.HostPath, p.rest) }

func (p place) inImage() string { return cmp.Or(p.rest, ".") }

func (p place) readFile() ([]byte, error) {
	if p.image != nil {
		return fs.ReadFile(p.image, p.inImage())
	}
	return os.ReadFile(p.host())
}

func (p place) stat() (fs.FileInfo, error) {
	if p.image != nil {
		return fs.Stat(p.image, p.inImage())
	}
	return os.Stat(p.host())
}

func (p place) readDir() ([]fs.DirEntry, error) {
	if p.image != nil {
		return fs.ReadDir(p.image, p.inImage())
	}
	return os.ReadDir(p.host())
}

// mounts are those of a container. Those that show images want them to be there, as
// containerd does.
func (r *Runtime) mounts(config *cri.ContainerConfig) ([]mount, error) {
	var out []mount
	for _, m := range config.GetMounts() {
		var shown fs.FS
		var err error
		if m.Image != nil {
			shown, err = r.show(m)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, mount{m, shown})
	}
	return out, nil
}
