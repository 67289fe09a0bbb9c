package rules

import "testing"

func TestPortKey(t *testing.T) {
	t.Parallel()
	all6 := make([]byte, 16)
	for _, tt := range []struct {
		in   Port
		is4  bool
		want []byte
		bad  bool
	}{
		{Port{HostPort: 80}, true, []byte{0, 0, 0, 0, 6, 0, 0, 0, 0, 80, 0, 0}, false},
		{Port{HostPort: 80}, false, append(all6[:16:16], 6, 0, 0, 0, 0, 80, 0, 0), false},
		{Port{HostPort: 0x1234, Protocol: "UDP", HostIP: "192.168.0.1"}, true,
			[]byte{192, 168, 0, 1, 17, 0, 0, 0, 0x12, 0x34, 0, 0}, false},
		{Port{HostPort: 80, HostIP: "0.0.0.0"}, false, nil, false},
		{Port{HostPort: 80, HostIP: "::1"}, true, nil, false},
		{Port{HostPort: 80, Protocol: "sctp", HostIP: "::"}, false, append(all6[:16:16], 132, 0, 0, 0, 0, 80, 0, 0), false},
		{Port{HostPort: 80, Protocol: "icmp"}, true, nil, true},
		{Port{HostPort: 80, HostIP: "web"}, true, nil, true},
	} {
		got, err := tt.in.key(tt.is4)
		if (err != nil) != tt.bad || string(got) != string(tt.want) {
			t.Errorf("%+v: %v, %v; want %v", tt.in, got, err, tt.want)
		}
	}
}
