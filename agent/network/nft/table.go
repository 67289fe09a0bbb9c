package nft

import (
	"fmt"
	"maps"

	"github.com/google/nftables"
)

// Layout describes a table.
type Layout interface {
	// Table returns name and family.
	Table() *nftables.Table
	// Stamp is the name of an empty chain that Create adds. A table with another stamp has another layout and is replaced.
	Stamp() string
	// Create adds the static part to the transaction, in an empty table.
	Create(conn *nftables.Conn) error
	// Set returns a set by its name, static or a part; nil if the kernel fills it.
	Set(name string) *nftables.Set
	// IsPart reports whether a chain or set is a Part, by its name.
	IsPart(name string) bool
	// ToKernel returns an element in the format of the kernel.
	ToKernel(e Element) nftables.SetElement
	// FromKernel is the reverse of ToKernel, for an element that the kernel returned.
	FromKernel(set *nftables.Set, e nftables.SetElement) Element
}

// Table is the desired state of a table, with the changes that the kernel does not have yet. Its methods are not safe
// for concurrent use.
type Table struct {
	Conn
	layout Layout
	shared map[Element]int // number of users of an element
	parts  map[string]int  // number of users of a part
	change *change
	synced bool // the kernel has everything but change
}

// New returns an empty Table.
func New(layout Layout) *Table {
	return &Table{layout: layout, shared: map[Element]int{}, parts: map[string]int{}, change: newChange()}
}

// Alter adds an element, or removes it if the number is negative.
func (t *Table) Alter(e Element, by int) {
	if by > 0 {
		t.change.insert(e)
	} else {
		t.change.drop(e)
	}
}

// Share adds users to an element, or removes them: the element exists while the sum of all calls is positive.
func (t *Table) Share(e Element, by int) {
	was := t.shared[e]
	t.shared[e] = was + by
	if was == 0 || was+by == 0 {
		t.Alter(e, by)
	}
	if was+by == 0 {
		delete(t.shared, e)
	}
}

// Need adds users to a part, or removes them: the part exists while the sum of all calls is positive.
func (t *Table) Need(p Part, by int) {
	was := t.parts[p.Name]
	t.parts[p.Name] = was + by
	switch was + by {
	case 0:
		delete(t.parts, p.Name)
		if _, ok := t.change.create[p.Name]; ok {
			delete(t.change.create, p.Name)
		} else {
			t.change.remove[p.Name] = struct{}{}
		}
	case by: // the first
		if _, ok := t.change.remove[p.Name]; ok {
			delete(t.change.remove, p.Name)
		} else {
			t.change.create[p.Name] = p
		}
	}
}

// Pending reports whether a Sync would write something.
func (t *Table) Pending() bool { return !t.synced || !t.change.empty() }

// Empty reports whether the table has no shared elements, parts or changes.
func (t *Table) Empty() bool { return t.change.empty() && len(t.shared)+len(t.parts) == 0 }

// All calls the functions for every desired element and part of a table, for some perhaps more than once.
type All func(element func(Element), part func(Part))

// Sync brings the kernel to the desired state in one transaction. After a failure, and the first time, it compares
// everything with the table in the kernel; found reports whether there was one.
func (t *Table) Sync(all All) (found bool, err error) {
	if !t.synced {
		err := t.Do(func(conn *nftables.Conn) (err error) {
			t.change, err = t.compare(conn, all)
			return err
		})
		if err != nil {
			return false, err
		}
		found = !t.change.fresh
	}
	t.synced = false
	if !t.change.empty() {
		if err := t.Do(func(conn *nftables.Conn) error { return t.write(conn, t.change) }); err != nil {
			return found, fmt.Errorf("write nftables table %s: %w", t.layout.Table().Name, err)
		}
	}
	t.change, t.synced = newChange(), true
	return found, nil
}

// compare returns the difference between the kernel and the desired table.
func (t *Table) compare(conn *nftables.Conn, all All) (*change, error) {
	have, parts, ok, err := t.read(conn)
	if err != nil {
		return nil, err
	}
	c := newChange()
	c.fresh = !ok
	surplus := maps.Clone(have)
	all(func(e Element) {
		if _, ok := have[e]; !ok {
			c.add[e] = struct{}{}
		}
		delete(surplus, e)
	}, func(p Part) {
		if _, ok := parts[p.Name]; !ok {
			c.create[p.Name] = p
		}
	})
	if len(surplus) > 0 {
		c.delete = surplus
	}
	for name := range parts {
		if t.parts[name] == 0 {
			c.remove[name] = struct{}{}
		}
	}
	return c, nil
}
