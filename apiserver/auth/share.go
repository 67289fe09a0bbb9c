package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// keys are what makes an installation itself.
type keys struct {
	Certificate []byte `json:"ca.crt"`
	Key         []byte `json:"ca.key"`
	Token       []byte `json:"admin.token"`
}

// Share makes several servers one installation: agree is told this one's keys and
// returns everybody's. A server that has no keys in dir takes those; one that has
// some keeps them, and differs says that they are others.
func Share(dir string, agree func(mine []byte) (ours []byte, err error)) (differs bool, err error) {
	mine, err := readKeys(dir)
	fresh := errors.Is(err, fs.ErrNotExist)
	if fresh {
		mine, err = newKeys()
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
	return !bytes.Equal(mine.Certificate, ours.Certificate) || !bytes.Equal(mine.Token, ours.Token), nil
}

// readKeys fails with fs.ErrNotExist where there are no keys yet.
func readKeys(dir string) (keys, error) {
	if _, err := os.Stat(filepath.Join(dir, "ca.crt")); err != nil {
		return keys{}, err
	}
	if _, err := OpenToken(filepath.Join(dir, "admin.token")); err != nil {
		return keys{}, err
	}
	var k keys
	var errs [3]error
	k.Certificate, errs[0] = os.ReadFile(filepath.Join(dir, "ca.crt"))
	k.Key, errs[1] = os.ReadFile(filepath.Join(dir, "ca.key"))
	k.Token, errs[2] = os.ReadFile(filepath.Join(dir, "admin.token"))
	return k, errors.Join(errs[:]...)
}

func newKeys() (keys, error) {
	authority, err := newAuthority()
	return keys{Certificate: authority.Cert, Key: authority.Key, Token: []byte(newToken() + "\n")}, err
}

// write writes the certificate last: without it there are no keys.
func (k keys) write(dir string) error {
	return errors.Join(
		WriteSecret(filepath.Join(dir, "ca.key"), k.Key),
		WriteSecret(filepath.Join(dir, "admin.token"), k.Token),
		WriteSecret(filepath.Join(dir, "ca.crt"), k.Certificate))
}
