package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// keys contains the files below pki/ that all servers of an installation share, by name.
type keys map[string][]byte

// keyFiles returns the names of keys in the order of their writes. The keys are complete when the last file exists.
func keyFiles() []string {
	return []string{"ca.key", "admin.token", "view.token", "sa.key", "ca.crt"}
}

// Share lets several servers use the same keys. agree gets this server's keys and returns the installation's. A server
// without keys in dir stores the installation's; a server with different keys keeps its own, and Share returns true.
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

// OpenKubeletAuthority reads kubelet-ca.crt and kubelet-ca.key in dir, or creates them. This authority signs the serving
// certificates of kubelets on other machines. It is not the cluster's, because a node chooses the names in its
// certificate: no client of the API server trusts it. agree is that of Share; nil: there is one server.
func OpenKubeletAuthority(dir string, agree func(mine []byte) (ours []byte, err error)) (*Authority, error) {
	base := filepath.Join(dir, "kubelet-ca")
	mine, err := Keep(base, func() (Pair, error) { return newAuthority("monopod-kubelet-ca") })
	if err != nil {
		return nil, err
	}
	if agree == nil {
		return load(base, mine, nil)
	}
	data, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	if data, err = agree(data); err != nil {
		return nil, err
	}
	var ours Pair
	if err := json.Unmarshal(data, &ours); err != nil {
		return nil, err
	}
	if !bytes.Equal(ours.Cert, mine.Cert) { // another server was the first
		if err := errors.Join(WriteSecret(base+".key", ours.Key), WriteSecret(base+".crt", ours.Cert)); err != nil {
			return nil, err
		}
	}
	return load(base, ours, nil)
}

// readKeys reads the keys and creates missing ones.
func readKeys(dir string) (keys, error) {
	_, err := OpenAuthority(dir)
	if err != nil {
		return nil, err
	}
	k := keys{}
	for _, name := range keyFiles() {
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

// newKeys creates keys in a temporary folder.
func newKeys(in string) (keys, error) {
	dir, err := os.MkdirTemp(in, "new.*") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return readKeys(dir)
}

// differ reports whether a file that both contain differs.
func (k keys) differ(other keys) bool {
	for name, content := range k {
		if theirs, ok := other[name]; ok && !bytes.Equal(content, theirs) {
			return true
		}
	}
	return false
}

func (k keys) write(dir string) error {
	for _, name := range keyFiles() {
		if k[name] == nil {
			continue
		}
		if err := WriteSecret(filepath.Join(dir, name), k[name]); err != nil {
			return err
		}
	}
	return nil
}
