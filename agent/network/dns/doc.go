// Package dns is the DNS server of the cluster. It answers for the cluster's domain from Services and EndpointSlices,
// as the specification of Kubernetes' DNS-based service discovery says (version 1.1.0), and passes other questions on
// to the resolvers of the node.
//
//   - Zone: the names of the cluster; nothing is stored for a name, answers are made when they are asked for
//   - Forwarder: other names, with a cache; it never waits for resolvers that do not answer
//   - Server: listens and answers
package dns
