package runtimetest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/testdata/web/image"
)

func testImages(t *testing.T, env Env) {
	for _, form := range []string{"tar", "tar.gz"} {
		t.Run(form, func(t *testing.T) { testImage(t, env, form) })
	}
}

func testImage(t *testing.T, env Env, form string) {
	ctx, r := t.Context(), env.Runtime
	name := "monopod.local/runtimetest:" + uuid.NewString()
	file := writeArchive(t, name, form)

	for range 2 { // the import is idempotent
		names, err := r.ImportImages(ctx, file)
		if err != nil || !slices.Equal(names, []string{name}) {
			t.Fatalf("imported %q, %v", names, err)
		}
	}
	img, err := r.ImageStatus(ctx, name)
	if err != nil || img == nil {
		t.Fatalf("status %v, %v", img, err)
	}
	if !slices.Contains(img.RepoTags, name) || img.Id == "" || img.Size == 0 || !img.Pinned {
		t.Errorf("status %v", img)
	}
	if byID, err := r.ImageStatus(ctx, img.Id); err != nil || byID.GetId() != img.Id {
		t.Errorf("status by ID: %v, error %v", byID, err)
	}
	listed := func() bool {
		list, err := r.ListImages(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list, func(i *cri.Image) bool { return slices.Contains(i.RepoTags, name) })
	}
	if !listed() {
		t.Error("the image is not listed")
	}
	for range 2 {
		if err := r.RemoveImage(ctx, name); err != nil {
			t.Fatalf("remove: %v", err)
		}
	}
	if img, err := r.ImageStatus(ctx, name); img != nil || err != nil {
		t.Errorf("status of a removed image: %v, %v", img, err)
	}
	if listed() {
		t.Error("the removed image is listed")
	}
	if _, err := r.ImportImages(ctx, filepath.Join(t.TempDir(), "none.tar")); err == nil {
		t.Error("the import of a missing archive succeeded")
	}
}

// writeArchive creates an image with unique content, because removing an image may remove others with the same
// content.
func writeArchive(t *testing.T, name, form string) (file string) {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = plain{&out}
	if form == "tar.gz" {
		w = gzip.NewWriter(&out)
	}
	if err := errors.Join(image.Write(w, name, []byte(name)), w.Close()); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "image."+form)
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
