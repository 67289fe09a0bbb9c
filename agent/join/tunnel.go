package join

import (
	"context"
	"net/http"
	"slices"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/nodetunnel"
)

// Serve serves the kubelet's API to every server through a tunnel that this machine opens, until ctx ends.
func (d Deps) Serve(ctx context.Context, i *Identity, kubelet http.Handler) {
	group, ctx := guard.With(ctx) // a panic ends all tunnels
	stops := map[string]context.CancelFunc{}
	for ctx.Err() == nil {
		servers, changed := i.watchServers()
		for server, stop := range stops {
			if !slices.Contains(servers, server) {
				stop()
				delete(stops, server)
			}
		}
		for _, server := range servers {
			if stops[server] != nil {
				continue
			}
			of, stop := context.WithCancel(ctx)
			stops[server] = stop
			group.Do(func() error { d.keepTunnel(of, i, server, kubelet); return nil })
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	for _, stop := range stops {
		stop()
	}
	guard.Raise(group.Wait())
}

// maxTunnelPause is the maximum pause between attempts to open a tunnel: it is also how long logs and exec of the node's
// pods do not work after a server has started again.
const maxTunnelPause = 10 * time.Second

// keepTunnel keeps a tunnel to a server open until ctx ends.
func (d Deps) keepTunnel(ctx context.Context, i *Identity, server string, kubelet http.Handler) {
	retry := backoff.Retry{First: firstPause, Most: maxTunnelPause}
	for logged := false; ; logged = true {
		began := d.Clock.Now()
		err := serveTunnel(ctx, i, server, kubelet)
		if ctx.Err() != nil {
			return
		}
		if d.Clock.Since(began) > maxTunnelPause {
			retry.Reset()
			logged = false
		}
		if !logged { // once for a time without the server
			d.Log.Warn("the tunnel to a server has ended: logs and exec of this node's pods do not work there until it is back",
				zap.String("server", server), zap.Error(err))
		}
		if !retry.Wait(ctx, d.Clock) {
			return
		}
	}
}

// headerTime limits how long the server may take to send a request's header.
const headerTime = 15 * time.Second

func serveTunnel(ctx context.Context, i *Identity, server string, kubelet http.Handler) error {
	listener, err := nodetunnel.Open(ctx, server, i.TLS())
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: kubelet, ReadHeaderTimeout: headerTime}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	defer listener.Close()
	return srv.Serve(listener)
}
