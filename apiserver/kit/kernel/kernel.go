package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/guard"
)

// Watch sends a value after each change, which is when wait returns true. It closes the channel when ctx ends, which
// closes the file, or when wait returns false. It merges changes that follow each other before they are received. If
// open fails because the kernel does not support it, Watch never sends. It needs no timer.
func Watch(ctx context.Context, open func() (*os.File, error), wait func(*os.File) bool) <-chan struct{} {
	changes := make(chan struct{}, 1)
	file, err := open()
	if err != nil {
		context.AfterFunc(ctx, func() { close(changes) })
		return changes
	}
	stop := context.AfterFunc(ctx, func() { file.Close() })
	var reader *guard.Guard // reading a file does not panic
	reader.Spawn("kernel", func() {
		defer close(changes)
		defer file.Close()
		defer stop()
		for wait(file) {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	})
	return changes
}

// Netlink watches messages of a netlink family; bind binds the socket to the groups of interest, and wanted reports
// whether a type of messages is a change.
func Netlink(ctx context.Context, family int, bind func(fd int) error, wanted func(kind uint16) bool) <-chan struct{} {
	open := func() (*os.File, error) {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
		if err != nil {
			return nil, err
		}
		socket := os.NewFile(uintptr(fd), "netlink")
		if err := bind(fd); err != nil {
			socket.Close()
			return nil, err
		}
		return socket, nil
	}
	message := make([]byte, os.Getpagesize())
	return Watch(ctx, open, func(socket *os.File) bool {
		for {
			n, err := socket.Read(message)
			if err != nil {
				return errors.Is(err, unix.ENOBUFS) // what was lost in a full buffer is a change, too
			}
			const typeAt = 4 // in nlmsghdr
			if n >= unix.SizeofNlMsghdr && wanted(binary.NativeEndian.Uint16(message[typeAt:])) {
				return true
			}
		}
	})
}
