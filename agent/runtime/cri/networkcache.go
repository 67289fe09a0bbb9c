package cri

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// networkResults is where containerd's CNI library (libcni) keeps what plugins have answered, a file per sandbox and
// interface. It neither writes them at once nor syncs them, so that a crash or a power cut leaves files that end
// too early; with such a file it refuses to remove the network, and the sandbox can never be stopped. Without a
// file it removes the network.
const networkResults = "/var/lib/cni/results"

// cutOff reports whether a sandbox could not be stopped because of such a file.
func cutOff(err error) bool { return err != nil && strings.Contains(err.Error(), "cached result") }

// dropCutResults removes the files of a sandbox in dir that end too early.
func dropCutResults(dir, sandboxID string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*-"+sandboxID+"-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && !json.Valid(text) {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}
