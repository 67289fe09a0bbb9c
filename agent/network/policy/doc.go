// Package policy applies NetworkPolicies to the pods of a node, in the kernel.
//
// Data goes one way: Pods, Namespaces and NetworkPolicies → state, which knows the pods that each selector selects, and
// the policies that isolate each pod → elements and chains of one nftables table for each IP family → the difference to
// the tables in the kernel, written in one transaction (package nft). A packet is judged by a fixed number of lookups
// and by the rules of the policies that select its two pods, however many pods and other policies there are:
//
//	egress, ingress   address                -> goto a chain of all policies that isolate the pod in the direction
//	self              address . address         isolated pods may connect to themselves
//	pods-HASH         address                   pods that a selector of peers selects
//	blocks-HASH       address range             the address ranges of a rule
//	ports-HASH        protocol . port range     the ports of a rule
//	named-HASH        address . protocol . port pods with a port of a name
//	out-…, in-…                                 chains: the rules of one policy; of all policies that isolate a pod
//
// The names of chains, and of sets other than the first three, contain a hash of their content, so that all policies
// share them. The chain at the hook exists only while there are policies: without any, no packet meets a rule.
//
// Policies judge the packets that the node forwards to or from a pod, after the destination of a Service or host port
// was translated and before a source is: by the addresses of the two ends. The node also routes between two of its
// pods (package cni), because bridged packets pass the hooks of an IP family only if br_netfilter is loaded, and the
// hooks of the family bridge do not see translated connections. Policies never judge packets that the node itself sends
// and receives: probes, host-network pods, the API server and the DNS server.
//
// Pods of other nodes are peers only: each node judges what its own pods send and receive, by the same addresses,
// because packets between nodes keep those of pods (package nodes).
//
// Replies always pass. Every packet in the direction of a connection's first one is judged, so that a policy also ends
// connections that exist, as with Cilium, and with kube-network-policies unless configured otherwise.
package policy
