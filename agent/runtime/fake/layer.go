package fake

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

// Layer is a compressed layer; nil: it is larger than maxMetadata.
type Layer []byte

// maxUnpacked is the largest size of an uncompressed layer, in bytes.
const maxUnpacked = 16 << 20

func (m metadata) layer(name string) Layer { return Layer(m[name]) }

// Tree returns the files of all layers merged. It fails if a layer was skipped. A placeholder image has no files.
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

// Folder returns a folder of an image's files; an empty name is all of them.
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

// over applies a layer to the files of the layers below it.
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

// read returns the files of a layer, and removes the files from below that the layer deletes.
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

// Prefix and name of the files by which a layer deletes a file of a lower layer, or all files of a folder.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// add adds an entry of a layer to above, or deletes the files from below that a whiteout names.
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

// linked returns the target of a hard link: an earlier file of the same layer, or one of
// those below.
func linked(above, below fstest.MapFS, name string) (*fstest.MapFile, error) {
	for _, layer := range []fstest.MapFS{above, below} {
		if file := layer[name]; file != nil {
			return file, nil
		}
	}
	return nil, fmt.Errorf("a hard link to %s has no target", name)
}

// remove deletes a file, or a folder with all in it.
func remove(from fstest.MapFS, name string) {
	delete(from, name)
	empty(from, name+"/")
}

// empty deletes all files in dir, which ends in a slash or is empty.
func empty(from fstest.MapFS, dir string) {
	for name := range from {
		if strings.HasPrefix(name, dir) {
			delete(from, name)
		}
	}
}
