package join

import (
	"context"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
)

const (
	// renewCheck is the interval between two looks at the expiry of the certificate.
	renewCheck = time.Hour
	// renewRetry is the pause after an attempt that failed, doubling up to renewCheck.
	renewRetry = time.Minute
)

// Renew requests a new certificate when a fifth of the life of the current one is left, until ctx ends. The server
// approves the request because the node requests it with its old certificate.
func (d Deps) Renew(ctx context.Context, i *Identity, node string, to client.Client) {
	retry := backoff.Retry{First: renewRetry, Most: renewCheck}
	for {
		pause := renewCheck
		if i.due(d.Clock.Now()) {
			if err := d.renew(ctx, i, node, to); err != nil {
				pause = retry.Next()
				d.Log.Warn("failed to renew the certificate of the node", zap.Error(err))
			} else {
				retry.Reset()
				d.Log.Info("renewed the certificate of the node", zap.Time("until", i.certificate().Leaf.NotAfter))
			}
		}
		if !backoff.Sleep(ctx, d.Clock, pause) {
			return
		}
	}
}

func (d Deps) renew(ctx context.Context, i *Identity, node string, to client.Client) error {
	cert, err := d.certificate(ctx, to, i.folder, node)
	if err != nil {
		return err
	}
	return i.setCertificate(cert, d.Clock.Now())
}
