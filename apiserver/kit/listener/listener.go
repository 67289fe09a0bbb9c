// Package listener finds the process that listens on a TCP port of this machine.
package listener

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Of returns the process that listens on an address, or on its port of all addresses. It finds only processes of
// the same user, unless it runs as root.
func Of(proc, address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	wanted, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(filepath.Join(proc, "self", "net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if inode, on := listening(line); inode != "" && on.Port() == uint16(wanted) && overlap(on.Addr(), address) {
				sockets["socket:["+inode+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return ""
	}
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	if err != nil {
		return ""
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			pid := filepath.Dir(filepath.Dir(file))
			name, _ := os.ReadFile(filepath.Join(pid, "comm")) // the PID is enough
			return strings.TrimSpace("process " + filepath.Base(pid) + " " + strings.TrimSpace(string(name)))
		}
	}
	return ""
}

// listening returns the inode and the address of a listening socket from a line of /proc/net/tcp (proc_net(5)):
//
//	0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 …
func listening(line string) (inode string, on netip.AddrPort) {
	f := strings.Fields(line)
	if len(f) < 10 || f[3] != "0A" {
		return "", on
	}
	digits, port, _ := strings.Cut(f[1], ":")
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return "", on
	}
	var bytes []byte
	for len(digits) >= 8 { // words in the machine's byte order, which is little-endian on all supported machines
		word, err := strconv.ParseUint(digits[:8], 16, 32)
		if err != nil {
			return "", on
		}
		bytes, digits = binary.LittleEndian.AppendUint32(bytes, uint32(word)), digits[8:]
	}
	addr, ok := netip.AddrFromSlice(bytes)
	if !ok {
		return "", on
	}
	return f[9], netip.AddrPortFrom(addr.Unmap(), uint16(number))
}

// overlap reports whether a socket on an address prevents a socket on the same port of another address.
func overlap(on netip.Addr, address string) bool {
	asked, err := netip.ParseAddrPort(address)
	return err != nil || asked.Addr().IsUnspecified() || on.IsUnspecified() || asked.Addr().Unmap() == on
}
