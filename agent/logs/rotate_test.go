package logs_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"monopod/agent/logs"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// filesOf returns the names of the files in the folder of a log.
func filesOf(t *testing.T, path string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// cut rotates a log and then writes to the new file.
func cut(t *testing.T, r logs.Rotation, path string, minute int, text string) {
	t.Helper()
	err := r.Rotate(path, noon.Add(time.Duration(minute)*time.Minute),
		func() error { return os.WriteFile(path, []byte(text), 0o640) })
	if err != nil {
		t.Fatal(err)
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	path := write(t, record(0, "stdout", "F", "file 0"))
	r := logs.Rotation{MaxSize: 10, MaxFiles: 4}
	for i := 1; i <= 5; i++ {
		if !r.Due(path) {
			t.Fatal("the rotation is not due")
		}
		cut(t, r, path, i, record(i, "stdout", "F", fmt.Sprint("file ", i)))
	}
	want := []string{"0.log", "0.log.20260101-120300.gz", "0.log.20260101-120400.gz", "0.log.20260101-120500"}
	if got := filesOf(t, path); !slices.Equal(got, want) {
		t.Errorf("files: %v", got)
	}
	if got := unzipped(t, path+".20260101-120300.gz"); !strings.Contains(got, "file 2\n") {
		t.Errorf("the compressed file contains %q", got)
	}
	if got := unrotated(t, path, -1); got != "file 4\nfile 5\n" {
		t.Errorf("Read returned %q", got)
	}
	if (logs.Rotation{MaxSize: -1}).Due(path) || (logs.Rotation{MaxSize: 1 << 20}).Due(path) || r.Due(path+".none") {
		t.Error("Due reports true for a disabled rotation, a small file or a missing file")
	}
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unrotated(t *testing.T, path string, tail int64) string {
	t.Helper()
	var out bytes.Buffer
	if err := logs.Read(t.Context(), path, logs.Options{Tail: tail, Limit: -1}, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFailedReopenUndoesRotation(t *testing.T) {
	t.Parallel()
	path := write(t, record(0, "stdout", "F", "kept"))
	refused := errors.New("no such container")
	err := logs.DefaultRotation().Rotate(path, noon, func() error { return refused })
	if !errors.Is(err, refused) {
		t.Errorf("error: %v", err)
	}
	if got := filesOf(t, path); !slices.Equal(got, []string{"0.log"}) || unrotated(t, path, -1) != "kept\n" {
		t.Errorf("files after the failed rotation: %v", got)
	}
}

func TestRotateAfterACrash(t *testing.T) {
	t.Parallel()
	path := write(t, record(9, "stdout", "F", "now"))
	for name, text := range map[string]string{
		".20260101-110000":     record(1, "stdout", "F", "one"), // already compressed, but not removed
		".20260101-110000.gz":  "half",
		".20260101-110100":     record(2, "stdout", "F", "two"),
		".20260101-110100.tmp": "half", // an interrupted compression
	} {
		if err := os.WriteFile(path+name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	cut(t, logs.DefaultRotation(), path, 0, record(10, "stdout", "F", "new"))
	want := []string{"0.log", "0.log.20260101-110000.gz", "0.log.20260101-110100.gz", "0.log.20260101-120000"}
	if got := filesOf(t, path); !slices.Equal(got, want) {
		t.Errorf("files: %v", got)
	}
	if got := unzipped(t, path+".20260101-110000.gz"); !strings.Contains(got, "one") {
		t.Errorf("the older file contains %q", got)
	}
}

func TestReadAcrossFiles(t *testing.T) {
	t.Parallel()
	path := write(t, record(1, "stdout", "F", "one")+record(2, "stdout", "F", "two")+record(3, "stdout", "F", "three"))
	cut(t, logs.DefaultRotation(), path, 0, record(4, "stdout", "P", "fo")+record(4, "stdout", "F", "ur")+
		record(5, "stdout", "F", "five"))
	for tail, want := range map[int64]string{
		-1: "one\ntwo\nthree\nfour\nfive\n", 0: "", 1: "five\n", 2: "four\nfive\n", 3: "three\nfour\nfive\n",
		5: "one\ntwo\nthree\nfour\nfive\n", 9: "one\ntwo\nthree\nfour\nfive\n",
	} {
		if got := unrotated(t, path, tail); got != want {
			t.Errorf("tail %d: %q", tail, got)
		}
	}
	if err := os.Remove(path); err != nil { // as after the rename, before the writer reopens the log
		t.Fatal(err)
	}
	if got := unrotated(t, path, 2); got != "two\nthree\n" {
		t.Errorf("without the new file: %q", got)
	}
}

// A reader gets every line once, even if it is slower than the rotation.
func TestFollowAcrossFiles(t *testing.T) {
	t.Parallel()
	path := write(t, record(0, "stdout", "F", "line 0"))
	done := make(chan struct{})
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(logs.Read(t.Context(), path, logs.Options{Tail: -1, Limit: -1, Done: done}, w))
	}()
	first := make([]byte, len("line 0\n"))
	if _, err := io.ReadFull(r, first); err != nil { // Read has opened the file
		t.Fatal(err)
	}
	want := ""
	for i := 1; i < 3; i++ { // while the reader blocks
		add(t, path, record(i, "stdout", "F", fmt.Sprintf("line %d before", i)))
		if err := os.Rename(path, fmt.Sprintf("%s.2026010%d-000000", path, i)); err != nil {
			t.Fatal(err)
		}
		add(t, path, record(i, "stdout", "F", fmt.Sprintf("line %d after", i)))
		want += fmt.Sprintf("line %d before\nline %[1]d after\n", i)
	}
	close(done)
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != want {
		t.Errorf("got %q, %v; want %q", rest, err, want)
	}
}

func TestRotationFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                             "<nil>",
		"--container-log-max-size=1Gi": "<nil>",
		"--container-log-max-size=-1":  "<nil>",
		"--container-log-max-files=1":  "--container-log-max-files must be at least 2, got 1",
		"--container-log-max-size=0":   "--container-log-max-size must not be 0; a negative value disables rotation",
		"--container-log-max-size=much": `invalid argument "much" for "--container-log-max-size" flag: quantities ` +
			`must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
		"--container-log-monitor-interval=0": "--container-log-monitor-interval must be positive, got 0s",
	} {
		var r logs.Rotation
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		r.Flags(f)
		err := f.Parse(strings.Fields(args))
		if err == nil {
			err = r.Check()
		}
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s: %s", args, got)
		}
	}
}
