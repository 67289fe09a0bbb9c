package codec

import (
	"bufio"
	"net"
	"net/http"
)

// Hijackable gives up its connection, which may lie below other writers.
type Hijackable struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (h Hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
