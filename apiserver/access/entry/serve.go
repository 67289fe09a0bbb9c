package entry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/process/guard"
)

const (
	// headerTime is how long a client may take to send a request's header.
	headerTime = 15 * time.Second
	// maxHeader bounds a request's line and headers, in bytes: also strangers may send
	// them. A command of exec travels there, with its escapes.
	maxHeader = 256 << 10
	// streamBuffer and connectionBuffer bound what of bodies arrives over HTTP/2 before
	// it is read, in bytes. A connection has room for more bodies than may wait of one
	// user (queueLength), so what is read meanwhile does not wait for them; more than
	// 4 MiB is beyond what net/http documents.
	streamBuffer     = codec.SmallBody
	connectionBuffer = 4 << 20
	// idleTime is how long a connection is kept for the next request.
	idleTime = 3 * time.Minute
	// stopTime bounds the wait for requests under way when the server stops.
	stopTime = 5 * time.Second
)

// Serve answers who comes in with h, and at the kubelet's port with node, until ctx
// ends; then it lets requests under way finish. It closes the listeners.
func (a *Entry) Serve(ctx context.Context, h, node http.Handler, log *zap.Logger) error {
	secure, local := newServer(h, log), newServer(h, log)
	secure.TLSConfig = a.tlsConfig()
	local.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return withConn(auth.TrustListener(ctx), c)
	}

	servers := []*http.Server{secure, local}
	group, ctx := guard.With(ctx)
	group.Do(func() error { return served(secure.ServeTLS(plainListener{a.tcp}, "", "")) })
	group.Do(func() error { return served(local.Serve(a.unix)) })
	if a.kubelet != nil {
		kubelet := newServer(node, log)
		kubelet.TLSConfig = a.tlsConfig()
		servers = append(servers, kubelet)
		group.Do(func() error { return served(kubelet.ServeTLS(plainListener{a.kubelet}, "", "")) })
	}
	group.Do(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		for _, srv := range servers {
			if err := srv.Shutdown(stop); err != nil {
				srv.Close() // what is still under way after stopTime is cut off
			}
		}
		return nil
	})
	return group.Wait()
}

func newServer(h http.Handler, log *zap.Logger) *http.Server {
	return &http.Server{
		Handler: endsWithClient(h), ConnContext: withConn,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: zap.NewStdLog(log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))),
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 1000, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connectionBuffer},
	}
}

func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
