// Package rules writes the static nftables rules of a pod network, and its host ports.
//
//   - ports.go: ports of the host that lead to pods
//   - nat.go: masquerades the connections of pods to other networks
//   - services.go: rejects connections to addresses of Services that nothing serves
//   - isolation.go: keeps the pods on a bridge from reaching each other at the link layer: each reaches only the node,
//     which routes between them
//
// The tables of the IP families translate addresses; that of the family inet rejects. All have the same name.
package rules

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/network/nft"
)

// Rules describes the rules of one pod network.
type Rules struct {
	Table    string         // name of the tables
	Bridge   string         // link of the pods
	Subnets  []netip.Prefix // of the pods: one or two, of different families
	Services []netip.Prefix // ranges of Services
	Nodes    []netip.Prefix // of the pods of other nodes, to which connections are not masqueraded
}

// SetUp writes all rules; host ports are kept. It logs a warning for rules that the kernel does not support. taken are
// the subnets to which other links of the host lead.
func (r Rules) SetUp(taken []netip.Prefix, log *zap.Logger) {
	for _, subnet := range r.Subnets {
		if err := r.setUpNAT(subnet); err != nil {
			log.Warn("cannot set up address translation: pods can communicate only with this host",
				zap.Stringer("subnet", subnet), zap.Error(err))
		}
	}
	if err := r.setUpServices(taken, log); err != nil {
		log.Warn("cannot reject connections to Services without endpoints: they may be routed out of this host",
			zap.Error(err))
	}
}

// SetUpNAT writes the rules that translate addresses; host ports are kept.
func (r Rules) SetUpNAT() error {
	var errs []error
	for _, subnet := range r.Subnets {
		errs = append(errs, r.setUpNAT(subnet))
	}
	return errors.Join(errs...)
}

// Remove removes the tables.
func (r Rules) Remove() error {
	return nft.RemoveTables(r.Table, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet)
}

// Count returns the number of rules in the tables of the name, of all families.
func (r Rules) Count() (sum int, err error) {
	err = nft.Do(func(conn *nftables.Conn) error {
		all, err := conn.ListTables()
		if err != nil {
			return fmt.Errorf("list nftables tables: %w", err)
		}
		for _, table := range all {
			if table.Name != r.Table {
				continue
			}
			for _, chain := range []string{"prerouting", "forward", "output", "postrouting", "reject"} {
				found, err := conn.GetRules(table, &nftables.Chain{Name: chain, Table: table})
				if err != nil {
					return fmt.Errorf("list rules of %s: %w", table.Name, err)
				}
				sum += len(found)
			}
		}
		return nil
	})
	return sum, err
}

func familyOf(is4 bool) nft.Family {
	if is4 {
		return nft.FamilyOf(corev1.IPv4Protocol)
	}
	return nft.FamilyOf(corev1.IPv6Protocol)
}
