package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	dataLink = "..data"     // link to the folder of the current version
	dataTemp = "..data_tmp" // its replacement
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode os.FileMode
	User *int64 // its owner; nil: the agent's user
}

// Files are the files of a volume by their path in it.
type Files map[string]File

// WriteAtomic makes dir contain exactly files. Readers see either the old or the new set: the files of a version are in
// a hidden folder, the names in dir are links through ..data, and an update is one rename of ..data. If the files have
// not changed, WriteAtomic writes nothing, but completes an interrupted update. Members of group, if there is one, may
// read the files.
func WriteAtomic(dir string, files Files, group *int64) error {
	current, _ := os.Readlink(filepath.Join(dir, dataLink))
	if current == "" || !same(filepath.Join(dir, current), files, group) {
		version, err := newVersion(dir, files, group)
		if err != nil {
			return err
		}
		current = filepath.Base(version)
		if err := swap(dir, current); err != nil {
			return errors.Join(err, os.RemoveAll(version))
		}
	}
	keep := map[string]bool{dataLink: true, current: true}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		keep[top] = true
		err := os.Symlink(filepath.Join(dataLink, top), filepath.Join(dir, top))
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	// Remove old names and older versions.
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if keep[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// newVersion writes the files to a new folder.
func newVersion(dir string, files Files, group *int64) (string, error) {
	if err := conflict(files); err != nil {
		return "", err
	}
	version, err := os.MkdirTemp(dir, "..v_*")
	if err != nil {
		return "", fmt.Errorf("create a new version: %w", errors.Unwrap(err))
	}
	err = writeVersion(version, files)
	if err == nil { // dir, too, gets the group
		err = IgnoreRights(ApplyFSGroup(dir, group, true, nil))
	}
	if err != nil {
		return "", errors.Join(withoutVersion(err, version), os.RemoveAll(version))
	}
	return version, nil
}

// conflict returns an error if a path is both a file and a folder.
func conflict(files Files) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			if _, both := files[dir]; both {
				return fmt.Errorf("conflicting paths %q and %q", dir, name)
			}
		}
	}
	return nil
}

// withoutVersion removes the random name of a version from an error that users see.
func withoutVersion(err error, version string) error {
	at := &os.PathError{}
	if errors.As(err, &at) {
		rest, _ := strings.CutPrefix(at.Path, version)
		at.Path = strings.TrimPrefix(rest, "/")
	}
	return err
}

// same reports whether the version on disk has exactly these files.
func same(version string, files Files, group *int64) bool {
	found := 0
	err := filepath.WalkDir(version, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(version, path)
		f, ok := files[rel]
		if !ok || !sameFile(path, f, group) {
			return fs.ErrInvalid
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}

func sameFile(path string, f File, group *int64) bool {
	want := f.Mode.Perm()
	if group != nil {
		want |= GroupReads
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != want && info.Mode().Perm() != f.Mode.Perm() {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && bytes.Equal(data, f.Data)
}

func writeVersion(version string, files Files) error {
	if err := os.Chmod(version, 0o755); err != nil {
		return err
	}
	for name, f := range files {
		path := filepath.Join(version, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, f.Mode.Perm()); err != nil {
			return err
		}
		if f.User != nil {
			if err := IgnoreRights(os.Chown(path, int(*f.User), -1)); err != nil {
				return err
			}
		}
		if err := os.Chmod(path, f.Mode.Perm()); err != nil { // regardless of the umask
			return err
		}
	}
	return nil
}

// swap replaces the current version by the new one.
func swap(dir, version string) error {
	temp := filepath.Join(dir, dataTemp)
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(version, temp); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, dataLink))
}
