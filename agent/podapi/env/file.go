package env

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxFile is the maximum size of a file of variables, in bytes (KEP-3721).
const MaxFile = 64 << 10

// fileKey returns false for an optional file or key that does not exist.
func fileKey(ref *corev1.FileKeySelector, facts Facts) (string, bool, error) {
	if facts.File == nil {
		return "", false, fmt.Errorf("%w: files of volumes cannot be read here", ErrConfig)
	}
	data, err := facts.File(ref.VolumeName, ref.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, missing(ref.Optional, "file %q not found in volume %q", ref.Path, ref.VolumeName)
	case err != nil:
		return "", false, fmt.Errorf("%w: cannot read file %q of volume %q: %w", ErrConfig, ref.Path, ref.VolumeName, err)
	}
	vars, err := ParseFile(data)
	if err != nil {
		return "", false, fmt.Errorf("%w: file %q of volume %q: %w", ErrConfig, ref.Path, ref.VolumeName, err)
	}
	if value, ok := vars[ref.Key]; ok {
		return value, true, nil
	}
	return "", false,
		missing(ref.Optional, "couldn't find key %s in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
}

// ParseFile parses variables in the format of Kubernetes 1.35 and later, a subset of a POSIX shell's assignments
// without expansion: NAME='value', where the value may span lines; blank lines and lines that begin with # are
// skipped. Of duplicate names the last value counts, as in a shell.
func ParseFile(data []byte) (map[string]string, error) {
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return nil, lineError(data[:at], "a NUL byte cannot be part of a variable")
	}
	vars, rest := map[string]string{}, data
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if text := strings.TrimSpace(string(line)); text == "" || text[0] == '#' {
			rest = after
			continue
		}
		name, value, after, why := assignment(rest)
		if why != "" {
			return nil, lineError(data[:len(data)-len(rest)], why)
		}
		vars[name], rest = value, after
	}
	return vars, nil
}

// assignment parses one assignment at the start of data. why is the syntax error; empty: none.
func assignment(data []byte) (name, value string, rest []byte, why string) {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	before, _, found := bytes.Cut(line, []byte("="))
	if !found {
		return "", "", nil, "must be NAME='value'"
	}
	name = strings.TrimSpace(string(before))
	if wrong := validation.IsRelaxedEnvVarName(name); len(wrong) > 0 {
		return "", "", nil, "the name is not valid: " + wrong[0]
	}
	quoted, found := bytes.CutPrefix(bytes.TrimLeft(data[len(before)+1:], " \t"), []byte("'"))
	if !found {
		return "", "", nil, "the value must be in single quotes"
	}
	text, rest, found := bytes.Cut(quoted, []byte("'"))
	if !found {
		return "", "", nil, "the closing quote of the value is missing"
	}
	behind, rest, _ := bytes.Cut(rest, []byte("\n"))
	if len(bytes.TrimSpace(behind)) > 0 {
		return "", "", nil, "nothing may follow the closing quote of the value"
	}
	return name, string(text), rest, ""
}

// lineError returns an error with the line's number. It omits the line's content, which may be secret.
func lineError(before []byte, why string) error {
	return fmt.Errorf("line %d: %s", bytes.Count(before, []byte("\n"))+1, why)
}
