package service

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"

	"monopod/agent/network/nft"
)

// forgetClients removes from affinity the clients whose last endpoint no longer exists. It runs after the change that
// removed the endpoint, so that no client is assigned to it again.
func (t *table) forgetClients() error {
	if !t.clientsStale {
		return nil
	}
	err := t.Do(func(conn *nftables.Conn) error {
		set := t.sets[setAffinity]
		all, err := conn.GetSetElements(set)
		if err != nil {
			return err
		}
		var gone []nftables.SetElement
		for _, e := range all {
			if !t.assigned(e.Key, e.Val) {
				gone = append(gone, nftables.SetElement{Key: e.Key, Val: e.Val})
			}
		}
		for part := range slices.Chunk(gone, nft.MessageElements) {
			if err := conn.SetDeleteElements(set, part); err != nil {
				return err
			}
		}
		return conn.Flush()
	})
	if err != nil {
		return err
	}
	t.clientsStale = false
	return nil
}

// assigned reports whether a Service still has the endpoint of an element of affinity.
func (t *table) assigned(key, value []byte) bool {
	size := int(t.Size)
	if len(key) < 2*size+8 || len(value) < size+2 {
		return false
	}
	addr, _ := netip.AddrFromSlice(key[size : 2*size])
	front := Frontend{Addr: addr, Protocol: key[2*size], Port: binary.BigEndian.Uint16(key[2*size+4:])}
	if _, ok := t.owner[front]; !ok {
		front.Addr = anyAddress(t.IPFamily)
	}
	routes := t.routesOf(front)
	ip, _ := netip.AddrFromSlice(value[:size])
	to := netip.AddrPortFrom(ip, binary.BigEndian.Uint16(value[size:]))
	route, _ := routes.find(front)
	return route.Affinity > 0 && routes.leads(front, to)
}
