// Package folder makes the data folder, and keeps what lies in it from others.
//
// Others may pass the folder (mode 0711), as the processes of a pod with users of
// its own have to, but neither list nor change it. Files at its top, and the
// folders named Secret, are their owner's alone.
package folder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

const (
	mode    os.FileMode = 0o711
	others  os.FileMode = 0o077
	reading os.FileMode = 0o044
	writing os.FileMode = 0o022
)

// secret are the folders that others must not pass.
func secret() []string { return []string{"pki", "images", "manifests", "snapshots"} }

// Open makes dir and the folders in it that a user fills, or checks those there
// are. It returns what it had to change, each as a phrase. A folder with content
// into which others may write is an error: what lies there may be theirs.
func Open(dir string) (changed []string, err error) {
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, fmt.Errorf("%w; choose a folder that you can write to", err)
	}
	at, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if at.Mode()&writing != 0 {
		if err := onlyIfEmpty(dir, at.Mode()); err != nil {
			return nil, err
		}
	}
	if err := narrow(dir, at.Mode(), reading|writing, &changed); err != nil {
		return nil, err
	}
	for _, name := range []string{"pki", "images", "manifests"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	return changed, closeSecrets(dir, &changed)
}

func onlyIfEmpty(dir string, is os.FileMode) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Readdirnames(1); errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("others may write into %s (mode %04o), so what lies there may be theirs: look through it, then run chmod %04o %[1]s, or choose another folder", dir, is.Perm(), mode)
}

// closeSecrets takes what others may do away from the files in dir and from the
// folders with secrets. What is no file or folder is left alone.
func closeSecrets(dir string, changed *[]string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	folders := map[string]bool{}
	for _, name := range secret() {
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
		if err := narrow(filepath.Join(dir, e.Name()), info.Mode(), others, changed); err != nil {
			return err
		}
	}
	return nil
}

// narrow takes permissions away from what is at path.
func narrow(path string, is, away os.FileMode, changed *[]string) error {
	if is&away == 0 {
		return nil
	}
	next := is.Perm() &^ away
	if err := os.Chmod(path, next); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("others may use %s (mode %04o), and it belongs to another user: run chmod %04o %[1]s as that user", path, is.Perm(), next)
		}
		return err
	}
	*changed = append(*changed, fmt.Sprintf("%s: mode %04o, was %04o", path, next, is.Perm()))
	return nil
}
