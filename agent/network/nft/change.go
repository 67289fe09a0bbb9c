package nft

import "github.com/google/nftables"

// Element is one element of a set or map of a table. The Layout defines the meaning of Value: the chain of a
// verdict, the bytes of data, the end of a range, or empty.
type Element struct {
	Set, Key, Value string
}

// Part is a chain or set that exists while something needs it.
type Part struct {
	Name  string
	Set   *nftables.Set        // nil: it is a chain
	Chain *nftables.Chain      // nil: a chain without a hook
	Fill  func(*nftables.Conn) // adds the rules of a chain; nil: it has none
}

// change is the difference between two states of a table.
type change struct {
	fresh       bool // the table does not exist yet, or is replaced
	create      map[string]Part
	remove      map[string]struct{} // parts
	add, delete map[Element]struct{}
}

func newChange() *change {
	return &change{create: map[string]Part{}, remove: map[string]struct{}{}, add: map[Element]struct{}{},
		delete: map[Element]struct{}{}}
}

// insert adds an element, or cancels its deletion.
func (c *change) insert(e Element) { toggle(e, c.delete, c.add) }

// drop deletes an element, or cancels its addition.
func (c *change) drop(e Element) { toggle(e, c.add, c.delete) }

func toggle(e Element, from, to map[Element]struct{}) {
	if _, ok := from[e]; ok {
		delete(from, e)
		return
	}
	to[e] = struct{}{}
}

func (c *change) empty() bool {
	return !c.fresh && len(c.create)+len(c.remove)+len(c.add)+len(c.delete) == 0
}
