package nft

import (
	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

// sendBuffer is enough for a transaction of some 100,000 elements, all of which the kernel must receive at once.
const sendBuffer = 32 << 20

// Conn is a connection for large transactions, which opens when it is first used and stays open: closing a netfilter
// socket makes the kernel wait until it has freed what earlier transactions removed, which takes an RCU grace period of 10
// to 30 ms, and no transaction can begin meanwhile. The zero Conn is ready. Its methods are not safe for concurrent use.
type Conn struct {
	open *nftables.Conn // nil: not yet, or after a failure
}

// Do calls f with the connection, in the network namespace in which it was opened. After a failure, which may leave
// messages behind, the next call opens another one.
func (c *Conn) Do(f func(*nftables.Conn) error) error {
	if c.open == nil {
		open, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetWriteBuffer(sendBuffer) }))
		if err != nil {
			return err
		}
		c.open = open
	}
	err := f(c.open)
	if err != nil {
		c.Close()
	}
	return err
}

// Close closes the connection; the next call of Do opens another one.
func (c *Conn) Close() {
	if c.open != nil {
		_ = c.open.CloseLasting()
		c.open = nil
	}
}
