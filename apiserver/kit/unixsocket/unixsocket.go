// Package unixsocket opens Unix sockets for their owner only.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// maxPath is the maximum length of the path of a Unix socket on Linux (sun_path), in bytes.
const maxPath = 107

// Check returns an error for a path that is too long.
func Check(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("%s: the path of a socket can have at most %d bytes, this one has %d: choose a shorter --data-dir",
			path, maxPath, len(path))
	}
	return nil
}

// Listen listens at path. Only the owner can connect. It replaces an earlier socket, such as that of a process that died.
func Listen(path string) (net.Listener, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
