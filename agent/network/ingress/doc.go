// Package ingress serves Ingresses: it listens on the node for HTTP and HTTPS and forwards requests to the endpoints of
// Services.
//
// Data goes one way: Ingresses → planOf, a pure function to rules, certificates and problems → one table that a
// request reads once, at its beginning; a change replaces the table, and requests in flight keep theirs. The endpoints
// of a Service, which change most often, are not in the table: a rule leads to a backend, whose endpoints are replaced
// in place.
//
//   - route: finds the rule for a host and path, and parses annotations and Secrets
//   - proxy: serves clients and forwards their requests to the endpoints of a Service's port
//   - plan.go: computes rules, certificates and problems from Ingresses
//   - ports.go: listens at ports that others may have
//   - ingress.go, publish.go: follow the API and write statuses and Events
package ingress
