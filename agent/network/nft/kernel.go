package nft

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables"
)

// MessageElements is the number of elements in one message; the kernel's limit is the 64 KB of an attribute.
const MessageElements = 500

// write applies the change in one transaction: the kernel applies all of it or nothing.
func (t *Table) write(conn *nftables.Conn, c *change) error {
	if c.fresh {
		Remove(conn, t.layout.Table())
		if err := t.layout.Create(conn); err != nil {
			return err
		}
	}
	if err := t.create(conn, c); err != nil {
		return err
	}
	if err := errors.Join(t.elements(c, c.delete, conn.SetDeleteElements),
		t.elements(c, c.add, conn.SetAddElements)); err != nil {
		return err
	}
	t.remove(conn, c)
	return conn.Flush()
}

// create adds the new sets and chains, and then the rules, which may lead to any of them.
func (t *Table) create(conn *nftables.Conn, c *change) error {
	names := slices.Sorted(maps.Keys(c.create))
	for _, name := range names {
		switch p := c.create[name]; {
		case p.Set != nil:
			if err := conn.AddSet(p.Set, nil); err != nil {
				return err
			}
		case p.Chain != nil:
			conn.AddChain(p.Chain)
		default:
			conn.AddChain(&nftables.Chain{Name: name, Table: t.layout.Table()})
		}
	}
	for _, name := range names {
		if fill := c.create[name].Fill; fill != nil {
			fill(conn)
		}
	}
	return nil
}

// remove removes the rules, which may lead to other parts, and then chains and sets.
func (t *Table) remove(conn *nftables.Conn, c *change) {
	var chains []*nftables.Chain
	var sets []*nftables.Set
	for _, name := range slices.Sorted(maps.Keys(c.remove)) {
		if set := t.layout.Set(name); set != nil {
			sets = append(sets, set)
			continue
		}
		chain := &nftables.Chain{Name: name, Table: t.layout.Table()}
		conn.FlushChain(chain)
		chains = append(chains, chain)
	}
	for _, chain := range chains {
		conn.DelChain(chain)
	}
	for _, set := range sets {
		conn.DelSet(set)
	}
}

// elements passes the elements to do, set by set. Those of a set that is removed need not be deleted.
func (t *Table) elements(c *change, all map[Element]struct{},
	do func(*nftables.Set, []nftables.SetElement) error) error {
	bySet := map[string][]nftables.SetElement{}
	for e := range all {
		if _, gone := c.remove[e.Set]; !gone {
			bySet[e.Set] = append(bySet[e.Set], t.layout.ToKernel(e))
		}
	}
	for name, elements := range bySet {
		// The kernel detects overlapping ranges only if the elements are sorted.
		slices.SortFunc(elements, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
		for part := range slices.Chunk(elements, MessageElements) {
			if err := do(t.layout.Set(name), part); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns the elements and the parts in the kernel; ok is false if there is no table, or one of another layout.
func (t *Table) read(conn *nftables.Conn) (
	elements map[Element]struct{}, parts map[string]struct{}, ok bool, err error) {
	parts = map[string]struct{}{}
	if ok, err = t.chains(conn, parts); err != nil || !ok {
		return nil, nil, false, err
	}
	sets, err := conn.GetSets(t.layout.Table())
	if err != nil {
		return nil, nil, false, fmt.Errorf("list nftables sets: %w", err)
	}
	elements = map[Element]struct{}{}
	for _, s := range sets {
		set := t.layout.Set(s.Name)
		if set == nil {
			continue
		}
		if t.layout.IsPart(s.Name) {
			parts[s.Name] = struct{}{}
		}
		have, err := conn.GetSetElements(set)
		if err != nil {
			return nil, nil, false, fmt.Errorf("list nftables set %s: %w", s.Name, err)
		}
		for _, e := range have {
			elements[t.layout.FromKernel(set, e)] = struct{}{}
		}
	}
	return elements, parts, true, nil
}

// chains adds the chains that are parts, and reports whether the table has this layout.
func (t *Table) chains(conn *nftables.Conn, parts map[string]struct{}) (ok bool, err error) {
	table := t.layout.Table()
	all, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false, fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range all {
		if c.Table.Name != table.Name {
			continue
		}
		ok = ok || c.Name == t.layout.Stamp()
		if t.layout.IsPart(c.Name) {
			parts[c.Name] = struct{}{}
		}
	}
	return ok, nil
}

// Remove removes a table that may not exist.
func Remove(conn *nftables.Conn, table *nftables.Table) {
	conn.AddTable(table)
	conn.DelTable(table)
}
