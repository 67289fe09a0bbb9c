package connect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
)

const (
	// stallTime is how long a client may stop reading before it is disconnected.
	stallTime = time.Minute
	// maxMessage is the maximum size of a client's message, in bytes.
	maxMessage = 1 << 20
	// Closing is the channel on which a v5 client closes another one.
	Closing = 255
)

// RequestError is an error of the client's request.
type RequestError struct{ Text string }

// Error implements error.
func (e *RequestError) Error() string { return e.Text }

// Choose returns the first subprotocol that the client offers and the server supports, or an empty string if the client
// offers none.
func Choose(r *http.Request, supported []string) (string, error) {
	var offered []string
	for _, header := range r.Header.Values("Sec-Websocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			offered = append(offered, strings.TrimSpace(name))
		}
	}
	for _, name := range offered {
		if slices.Contains(supported, name) {
			return name, nil
		}
	}
	if len(offered) == 0 {
		return "", nil
	}
	return "", &RequestError{fmt.Sprintf("none of the WebSocket subprotocols %q is supported: request one of %q, or none",
		offered, supported)}
}

// Upgrade upgrades the request to a WebSocket with the subprotocol. It closes the WebSocket when serve returns.
func Upgrade(w http.ResponseWriter, r *http.Request, protocol string, serve func(*websocket.Conn)) {
	websocket.Server{
		Handshake: func(cfg *websocket.Config, _ *http.Request) error {
			if cfg.Protocol = nil; protocol != "" {
				cfg.Protocol = []string{protocol}
			}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			ws.MaxPayloadBytes = maxMessage
			serve(ws)
		},
	}.ServeHTTP(w, r)
}

// Channels is a WebSocket whose messages begin with the number of their channel.
type Channels struct {
	ws     *websocket.Conn
	base64 bool // messages are text: a digit, and base64
	closes bool // the client can close single channels

	mu sync.Mutex // guards sending: one message at a time
}

// NewChannels returns the channels of ws in the format of the subprotocol.
func NewChannels(ws *websocket.Conn, protocol string) *Channels {
	return &Channels{ws: ws, base64: strings.Contains(protocol, "base64."), closes: strings.HasPrefix(protocol, "v5.")}
}

// Send sends data, which may be empty, on a channel.
func (s *Channels) Send(channel byte, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ws.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return err
	}
	if s.base64 {
		return websocket.Message.Send(s.ws, string('0'+channel)+base64.StdEncoding.EncodeToString(data))
	}
	return websocket.Message.Send(s.ws, append([]byte{channel}, data...))
}

// To returns a writer for a channel.
func (s *Channels) To(channel byte) io.Writer { return channelWriter{s, channel} }

type channelWriter struct {
	s       *Channels
	channel byte
}

// Write implements io.Writer.
func (c channelWriter) Write(p []byte) (int, error) {
	if err := c.s.Send(c.channel, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Receive writes the client's messages to their channels until the client leaves. It drops messages for unknown
// channels and for a channel after a failed write.
func (s *Channels) Receive(channels map[byte]io.WriteCloser) error {
	for {
		var data []byte
		if err := websocket.Message.Receive(s.ws, &data); err != nil {
			return err
		}
		if len(data) == 0 {
			continue
		}
		channel, data := data[0], data[1:]
		if s.closes && channel == Closing && len(data) == 1 {
			if to := channels[data[0]]; to != nil {
				to.Close()
				delete(channels, data[0])
			}
			continue
		}
		if s.base64 {
			channel -= '0'
		}
		to := channels[channel]
		if to == nil {
			continue
		}
		if s.base64 {
			plain := make([]byte, base64.StdEncoding.DecodedLen(len(data)))
			n, err := base64.StdEncoding.Decode(plain, data)
			if err != nil {
				return errors.New("a message is not base64")
			}
			data = plain[:n]
		}
		if _, err := to.Write(data); err != nil {
			delete(channels, channel)
		}
	}
}
