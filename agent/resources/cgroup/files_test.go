package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFillWaits checks that Manager writes a file that the kernel creates late, while another pod enables the
// controller.
func TestFillWaits(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	pod := filepath.Join(root, "kubepods", "pod")
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pod, "cgroup.controllers"), []byte("cpu hugetlb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(root, "late") // while it does not exist, creating a file through the link fails
	if err := os.Symlink(filepath.Join(late, "max"), filepath.Join(pod, "hugetlb.64KB.max")); err != nil {
		t.Fatal(err)
	}
	first, second := filepath.Join(root, "cgroup.subtree_control"), filepath.Join(root, "kubepods",
		"cgroup.subtree_control")
	for _, fifo := range []string{first, second} {
		if err := unix.Mkfifo(fifo, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	go func() { // the kernel: the second write returns when the files exist
		_, _ = os.ReadFile(first)
		_ = os.Mkdir(late, 0o755)
		_, _ = os.ReadFile(second)
	}()
	if err := fill(root, "kubepods/pod", "hugetlb", true, []value{{file: "hugetlb.64KB.max", value: "0"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(late, "max")); err != nil || string(got) != "0" {
		t.Errorf("the limit is %q, %v", got, err)
	}
}
