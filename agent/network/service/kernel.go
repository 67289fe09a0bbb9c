package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// chunk is how many elements one message contains; the kernel's limit is the 64 KB of an attribute.
const chunk = 500

// sendBuffer is enough for a transaction of some 100,000 elements, all of which the kernel must receive at once.
const sendBuffer = 32 << 20

// change is the difference between two tables of a family.
type change struct {
	fresh       bool // there is no table yet, or one that is replaced
	create      map[string]picker
	remove      map[string]struct{} // chains
	add, delete map[element]struct{}
}

func newChange() *change {
	return &change{create: map[string]picker{}, remove: map[string]struct{}{}, add: map[element]struct{}{}, delete: map[element]struct{}{}}
}

// insert adds an element, or takes back that it is deleted.
func (c *change) insert(e element) { toggle(e, c.delete, c.add) }

// drop deletes an element, or takes back that it is added.
func (c *change) drop(e element) { toggle(e, c.add, c.delete) }

func toggle(e element, from, to map[element]struct{}) {
	if _, ok := from[e]; ok {
		delete(from, e)
		return
	}
	to[e] = struct{}{}
}

func (c *change) empty() bool {
	return !c.fresh && len(c.create)+len(c.remove)+len(c.add)+len(c.delete) == 0
}

// kernel is the table in the kernel.
type kernel struct{ *layout }

func dial() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetWriteBuffer(sendBuffer) }))
}

// write applies the change in one transaction: all of it or nothing.
func (k kernel) write(c *change) error {
	if c.empty() {
		return nil
	}
	conn, err := dial()
	if err != nil {
		return err
	}
	if c.fresh {
		conn.AddTable(k.table) // so that there is one to remove
		conn.DelTable(k.table)
		if err := k.create(conn); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.create)) {
		k.pick(conn, c.create[name])
	}
	err = errors.Join(k.elements(c.delete, conn.SetDeleteElements), k.elements(c.add, conn.SetAddElements))
	if err != nil {
		return err
	}
	for name := range c.remove {
		chain := &nftables.Chain{Name: name, Table: k.table}
		conn.FlushChain(chain)
		conn.DelChain(chain)
	}
	return conn.Flush()
}

// elements passes the elements to do, set by set.
func (k kernel) elements(all map[element]struct{}, do func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[string][]nftables.SetElement{}
	for e := range all {
		bySet[e.set] = append(bySet[e.set], e.native())
	}
	for name, elements := range bySet {
		for part := range slices.Chunk(elements, chunk) {
			if err := do(k.sets[name], part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e element) native() nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.key)}
	switch name := strings.TrimPrefix(e.set, nodePrefix); {
	case name == setUnserved && e.value == dropped:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
	case name == setSticky:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: e.value}
	case name == setServices || name == setUnserved:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.value}
	default:
		out.Val = []byte(e.value)
	}
	return out
}

// isPicker reports whether a chain is the chain of a picker, and not a standing one.
func isPicker(chain string) bool {
	name := strings.TrimPrefix(chain, nodePrefix)
	if strings.HasPrefix(name, stickyPrefix) || strings.HasPrefix(name, assignPrefix) {
		return true
	}
	number, ok := strings.CutPrefix(name, pickPrefix)
	n, err := strconv.Atoi(number)
	return ok && err == nil && n > standing
}

// read returns the elements and the chains of pickers in the kernel; ok is false if there is no table, or one of
// another layout.
func (k kernel) read() (elements map[element]struct{}, chains map[string]struct{}, ok bool, err error) {
	conn, err := dial()
	if err != nil {
		return nil, nil, false, err
	}
	all, err := conn.ListChainsOfTableFamily(k.table.Family)
	if err != nil {
		return nil, nil, false, fmt.Errorf("list nftables chains: %w", err)
	}
	elements, chains = map[element]struct{}{}, map[string]struct{}{}
	for _, c := range all {
		if c.Table.Name != k.table.Name {
			continue
		}
		ok = ok || c.Name == k.stamp()
		if isPicker(c.Name) {
			chains[c.Name] = struct{}{}
		}
	}
	if !ok {
		return nil, nil, false, nil
	}
	for name, set := range k.sets {
		if name == setAffinity {
			continue
		}
		have, err := conn.GetSetElements(set)
		if err != nil {
			return nil, nil, false, fmt.Errorf("list nftables set %s: %w", name, err)
		}
		for _, e := range have {
			elements[foreign(set, e)] = struct{}{}
		}
	}
	return elements, chains, true, nil
}

// foreign is the element that the kernel returns.
func foreign(set *nftables.Set, e nftables.SetElement) element {
	out := element{set: set.Name, key: string(e.Key), value: string(e.Val)}
	if set.DataType != nftables.TypeVerdict {
		return out
	}
	out.value = dropped
	ad, err := netlink.NewAttributeDecoder(e.Val)
	if err != nil {
		return out
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_VERDICT_CHAIN {
			out.value = ad.String()
		}
	}
	return out
}

// Remove removes the tables of an instance, in both families. It succeeds if there are none.
func Remove(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		table := &nftables.Table{Name: name, Family: family}
		conn.AddTable(table)
		conn.DelTable(table)
	}
	return conn.Flush()
}
