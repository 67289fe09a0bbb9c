package entry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/guard"
)

const (
	// headerTime limits how long a client may take to send a request's header.
	headerTime = 15 * time.Second
	// maxHeader is the maximum size of a request line with headers, in bytes, also of unauthenticated clients. The URL of
	// an exec contains its command, escaped.
	maxHeader = 256 << 10
	// streamBuffer and connectionBuffer limit how much of unread bodies a client can send over HTTP/2, in bytes. A
	// connection has room for more bodies than one user's requests can wait (queueLength), so that waiting bodies do not
	// block other requests.
	streamBuffer     = codec.SmallBody
	connectionBuffer = 4 << 20
	// maxStreams is the maximum number of concurrent requests of an HTTP/2 connection (upstream's default). Clients that
	// need more open another connection.
	maxStreams = 100
	// pingTime is how long an HTTP/2 connection may be silent until the client must answer a ping within answerTime.
	pingTime   = 30 * time.Second
	answerTime = 15 * time.Second
	// writeTime is how long the client of an HTTP/2 connection may read nothing while a write waits.
	writeTime = time.Minute
	// idleTime is how long a connection is kept for the next request.
	idleTime = 3 * time.Minute
	// stopTime limits the wait for running requests when the server stops.
	stopTime = 5 * time.Second
)

// Serve serves h to clients, and node at the kubelet's port, until ctx ends; then it waits for running requests.
// It closes the listeners.
func (a *Entry) Serve(ctx context.Context, h, node http.Handler, log *zap.Logger) error {
	secure := a.secureServer(h, log)
	local := newServer(h, log)
	local.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return auth.TrustListener(ctx) }

	a.pods.serve(secure)
	servers := []*http.Server{secure, local}
	group, ctx := guard.With(ctx)
	group.Do(func() error { return ignoreClosed(secure.ServeTLS(plainListener{a.tcp}, "", "")) })
	group.Do(func() error { return ignoreClosed(local.Serve(a.unix)) })
	if a.kubelet != nil {
		kubelet := a.secureServer(node, log)
		servers = append(servers, kubelet)
		group.Do(func() error { return ignoreClosed(kubelet.ServeTLS(plainListener{a.kubelet}, "", "")) })
	}
	group.Do(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		for _, srv := range servers {
			if err := srv.Shutdown(stop); err != nil {
				srv.Close() // requests that run longer than stopTime are cut off
			}
		}
		return nil
	})
	return group.Wait()
}

// secureServer serves TLS, with HTTP/2 for clients that want it.
func (a *Entry) secureServer(h http.Handler, log *zap.Logger) *http.Server {
	srv := newServer(h, log)
	srv.TLSConfig = a.tlsConfig()
	return srv
}

func newServer(h http.Handler, log *zap.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: zap.NewStdLog(log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer,
			MaxReceiveBufferPerConnection: connectionBuffer,
			SendPingTimeout:               pingTime, PingTimeout: answerTime, WriteByteTimeout: writeTime,
		},
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
