// Package checkpoint keeps what a part of the agent must remember across a restart
// in a small file of its own: JSON with a checksum, as kubelet's are. After a loss
// of power the file is the old or the new one; one that is damaged all the same is
// found out and set aside, so that the part starts over instead of not at all.
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

// ErrDamaged is a file that is not what was written.
var ErrDamaged = errors.New("damaged")

// File is where a part keeps its state.
type File string

// Save writes v, which is a JSON object with at least one field, and returns when
// it is on the disk.
func (f File) Save(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) <= len("{}") {
		return fmt.Errorf("%T is no object with fields", v)
	}
	return f.Write(fmt.Appendf(body[:len(body)-1], `%s%d}`, mark, sum(body)))
}

// mark stands before the checksum of what is before it.
const mark = `,"checksum":`

func sum(body []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(body)
	return h.Sum32()
}

// Load reads what Save wrote into v: found is false where there is no file. The
// error of a damaged file is ErrDamaged; v may have been written to.
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
		return true, fmt.Errorf("%s: %w: its checksum is not that of its content", f, ErrDamaged)
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

// Remove removes the file; none is no error.
func (f File) Remove() error { return os.RemoveAll(string(f)) }

// StartOver sets a file aside that is of no use, to where nobody looks but a human;
// only the last one is kept. lost says why, where it went and what follows from it;
// err is that it could not be set aside.
func (f File) StartOver(why error, follows string) (lost, err error) {
	to := string(f) + ".damaged"
	if err := os.Rename(string(f), to); err != nil {
		return nil, fmt.Errorf("%w; it cannot be set aside: %w", why, err)
	}
	return fmt.Errorf("%w: it was moved to %s, and %s; nothing needs to be done", why, to, follows), nil
}

// Write puts text, as it is, in the place of the file, by way of one of another
// name.
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
