// Package datadir creates the data folder and protects its content from other users.
//
// Other users may traverse the folder (mode 0711), as pods with user namespaces require, but neither list nor change
// it. Only the owner may access the files directly in it and its secretFolders.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

const (
	mode        os.FileMode = 0o711
	othersAll   os.FileMode = 0o077
	othersRead  os.FileMode = 0o044
	othersWrite os.FileMode = 0o022
)

// Open creates dir and the folders in it that users put files into, or corrects the permissions of existing ones. It
// returns each change as a phrase. It returns an error if dir is not empty and other users may write to it, because its
// content may come from them.
func Open(dir string) (changed []string, err error) {
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, fmt.Errorf("%w; choose a folder that you can write to", err)
	}
	at, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if at.Mode()&othersWrite != 0 {
		if err := checkEmpty(dir, at.Mode()); err != nil {
			return nil, err
		}
	}
	if err := removePermissions(dir, at.Mode(), othersRead|othersWrite, &changed); err != nil {
		return nil, err
	}
	for _, name := range []string{"pki", "images", "manifests"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	return changed, protectSecrets(dir, &changed)
}

func checkEmpty(dir string, is os.FileMode) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Readdirnames(1); errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf(
		"other users may write to %s (mode %04o), so its content may come from them: check it, "+
			"then run chmod %04o %[1]s, or choose another folder", dir, is.Perm(), mode)
}

// protectSecrets removes other users' permissions from the files directly in dir and from the secretFolders.
func protectSecrets(dir string, changed *[]string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	folders := map[string]bool{} // which other users must not traverse
	for _, name := range []string{"pki", "images", "manifests", "snapshots"} {
		folders[name] = true
	}
	for _, e := range entries {
		if !e.Type().IsRegular() && (!e.IsDir() || !folders[e.Name()]) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := removePermissions(filepath.Join(dir, e.Name()), info.Mode(), othersAll, changed); err != nil {
			return err
		}
	}
	return nil
}

// removePermissions removes permissions from the file or folder at path, and records the change.
func removePermissions(path string, is, away os.FileMode, changed *[]string) error {
	if is&away == 0 {
		return nil
	}
	next := is.Perm() &^ away
	if err := os.Chmod(path, next); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf(
				"other users may access %s (mode %04o), which belongs to another user: run chmod %04o %[1]s as that user", path,
				is.Perm(), next)
		}
		return err
	}
	*changed = append(*changed, fmt.Sprintf("%s: mode %04o, was %04o", path, next, is.Perm()))
	return nil
}
