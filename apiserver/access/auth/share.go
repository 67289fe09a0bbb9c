package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// keys are what makes an installation itself: files below pki/, by their names.
type keys map[string][]byte

// shared are the files, in the order in which they are written: without the last
// there are no keys.
func shared() []string {
	return []string{"ca.key", "admin.token", "view.token", "sa.key", "ca.crt"}
}

// Share makes several servers one installation: agree is told this one's keys and
// returns everybody's. A server that has no keys in dir takes those; one that has
// some keeps them, and differs says that they are others.
func Share(dir string, agree func(mine []byte) (ours []byte, err error)) (differs bool, err error) {
	_, err = os.Stat(filepath.Join(dir, "ca.crt"))
	fresh := errors.Is(err, fs.ErrNotExist)
	var mine keys
	switch {
	case fresh:
		mine, err = newKeys(dir)
	case err == nil:
		mine, err = readKeys(dir)
	}
	if err != nil {
		return false, err
	}
	data, err := json.Marshal(mine)
	if err != nil {
		return false, err
	}
	data, err = agree(data)
	if err != nil {
		return false, err
	}
	var ours keys
	if err := json.Unmarshal(data, &ours); err != nil {
		return false, err
	}
	if fresh {
		return false, ours.write(dir)
	}
	return mine.differ(ours), nil
}

// readKeys makes those that are missing.
func readKeys(dir string) (keys, error) {
	_, err := OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	k := keys{}
	for _, name := range shared() {
		path := filepath.Join(dir, name)
		switch filepath.Ext(name) {
		case ".token":
			_, err = OpenToken(path)
		case ".key":
			_, err = OpenKey(path)
		}
		if err == nil {
			k[name], err = os.ReadFile(path)
		}
		if err != nil {
			return nil, err
		}
	}
	return k, nil
}

// newKeys makes them where nobody looks for them.
func newKeys(in string) (keys, error) {
	dir, err := os.MkdirTemp(in, "new.*") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return readKeys(dir)
}

// differ says that one of the files both have is another.
func (k keys) differ(other keys) bool {
	for name, content := range k {
		if theirs, ok := other[name]; ok && !bytes.Equal(content, theirs) {
			return true
		}
	}
	return false
}

func (k keys) write(dir string) error {
	for _, name := range shared() {
		if k[name] == nil {
			continue
		}
		if err := WriteSecret(filepath.Join(dir, name), k[name]); err != nil {
			return err
		}
	}
	return nil
}
