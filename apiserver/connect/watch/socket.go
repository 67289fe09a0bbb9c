package watch

import (
	"context"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/websocket"

	"monopod/apiserver/codec"
	"monopod/apiserver/flow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/request"
)

// watchSocket serves a watch over a WebSocket. Every event is a message, of text if it is JSON. It discards the
// messages of the client.
func (s *Watcher) watchSocket(ctx context.Context, w http.ResponseWriter, r *http.Request, enc *encoder,
	start watchStart, opts request.ListOptions) error {
	enc.bare = true
	server := websocket.Server{
		Handshake: func(cfg *websocket.Config, _ *http.Request) error {
			cfg.Protocol = cfg.Protocol[:min(1, len(cfg.Protocol))] // any subprotocol works for a watch
			return nil
		},
		Handler: func(conn *websocket.Conn) {
			ctx, cancel := context.WithCancel(ctx)
			var reader guard.Group
			reader.Do(func() error {
				defer cancel()
				_, err := io.Copy(io.Discard, conn) // ends when the client leaves, or conn is closed
				return err
			})
			st := &watchStream{out: overSocket{conn, enc.media != ""}, enc: enc}
			st.run(ctx, start, opts)
			conn.Close()
			guard.Raise(reader.Wait())
		},
	}
	server.ServeHTTP(codec.Hijackable{ResponseWriter: w}, r)
	return nil
}

// overSocket sends each event as a message.
type overSocket struct {
	conn   *websocket.Conn
	binary bool
}

func (o overSocket) write(frame []byte) error {
	if err := o.conn.SetWriteDeadline(time.Now().Add(flow.StallTime)); err != nil {
		return err
	}
	if o.binary {
		return websocket.Message.Send(o.conn, frame)
	}
	return websocket.Message.Send(o.conn, string(frame))
}

func (o overSocket) flush() error { return nil }
