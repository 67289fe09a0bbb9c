package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// The committed definitions.zst is what the generator makes from the modules in go.mod.
func TestFileIsCurrent(t *testing.T) {
	if err := generate(); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "made")
	if out, err := exec.Command("go", "run", "-tags", "generated", "./pack", "-o", made).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !bytes.Equal(unpack(t, made), unpack(t, "../../apiserver/registry/definitions/definitions.zst")) {
		t.Error("definitions.zst is not up to date: run make openapi")
	}
}

func unpack(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	plain, err := r.DecodeAll(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}
