package entry

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"monopod/apiserver/kit/listener"
)

// listen listens on the address of a flag. Its error says what to do.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	host, port, _ := net.SplitHostPort(address)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, unix.EADDRINUSE):
		by := ""
		if holder := listener.Of("/proc", address); holder != "" {
			by = ", by " + holder
		}
		return nil, fmt.Errorf(
			"--%s: %w%s; stop what uses it, or choose another address, for example --%s=%s, which picks a free port", flag, err,
			by, flag, net.JoinHostPort(host, "0"))
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--%s: %w; choose an address of this machine, or --%s=%s for all of them", flag, err, flag,
			net.JoinHostPort("0.0.0.0", port))
	case errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("--%s: %w; ports below 1024 need root: use sudo, or choose another port", flag, err)
	}
	return nil, fmt.Errorf("--%s: %w; give it as HOST:PORT, for example --%s=127.0.0.1:0", flag, err, flag)
}
