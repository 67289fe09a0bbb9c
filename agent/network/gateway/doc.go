// Package gateway serves the Gateway API: Gateways with listeners for HTTP, HTTPS, TLS and TCP, and the routes that are
// attached to them.
//
// Nothing runs before the definitions of the API are installed, and nothing after they are removed. Data goes one way:
// objects → planOf, a pure function to the listeners of each Gateway, their rules, and all conditions → servers of the
// package ingress/proxy, a Service of type LoadBalancer for each Gateway, and statuses.
//
// A Gateway's servers listen at free ports of the node, and its Service, whose EndpointSlices name them, gives it its
// address: one of --load-balancer-pool, or that of the node, whose ports 80 and 443 it then shares with Ingresses.
//
//   - objects.go: the objects of the API, as the follower receives them
//   - plan.go, attach.go, rules.go: compute listeners, attached routes and rules
//   - refs.go: resolve references to Secrets and Services
//   - gateway.go, servers.go: follow the API, listen
//   - publish.go: write Services, EndpointSlices and statuses
package gateway
