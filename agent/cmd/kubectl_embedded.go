//go:build kubectl

package cmd

import (
	"bytes"
	_ "embed" // the program
	"errors"
	"fmt"
	"os"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// packed is Kubernetes' kubectl, compressed: `make build TAGS=kubectl` puts it here.
//
//go:embed kubectl.zst
var packed []byte

// program returns the path of kubectl: a file in memory, which exists as long as the process does.
func program() (string, error) {
	path, err := unpack()
	if err != nil {
		return "", fmt.Errorf("cannot unpack kubectl: %w", err)
	}
	return path, nil
}

func unpack() (string, error) {
	from, err := zstd.NewReader(bytes.NewReader(packed), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return "", err
	}
	defer from.Close()
	fd, err := unix.MemfdCreate("kubectl", 0)
	if err != nil {
		return "", err
	}
	// The descriptor stays open, and a second one is read: a file that is open for writing cannot be executed.
	file := os.NewFile(uintptr(fd), "kubectl")
	_, err = from.WriteTo(file)
	if err := errors.Join(err, file.Chmod(0o700)); err != nil {
		return "", err
	}
	read, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", read), file.Close()
}
