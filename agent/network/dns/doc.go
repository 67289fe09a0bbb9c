// Package dns is the DNS server of the cluster. It answers for the cluster's domain from Services and EndpointSlices,
// as the specification of Kubernetes' DNS-based service discovery says (version 1.1.0), and forwards other queries
// to the resolvers of the node.
//
//   - Zone: answers for the names of the cluster, from the objects, for each query
//   - Forwarder: forwards other names, with a cache; it never waits for resolvers that do not respond
//   - Server: listens and answers
package dns
