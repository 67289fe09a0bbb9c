package controllers

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"monopod/controllers/nodeipam"
)

// NodeIPAM configures the ranges of pods' addresses that Nodes get.
type NodeIPAM struct {
	// AllocateNodeCIDRs is --allocate-node-cidrs.
	AllocateNodeCIDRs bool `json:"allocateNodeCIDRs"`
	// ClusterCIDR is --cluster-cidr.
	ClusterCIDR string `json:"clusterCIDR"`
	// NodeCIDRMaskSizeIPv4 is --node-cidr-mask-size-ipv4; 0 means 24.
	NodeCIDRMaskSizeIPv4 int `json:"nodeCIDRMaskSizeIPv4"`
	// NodeCIDRMaskSizeIPv6 is --node-cidr-mask-size-ipv6; 0 means 64.
	NodeCIDRMaskSizeIPv6 int `json:"nodeCIDRMaskSizeIPv6"`
}

// AllocatesNodeCIDRs reports whether the node IPAM controller gives Nodes their ranges.
func (c *Config) AllocatesNodeCIDRs() bool {
	return c.NodeIPAM.AllocateNodeCIDRs && !c.Off(nodeipam.Name)
}

func nodeIPAMController(c *Config) Entry {
	n := &c.NodeIPAM
	cluster, _ := nodeipam.ParseClusters(n.ClusterCIDR) // Check has accepted it
	return Entry{
		Name: nodeipam.Name, Aliases: []string{"nodeipam"}, Component: nodeipam.Component,
		Settings: []Setting{
			{
				Flag:  "allocate-node-cidrs",
				reset: func() { n.AllocateNodeCIDRs = true },
				add: func(f *pflag.FlagSet) {
					f.BoolVar(&n.AllocateNodeCIDRs, "allocate-node-cidrs", n.AllocateNodeCIDRs,
						"Give each Node without spec.podCIDRs a range of --cluster-cidr, unless it sets its own (see --pod-cidr).")
				},
				check: func() error { return nil },
			},
			n.clusterCIDR(),
			n.maskSize(&n.NodeCIDRMaskSizeIPv4, 24, "ipv4", true),
			n.maskSize(&n.NodeCIDRMaskSizeIPv6, 64, "ipv6", false),
		},
		New: full(nodeipam.New, nodeipam.Config{
			Off: !n.AllocateNodeCIDRs, Clusters: cluster, Bits4: n.NodeCIDRMaskSizeIPv4, Bits6: n.NodeCIDRMaskSizeIPv6,
			Services: c.Services.Ranges,
		}),
	}
}

func (n *NodeIPAM) clusterCIDR() Setting {
	const flag = "cluster-cidr"
	return Setting{
		Flag:  flag,
		reset: func() { n.ClusterCIDR = "" },
		add: func(f *pflag.FlagSet) {
			f.StringVar(&n.ClusterCIDR, flag, n.ClusterCIDR, "CIDR range of the addresses of pods of all nodes, or one range "+
				"of each IP family, separated by a comma. Nodes that join get parts of it. Empty: for each family of "+
				"--service-cluster-ip-range, 10.88.0.0/13, or the /48 of fd00::/8 that contains the range of the server's node.")
		},
		check: func() error {
			if _, err := nodeipam.ParseClusters(n.ClusterCIDR); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
			return nil
		},
	}
}

func (n *NodeIPAM) maskSize(at *int, value int, family string, is4 bool) Setting {
	flag := "node-cidr-mask-size-" + family
	return Setting{
		Flag:  flag,
		reset: func() { *at = value },
		add: func(f *pflag.FlagSet) {
			f.IntVar(at, flag, *at, "Length of the prefix of a node's range of --cluster-cidr.")
		},
		check: func() error {
			var clusters []netip.Prefix
			if c, err := nodeipam.ParseClusters(n.ClusterCIDR); err == nil {
				clusters = c
			}
			size := *at
			if size == 0 {
				size = value
			}
			if err := nodeipam.CheckBits(clusters, is4, size); err != nil {
				return fmt.Errorf("--%s %w", flag, err)
			}
			return nil
		},
	}
}
