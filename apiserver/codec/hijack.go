package codec

import (
	"bufio"
	"net"
	"net/http"
)

// Hijackable implements http.Hijacker for a writer that may be wrapped.
type Hijackable struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (h Hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
