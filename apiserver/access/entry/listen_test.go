package entry

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// For an address that is in use, the error names the process that listens on it, and suggests another address.
func TestListenErrors(t *testing.T) {
	t.Parallel()
	for _, on := range []string{"127.0.0.1:0", ":0", "[::1]:0"} {
		l, err := net.Listen("tcp", on)
		if err != nil {
			continue // a machine without IPv6
		}
		defer l.Close()
		address := l.Addr().String()
		host := strings.TrimRight(address, "0123456789")
		_, err = listen("listen", address)
		want := fmt.Sprintf(
			"address already in use, by process %d entry.test; stop what uses it, or choose another address, "+
				"for example --listen=%s0,", os.Getpid(), host)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	_, err := listen("kubelet-listen", "192.0.2.1:6443")
	if want := "choose an address of this machine, or --kubelet-listen=0.0.0.0:6443 for all of them"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err = listen("listen", "none"); err == nil || !strings.Contains(err.Error(), "--listen: ") {
		t.Error(err)
	}
}
