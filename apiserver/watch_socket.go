package apiserver

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

// bearerProtocol begins the subprotocol in which a browser sends a token; it is
// never the one that is spoken (upstream: authentication/request/websocket).
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

func isWebSocket(r *http.Request) bool {
	return isUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// watchSocket is a watch over a WebSocket: every event is a message, of text
// where it is JSON. What the client sends is not read.
func (s *Server) watchSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, enc *encoder, start watchStart, opts listOptions) error {
	enc.bare = true
	server := websocket.Server{
		Handshake: func(cfg *websocket.Config, _ *http.Request) error {
			cfg.Protocol = spoken(cfg.Protocol)
			return nil
		},
		Handler: func(conn *websocket.Conn) {
			ctx, cancel := context.WithCancel(ctx)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				defer cancel()
				io.Copy(io.Discard, conn) // ends when the client leaves, or conn is closed
			}()
			st := &watchStream{out: overSocket{conn, enc.media == typeProtobuf}, enc: enc}
			st.run(ctx, start, opts, s)
			conn.Close()
			<-gone
		},
	}
	server.ServeHTTP(hijackable{w}, r)
	return nil
}

// spoken is the subprotocol that the server agrees to: the first one that is no
// token. What it is called makes no difference to a watch.
func spoken(asked []string) []string {
	for _, p := range asked {
		if !strings.HasPrefix(p, bearerProtocol) {
			return []string{p}
		}
	}
	return nil
}

// overSocket sends each event as a message.
type overSocket struct {
	conn   *websocket.Conn
	binary bool
}

func (o overSocket) write(frame []byte) error {
	if err := o.conn.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return err
	}
	if o.binary {
		return websocket.Message.Send(o.conn, frame)
	}
	return websocket.Message.Send(o.conn, string(frame))
}

func (o overSocket) flush() error { return nil }

// hijackable gives up its connection, which may lie below other writers.
type hijackable struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
