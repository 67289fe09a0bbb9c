// Package ingress serves Ingresses: it listens on the node for HTTP and HTTPS and passes requests on to the endpoints of
// Services.
//
// Data goes one way: Ingresses → planOf, a pure function to rules, certificates and problems → one table that a
// request reads once, at its beginning; a change replaces the table, and requests that run keep theirs. What changes
// most often, the endpoints of a Service, is not in the table: a rule leads to a backend, whose endpoints are
// replaced in place.
//
//   - route: which rule a host and path match
//   - plan.go: what Ingresses ask for, and what is wrong with them
//   - backend.go: the endpoints of a Service's port, and which of them gets a request
//   - handler.go, headers.go, transport.go: what happens to a request
//   - listen.go, seats: connections and their limits
//   - annotation, certs: what annotations and Secrets say
//   - ingress.go, publish.go: follows the API and writes statuses and events
package ingress
