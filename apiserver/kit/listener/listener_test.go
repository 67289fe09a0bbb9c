package listener

import (
	"net/netip"
	"testing"
)

func TestListening(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"  0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0": "127.0.0.1:6443",
		"  0: 00000000000000000000000001000000:192B 00000000000000000000000000000000:0000 0A 00000000:00000000 " +
			"00:00000000 00000000 0 0 4242 1 0": "[::1]:6443",
		"  1: 0100007F:192B 0100007F:A0A0 01 00000000:00000000 00:00000000 00000000     0        0 4242 1 0 100 0 0 10 0": "",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode":                "",
		"  0: 0100007F:X 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242":                     "",
	} {
		inode, on := listening(line)
		if want == "" && inode != "" || want != "" && (inode != "4242" || on != netip.MustParseAddrPort(want)) {
			t.Errorf("%s: %s %s", line, inode, on)
		}
	}
}
