package connect

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/websocket"

	"monopod/apiserver/kit/guard"
)

// Reader sends each write of read as a message over the WebSocket that r requests. read's context ends with r's, and
// when the client leaves. If Reader returns an error, nothing has been written to w.
func Reader(w http.ResponseWriter, r *http.Request, read func(ctx context.Context, out io.Writer)) error {
	protocol, err := Choose(r, []string{"binary.k8s.io", "base64.binary.k8s.io"})
	if err != nil {
		return err
	}
	Upgrade(w, r, protocol, func(ws *websocket.Conn) {
		ctx, cancel := context.WithCancel(r.Context())
		var reader guard.Group
		reader.Do(func() error {
			defer cancel()
			_, err := io.Copy(io.Discard, ws) // ends when the client leaves, or ws is closed
			return err
		})
		out := Messages(ws)
		if protocol == "base64.binary.k8s.io" {
			out = &encoded{ws}
		}
		if _, err := out.Write(nil); err != nil { // tells the client that the stream is open
			cancel()
		}
		read(ctx, out)
		ws.Close()
		guard.Raise(reader.Wait())
	})
	return nil
}

// Messages returns a writer that sends every write as a binary message.
func Messages(ws *websocket.Conn) io.Writer { return &whole{ws} }

type whole struct{ ws *websocket.Conn }

// Write implements io.Writer.
func (m *whole) Write(p []byte) (int, error) { return sendMessage(m.ws, p, len(p)) }

// encoded sends every write as a base64 message.
type encoded struct{ ws *websocket.Conn }

// Write implements io.Writer.
func (m *encoded) Write(p []byte) (int, error) {
	return sendMessage(m.ws, base64.StdEncoding.EncodeToString(p), len(p))
}

// sendMessage sends a message and returns size, the number of bytes that the caller wrote.
func sendMessage(ws *websocket.Conn, message any, size int) (int, error) {
	err := ws.SetWriteDeadline(time.Now().Add(stallTime))
	if err == nil {
		err = websocket.Message.Send(ws, message)
	}
	if err != nil {
		return 0, err
	}
	return size, nil
}
