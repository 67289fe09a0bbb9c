package nft

import (
	"errors"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
)

const (
	// sendBuffer is enough for a transaction of some 100,000 elements, all of which the kernel must receive at once.
	sendBuffer = 32 << 20
	// receiveBuffer is enough for the replies to some 10,000 messages, one for each chain, rule and set: the kernel
	// sends all replies before the first is read, and fails (ENOBUFS) if they do not fit.
	receiveBuffer = 8 << 20
)

// Conn is a connection for large transactions, which opens when it is first used and stays open: when a netfilter
// socket is closed, the kernel waits for an RCU grace period of 10 to 30 ms until it has freed what earlier
// transactions removed, and no transaction can begin meanwhile. The zero Conn is ready. Its methods are not safe for
// concurrent use.
type Conn struct {
	open *nftables.Conn // nil before the first use and after a failure
}

// Do calls f with the connection, in the network namespace in which it was opened. After a failure, which may leave
// messages behind, the next call opens another one.
func (c *Conn) Do(f func(*nftables.Conn) error) error {
	if c.open == nil {
		open, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
			return errors.Join(c.SetWriteBuffer(sendBuffer), c.SetReadBuffer(receiveBuffer))
		}))
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

// Do calls f with a new connection, for rare transactions.
func Do(f func(*nftables.Conn) error) error {
	var c Conn
	defer c.Close()
	return c.Do(f)
}

// RemoveTables removes the tables of the name in each of the families. It succeeds if there is none, and if the kernel
// lacks the family or nftables.
func RemoveTables(name string, families ...nftables.TableFamily) error {
	var errs []error
	for _, family := range families {
		err := Do(func(conn *nftables.Conn) error {
			Remove(conn, &nftables.Table{Name: name, Family: family})
			return conn.Flush()
		})
		if !Missing(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
