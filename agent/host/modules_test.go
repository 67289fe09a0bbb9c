package host

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// The dependencies of a module are loaded before it; modules.dep lists them in reverse.
func TestDependencies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modules.dep")
	if err := os.WriteFile(path, []byte("kernel/fs/overlayfs/overlay.ko.xz:\n"+
		"kernel/net/netfilter/nf-nat.ko: kernel/net/nf_conntrack.ko kernel/lib/libcrc32c.ko\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := dependencies(path)
	want := map[string][]string{
		"overlay": {"kernel/fs/overlayfs/overlay.ko.xz"},
		"nf_nat":  {"kernel/lib/libcrc32c.ko", "kernel/net/nf_conntrack.ko", "kernel/net/netfilter/nf-nat.ko"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
