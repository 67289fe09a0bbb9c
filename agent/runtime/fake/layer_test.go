package fake

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

// pack returns a layer with files, and with folders for names that end in a slash.
func pack(t *testing.T, names ...string) Layer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(name)[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTree(t *testing.T) {
	t.Parallel()
	low := pack(t, "./", "./etc/", "./etc/a", "./etc/b", "./lib/", "./lib/x", "./lib/y/z")
	for _, tc := range []struct {
		what  string
		upper Layer
		want  string
	}{
		{"added file", pack(t, "new"), "etc etc/a etc/b lib lib/x lib/y/z new"},
		{"removed file", pack(t, "etc/.wh.a"), "etc etc/b lib lib/x lib/y/z"},
		{"removed folder", pack(t, ".wh.lib"), "etc etc/a etc/b"},
		{"opaque folder", pack(t, "lib/", "lib/new", "lib/.wh..wh..opq"), "etc etc/a etc/b lib lib/new"},
		{"file replaces folder", pack(t, "lib"), "etc etc/a etc/b lib"},
	} {
		got, err := (&Image{Layers: []Layer{low, tc.upper}}).Tree()
		if names := strings.Join(slices.Sorted(maps.Keys(got)), " "); err != nil || names != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.what, names, err, tc.want)
		}
	}
	if data, err := fs.ReadFile(mustTree(t, low), "lib/y/z"); err != nil || string(data) != "./lib/y/z" {
		t.Errorf("content %q, %v", data, err)
	}
}

func mustTree(t *testing.T, l Layer) fs.FS {
	t.Helper()
	tree, err := (&Image{Layers: []Layer{l}}).Tree()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// relink returns a layer with a hard link to the file etc/a.
func relink(t *testing.T) Layer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "again", Typeflag: tar.TypeLink, Linkname: "etc/a"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A hard link to a file of a lower layer has its content.
func TestTreeOfLinkBelow(t *testing.T) {
	t.Parallel()
	tree, err := (&Image{Layers: []Layer{pack(t, "etc/a"), relink(t)}}).Tree()
	if err != nil {
		t.Fatal(err)
	}
	if data, err := fs.ReadFile(tree, "again"); err != nil || string(data) != "etc/a" {
		t.Errorf("content %q, %v", data, err)
	}
}

// Tree returns an error with the reason for layers that it does not support.
func TestTreeOfInvalidImages(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]Layer{
		"at most 1048576 bytes": nil,
		"image broken: ": Layer("not an archive, but as long as a header" + strings.Repeat("x",
			512)),
		"a hard link to etc/a":     relink(t),
		"more than 16777216 bytes": pack(t, slices.Repeat([]string{"x"}, maxUnpacked/1024)...),
	} {
		if _, err := (&Image{ID: "broken", Layers: []Layer{l}}).Tree(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
