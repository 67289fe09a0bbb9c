// Package checkpoint stores state that a part of the agent needs after a restart in a small file: JSON with a checksum,
// like kubelet's. After a power failure the file has the old or the new content. A file that is damaged nevertheless is
// detected and moved aside, so that the part can start without it.
package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrDamaged means that the content of a file does not match its checksum.
var ErrDamaged = errors.New("damaged")

// File is the path of a checkpoint.
type File string

// Save writes v, which must encode as a JSON object with at least one field, and returns when it is on the disk.
func (f File) Save(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) <= len("{}") {
		return fmt.Errorf("%T does not encode as a JSON object with fields", v)
	}
	return f.Write(fmt.Appendf(body[:len(body)-1], `%s%d}`, mark, sum(body)))
}

// mark is the text before the checksum. The checksum covers everything before mark.
const mark = `,"checksum":`

func sum(body []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(body)
	return h.Sum32()
}

// Load decodes the file into v; found is false if there is no file. It returns ErrDamaged for a damaged file, of
// which v may contain a part.
func (f File) Load(v any) (found bool, err error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text = bytes.TrimSpace(text)
	i := bytes.LastIndex(text, []byte(mark))
	if i < 0 {
		return true, fmt.Errorf("%s: %w: it has no checksum", f, ErrDamaged)
	}
	body := append(bytes.Clone(text[:i]), '}')
	if want := fmt.Sprintf("%s%d}", mark, sum(body)); string(text[i:]) != want {
		return true, fmt.Errorf("%s: %w: its checksum does not match", f, ErrDamaged)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return true, fmt.Errorf("%s: %w: %w", f, ErrDamaged, err)
	}
	return true, nil
}

// Exists reports whether there is a file.
func (f File) Exists() bool {
	_, err := os.Stat(string(f))
	return err == nil
}

// Remove removes the file; a missing one is not an error.
func (f File) Remove() error { return os.RemoveAll(string(f)) }

// StartOver moves a damaged checkpoint aside, so that a user can inspect it; it replaces an earlier one. lost is an
// error for the log with the cause, the new path and the consequence (follows). err means that the file was not moved.
func (f File) StartOver(why error, follows string) (lost, err error) {
	to := string(f) + ".damaged"
	if err := os.Rename(string(f), to); err != nil {
		return nil, fmt.Errorf("%w; it cannot be set aside: %w", why, err)
	}
	return fmt.Errorf("%w: it was moved to %s, and %s; no action is needed", why, to, follows), nil
}

// Write atomically replaces the content of the file by text.
func (f File) Write(text []byte) error {
	temp := string(f) + ".tmp"
	err := write(temp, text)
	if err == nil {
		err = os.Rename(temp, string(f))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	dir, err := os.Open(filepath.Dir(string(f)))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func write(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
