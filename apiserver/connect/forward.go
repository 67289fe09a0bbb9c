package connect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"monopod/apiserver/kit/guard"
)

const (
	forwardProtocol = "portforward.k8s.io"
	// tunnelProtocol is SPDY in messages of any length.
	tunnelProtocol = "SPDY/3.1+" + forwardProtocol
	// maxPorts is the maximum number of ports of one WebSocket; each has two channels.
	maxPorts = 60
)

// Forward connects the WebSocket that r requests to the ports that the runtime serves at to. Without a tunnel each port
// has two channels, for data and for errors; the first message of each is the port in two bytes, little-endian. If
// Forward returns an error, nothing has been written to w.
func Forward(w http.ResponseWriter, r *http.Request, to target, ports []int32) error {
	protocol, err := Choose(r, []string{tunnelProtocol, "v4.channel.k8s.io", "v4.base64.channel.k8s.io",
		"channel.k8s.io", "base64.channel.k8s.io"})
	if err != nil {
		return err
	}
	if n := len(ports); protocol != tunnelProtocol && (n == 0 || n > maxPorts) {
		return &RequestError{Text: fmt.Sprintf("ports: the query must contain 1 to %d ports, got %d", maxPorts, n)}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	raw, err := dial(ctx, to, forwardProtocol)
	if err != nil {
		return err
	}
	defer raw.Close()
	if protocol == tunnelProtocol {
		Upgrade(w, r, protocol, func(ws *websocket.Conn) { tunnel(ws, raw) })
		return nil
	}
	conn, err := spdy.NewClientConnection(raw)
	if err != nil {
		return err
	}
	defer conn.Close()
	pairs, err := openPairs(conn, ports)
	if err != nil {
		return err
	}
	Upgrade(w, r, protocol, func(ws *websocket.Conn) {
		s := NewChannels(ws, protocol)
		var received guard.Group
		received.Do(func() error {
			defer cancel()
			in := map[byte]io.WriteCloser{}
			for i, p := range pairs {
				in[byte(2*i)] = p.data
			}
			return s.Receive(in)
		})
		err := forward(s, pairs)
		ws.Close()
		guard.Raise(errors.Join(err, received.Wait()))
	})
	return nil
}

// tunnel copies both ways until one side ends.
func tunnel(ws *websocket.Conn, raw io.ReadWriteCloser) {
	var sent guard.Group
	sent.Do(func() error {
		defer ws.Close()
		_, err := io.Copy(Messages(ws), raw)
		return err
	})
	for {
		var data []byte
		if err := websocket.Message.Receive(ws, &data); err != nil {
			break
		}
		if _, err := raw.Write(data); err != nil {
			break
		}
	}
	raw.Close()
	guard.Raise(sent.Wait())
}

// pair contains the two streams of one port.
type pair struct {
	port int32
	data httpstream.Stream
	errs httpstream.Stream
}

func openPairs(conn httpstream.Connection, ports []int32) ([]pair, error) {
	pairs := make([]pair, len(ports))
	for i, port := range ports {
		header := []string{"port", strconv.Itoa(int(port)), "requestID", strconv.Itoa(i)}
		errs, err := open(conn, "error", header...)
		if err != nil {
			return nil, err
		}
		errs.Close() // nothing is written to it
		data, err := open(conn, "data", header...)
		if err != nil {
			return nil, err
		}
		pairs[i] = pair{port, data, errs}
	}
	return pairs, nil
}

// forward sends the data and errors of the ports until all streams have ended, and returns the first error.
func forward(s *Channels, pairs []pair) error {
	var all guard.Group
	for i, p := range pairs {
		number := binary.LittleEndian.AppendUint16(nil, uint16(p.port))
		for channel, from := range map[byte]io.Reader{byte(2 * i): p.data, byte(2*i + 1): p.errs} {
			if s.Send(channel, number) != nil {
				break
			}
			all.Do(func() error {
				_, err := io.Copy(s.To(channel), from)
				return err
			})
		}
	}
	return all.Wait()
}
