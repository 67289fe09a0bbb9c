package auth_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"monopod/apiserver/auth"
)

func file(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Servers that share a state use the keys of the first one. A server that already has keys keeps them, and Share
// reports that they differ.
func TestShare(t *testing.T) {
	t.Parallel()
	var said []byte
	agree := func(mine []byte) ([]byte, error) {
		if said == nil {
			said = mine
		}
		return said, nil
	}
	first, second, old := t.TempDir(), t.TempDir(), t.TempDir()
	if _, err := auth.OpenAuthority(old); err != nil {
		t.Fatal(err)
	}
	before := file(t, old, "ca.crt")
	for _, dir := range []string{first, second, first, second} { // the second time they have keys
		if differs, err := auth.Share(dir, agree); err != nil || differs {
			t.Fatalf("%s: differs %t, %v", dir, differs, err)
		}
	}
	if differs, err := auth.Share(old, agree); err != nil || !differs {
		t.Errorf("a server with other keys: differs %t, %v", differs, err)
	}
	if !bytes.Equal(file(t, old, "ca.crt"), before) {
		t.Error("existing keys were replaced")
	}
	for _, name := range []string{"ca.crt", "ca.key", "admin.token"} {
		if !bytes.Equal(file(t, first, name), file(t, second, name)) {
			t.Errorf("%s is not the same", name)
		}
	}
	if _, err := auth.OpenAuthority(second); err != nil {
		t.Error(err)
	}
}

// If agree fails, no file is created.
func TestShareFails(t *testing.T) {
	t.Parallel()
	dir, boom := t.TempDir(), errors.New("boom")
	if _, err := auth.Share(dir, func([]byte) ([]byte, error) { return nil, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
