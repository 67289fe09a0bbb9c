package service

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"monopod/agent/network/nft"
)

var _ nft.Layout = (*layout)(nil)

// Table implements nft.Layout.
func (l *layout) Table() *nftables.Table { return l.table }

// Set implements nft.Layout. The kernel fills affinity by itself.
func (l *layout) Set(name string) *nftables.Set {
	if name == setAffinity {
		return nil
	}
	return l.sets[name]
}

// ToKernel implements nft.Layout.
func (l *layout) ToKernel(e element) nftables.SetElement {
	out := nftables.SetElement{Key: []byte(e.Key)}
	switch name := strings.TrimPrefix(e.Set, nodePrefix); {
	case name == setUnserved && e.Value == dropped:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
	case name == setSticky:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: e.Value}
	case name == setServices || name == setInside || name == setUnserved:
		out.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Value}
	case name == setSources:
		out.KeyEnd = []byte(e.Value)
	default:
		out.Val = []byte(e.Value)
	}
	return out
}

// IsPart implements nft.Layout: the chains of pickers are parts, but not the standing ones.
func (l *layout) IsPart(chain string) bool {
	name := strings.TrimPrefix(chain, nodePrefix)
	for _, prefix := range []string{insidePrefix, stickyPrefix, assignPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	number, ok := strings.CutPrefix(name, pickPrefix)
	n, err := strconv.Atoi(number)
	return ok && err == nil && n > standing
}

// FromKernel implements nft.Layout.
func (l *layout) FromKernel(set *nftables.Set, e nftables.SetElement) element {
	out := element{Set: set.Name, Key: string(e.Key), Value: string(e.Val)}
	if set.Interval {
		out.Value = string(e.KeyEnd)
	}
	if set.DataType != nftables.TypeVerdict {
		return out
	}
	out.Value = cmp.Or(nft.ChainOf(e.Val), dropped)
	return out
}

// Remove removes the tables of an instance, in both families. It succeeds if there are none.
func Remove(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		nft.Remove(conn, &nftables.Table{Name: name, Family: family})
	}
	return conn.Flush()
}
