package cri

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// networkResults are the folders in which the CNI library (libcni) of the bundled containerd and of others caches the
// results of plugins: a file for each sandbox and interface. The library writes these files neither atomically nor with
// fsync, so a crash or a power cut may truncate one. With a truncated file, libcni refuses to remove the network, and the
// sandbox can never be stopped. Without a file, it removes the network.
var networkResults = []string{"/run/cni/results", "/var/lib/cni/results"}

// isTruncatedResult reports whether a sandbox could not be stopped because of a truncated file.
func isTruncatedResult(err error) bool {
	return err != nil && strings.Contains(err.Error(), "cached result")
}

// removeResults removes the files of a sandbox in the folders, or only truncated ones. All must go with a sandbox that
// another containerd than the present one started: the present one looks for them in another folder.
func removeResults(dirs []string, sandboxID string, onlyTruncated bool) error {
	var errs []error
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*-"+sandboxID+"-*"))
		errs = append(errs, err)
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && (!onlyTruncated || !json.Valid(text)) {
				errs = append(errs, os.Remove(file))
			}
		}
	}
	return errors.Join(errs...)
}
