package fake

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mount is a mount of a folder or file of the host, or of an image.
type Mount struct {
	*cri.Mount
	Image fs.FS // nil: of the host
}

// place is a file in a mount. rest is its path relative to the mount; empty: the root of the mount.
type place struct {
	Mount
	rest string
}

func (p place) host() string { return filepath.Join(p.HostPath, p.rest) }

func (p place) inImage() string { return cmp.Or(p.rest, ".") }

func (p place) readFile() ([]byte, error) {
	if p.Image != nil {
		return fs.ReadFile(p.Image, p.inImage())
	}
	return os.ReadFile(p.host())
}

func (p place) stat() (fs.FileInfo, error) {
	if p.Image != nil {
		return fs.Stat(p.Image, p.inImage())
	}
	return os.Stat(p.host())
}

func (p place) readDir() ([]fs.DirEntry, error) {
	if p.Image != nil {
		return fs.ReadDir(p.Image, p.inImage())
	}
	return os.ReadDir(p.host())
}
