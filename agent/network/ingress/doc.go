// Package ingress serves Ingresses: it listens on the node for HTTP and HTTPS and forwards requests to the endpoints of
// Services.
//
// Data goes one way: Ingresses → planOf, a pure function to rules, certificates and problems → one table that a
// request reads once, at its beginning; a change replaces the table, and requests in flight keep theirs. What changes
// most often, the endpoints of a Service, is not in the table: a rule leads to a backend, whose endpoints are
// replaced in place.
//
//   - route: which rule a host and path match
//   - proxy: the servers, and what happens to a request; the endpoints of a Service's port
//   - seats: limits of connections
//   - annotation, certs: parse annotations and Secrets
//   - plan.go: what Ingresses specify, and what is wrong with them
//   - ingress.go, publish.go: follows the API and writes statuses and events
package ingress
