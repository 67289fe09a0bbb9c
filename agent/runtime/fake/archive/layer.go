package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"testing/fstest"
)

// Layer is one of an image, as it came; nil: it is larger than maxMetadata, and was
// not kept.
type Layer []byte

// maxUnpacked is how large a layer may be that is shown.
const maxUnpacked = 16 << 20

func (m metadata) layer(name string) Layer { return Layer(m[name]) }

// Tree is all that the layers hold, the upper over the lower. An image that was
// fetched from nowhere is empty.
func (i *Image) Tree() (fstest.MapFS, error) {
	all := fstest.MapFS{}
	for _, l := range i.Layers {
		if l == nil {
			return nil, fmt.Errorf("the fake runtime shows images whose layers have at most %d bytes", maxMetadata)
		}
		if err := l.over(all); err != nil {
			return nil, fmt.Errorf("image %s: %w", i.ID, err)
		}
	}
	return all, nil
}

// Folder is a folder of all that an image holds; an empty name is all of it.
func Folder(all fs.FS, name string) (fs.FS, error) {
	if name == "" {
		return all, nil
	}
	info, err := fs.Stat(all, path.Clean(name))
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("only directory subpath is supported, subpath: %q", name)
	}
	return fs.Sub(all, path.Clean(name))
}

// over lays a layer over the others.
func (l Layer) over(below fstest.MapFS) error {
	plain, err := decompress(bytes.NewReader(l))
	if err != nil {
		return err
	}
	defer plain.Close()
	above, err := read(plain, below)
	if err != nil {
		return err
	}
	for name, file := range above {
		if !file.Mode.IsDir() {
			remove(below, name)
		}
		below[name] = file
	}
	return nil
}

// read reads a layer, and takes away from those below what it says.
func read(plain io.Reader, below fstest.MapFS) (fstest.MapFS, error) {
	above := fstest.MapFS{}
	limited := &io.LimitedReader{R: plain, N: maxUnpacked}
	for in := tar.NewReader(limited); ; {
		header, err := in.Next()
		if err == nil {
			err = add(above, below, header, in)
		}
		switch {
		case err != nil && limited.N == 0:
			return nil, fmt.Errorf("a layer has more than %d bytes when it is unpacked", maxUnpacked)
		case errors.Is(err, io.EOF):
			return above, nil
		case err != nil:
			return nil, err
		}
	}
}

// Marks of what an upper layer takes away: the file of that name, or all that the
// lower ones have in the folder.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// add puts an entry of a layer into it, or takes away what it says from those below.
func add(above, below fstest.MapFS, header *tar.Header, content io.Reader) error {
	name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
	dir, base := path.Split(name)
	file := &fstest.MapFile{
		Mode: header.FileInfo().Mode(), ModTime: header.ModTime,
		Sys: &syscall.Stat_t{Uid: uint32(header.Uid), Gid: uint32(header.Gid)},
	}
	var err error
	switch {
	case name == "":
		return nil
	case base == opaque:
		empty(below, dir)
		return nil
	case strings.HasPrefix(base, whiteout):
		remove(below, dir+strings.TrimPrefix(base, whiteout))
		return nil
	case header.Typeflag == tar.TypeSymlink:
		file.Data = []byte(header.Linkname)
	case header.Typeflag == tar.TypeLink:
		file, err = linked(above, below, strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"))
	default:
		file.Data, err = io.ReadAll(content)
	}
	above[name] = file
	return err
}

// linked is the file that a hard link is another name of: one of the same layer that
// came before, or of those below.
func linked(above, below fstest.MapFS, name string) (*fstest.MapFile, error) {
	for _, layer := range []fstest.MapFS{above, below} {
		if file := layer[name]; file != nil {
			return file, nil
		}
	}
	return nil, fmt.Errorf("a hard link to %s, which is not there, cannot be shown", name)
}

// remove takes a file away, and all in it if it is a folder.
func remove(from fstest.MapFS, name string) {
	delete(from, name)
	empty(from, name+"/")
}

// empty takes away all whose names begin with dir, which ends in a slash or is empty.
func empty(from fstest.MapFS, dir string) {
	for name := range from {
		if strings.HasPrefix(name, dir) {
			delete(from, name)
		}
	}
}
