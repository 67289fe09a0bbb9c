package networktest

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"time"
)

// SendInit sends the first packet of an SCTP association (RFC 9260, 3.3.2) between two ports as a raw packet, so that
// the kernel needs no support for SCTP. The network is ip4:132 or ip6:132.
func (n *Node) SendInit(network, address string, from, to uint16) error {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = append(b, make([]byte, 8)...)      // tag 0, checksum
	b = append(b, 1, 0, 0, 20)             // INIT, its length
	b = append(b, 0, 0, 0, 1, 0, 0, 16, 0) // tag, window
	b = append(b, 0, 1, 0, 1, 0, 0, 0, 1)  // streams, sequence number
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(b[8:], sum)
	return n.Inside(func() error {
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(b)
		return err
	})
}

// ReadInit returns the ports of the next such packet; masquerading changes the source port.
func ReadInit(l net.PacketConn) (from, to uint16, err error) {
	b := make([]byte, 100)
	for {
		_ = l.SetReadDeadline(time.Now().Add(time.Minute))
		n, _, err := l.ReadFrom(b)
		if err != nil {
			return 0, 0, err
		}
		if n == 32 && b[12] == 1 {
			return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), nil
		}
	}
}
