// Package service translates the addresses of Services to those of their endpoints in the kernel, as kube-proxy does
// on other nodes.
//
// Data goes one way: Services and EndpointSlices → Of, a pure function from one Service to its Routes → elements of
// the maps and sets of one nftables table for each IP family → the difference to the tables in the kernel, written in
// one transaction. Rules are static; endpoints are only elements, so a connection is translated by a fixed number of
// lookups, however many Services there are:
//
//	services   address . protocol . port            -> goto a chain that picks one of n endpoints
//	inside     address . protocol . port            -> the same for the node and its pods, if they reach other endpoints
//	endpoints  address . protocol . port . index    -> address . port of the endpoint
//	sticky     address . protocol . port . index    -> jump to a chain that assigns the client to the endpoint
//	affinity   client . address . protocol . port   -> address . port of the client's endpoint, until it expires
//	unserved   address . protocol . port            -> goto reject, or drop
//	loops      address . address                       pods: their connections to themselves are masqueraded
//	remote     address                                 endpoints elsewhere: clients other than pods are masqueraded
//	guarded    address . protocol . port               load balancers whose clients are limited
//	sources    address . protocol . port . range       their clients
//	closed     address                                 of load balancers only: other ports are refused
//
// The maps services, inside, endpoints, sticky and unserved exist a second time without the address, for the ports of
// the node itself. Every rule can be printed by nft, whose older versions fail an assertion on rules that its own
// language cannot express.
//
// The table is a function of Services and EndpointSlices alone, not of the order of their changes: it is the same
// after a restart. While the process does not run, the kernel continues to translate.
//
//   - healthcheck.go: tells load balancers whether the node has endpoints of a Service
package service
