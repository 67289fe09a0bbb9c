// Package proxy forwards requests of clients to the endpoints of Services.
//
// A Server listens; its Handler reads the Site, a table that is replaced as a whole, once for each request. The table
// leads to a Destination, whose Backend picks an endpoint. The Transport sends the request there, and to another
// endpoint if that one cannot have received it.
//
//   - listen.go, limit.go: connections of clients and their limits
//   - admit.go: what annotations decide before an endpoint gets the request
//   - handler.go, headers.go, body.go: the request of a client
//   - backend.go: the endpoints of a Service's port, and the choice of one for a request
//   - transport.go: connections to endpoints
package proxy
