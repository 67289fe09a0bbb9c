package cri_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"monopod/agent/runtime/oci"
)

// The import of an archive with images for another platform returns an error with their platform, but imports the
// images for this platform.
func TestImportOfAnotherPlatform(t *testing.T) {
	n := startNode(t)
	file := []oci.File{{Path: "true", Data: []byte("x"), Mode: 0o755}}
	foreign := oci.Image{Ref: "docker.io/library/foreign:1", Files: file, Arch: "s390x"}
	ours := oci.Image{Ref: "docker.io/library/ours:1", Files: file}
	for _, c := range []struct {
		images []oci.Image
		names  []string
	}{
		{[]oci.Image{foreign}, nil},
		{[]oci.Image{foreign, ours}, []string{"docker.io/library/ours:1"}},
	} {
		var packed bytes.Buffer
		if err := oci.Archive(&packed, c.images...); err != nil {
			t.Fatal(err)
		}
		names, err := n.runtime.ImportArchive(t.Context(), &packed)
		wrong := (*oci.WrongPlatform)(nil)
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(),
			"image docker.io/library/foreign:1 is built for s390x, this machine is ") ||
			wrong.OthersArrived != (c.names != nil) {
			t.Errorf("the import returned %v", err)
		}
		if !slices.Equal(names, c.names) {
			t.Errorf("imported %v, want %v", names, c.names)
		}
		if img, err := n.runtime.ImageStatus(t.Context(), foreign.Ref); img != nil || err != nil {
			t.Errorf("the runtime has the image of another platform: %v, error %v", img, err)
		}
	}
}
