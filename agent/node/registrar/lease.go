package registrar

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// lease renews the node's lease, or creates it.
func (r *Registrar) lease(ctx context.Context) error {
	fill := func(l *coordinationv1.Lease) error {
		l.Spec.HolderIdentity = new(r.cfg.NodeName)
		l.Spec.LeaseDurationSeconds = new(int32(r.cfg.LeaseDuration / time.Second))
		l.Spec.RenewTime = &metav1.MicroTime{Time: r.Clock.Now()}
		return nil
	}
	l := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: r.cfg.NodeName, Namespace: corev1.NamespaceNodeLease},
	}
	_, err := client.Update(ctx, r.Client, l, "", fill)
	if !apierrors.IsNotFound(err) {
		return err
	}
	// Without the lease there may be no Node either, if the server was restored from a snapshot: the Node that was read
	// before may be that of the cache for a time without servers.
	node, err := r.registered(ctx)
	if err != nil {
		return err
	}
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	_ = fill(l)
	if _, err := r.Client.Create(ctx, l); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}
