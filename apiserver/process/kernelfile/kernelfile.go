// Package kernelfile reads and writes small files, as the kernel has them in proc and in cgroups. No poller can wait for
// them, which package os finds out each time, with five system calls more.
package kernelfile

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Read returns the content of the file.
func Read(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for data := make([]byte, 0, 512); ; {
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) == cap(data) {
			data = append(data, make([]byte, 3*len(data))...)[:len(data)]
		}
	}
}

// Write makes the value the content of the file. It creates one where that is possible.
func Write(path, value string) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		_, err = unix.Write(fd, []byte(value))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
		return nil
	}
}

func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}
