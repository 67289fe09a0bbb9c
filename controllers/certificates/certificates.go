// Package certificates approves, signs and removes CertificateSigningRequests.
//
//   - approve.go: approves requests of nodes for their own certificates.
//   - join.go: decides requests of machines that join with a bootstrap token.
//   - serving.go: compares serving certificates with the addresses of the nodes.
//   - sign.go: signs approved requests for the signers kubernetes.io/*.
//   - clean.go, podclean.go: delete old requests and old PodCertificateRequests.
package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The controllers' names are upstream's.
const (
	Approving = "csrapproving"
	Signing   = "csrsigning"
	Cleaning  = "csrcleaner"

	PodCleaning = "podcertificaterequest-cleaner-controller"
)

// request shortens the type's name.
type request = certificatesv1.CertificateSigningRequest

// Controller approves, signs or cleans up requests.
type Controller struct {
	deps follow.Deps
	name string
	// work handles one request, and returns the time until it must be handled again; 0: only after a change.
	work func(ctx context.Context, r *request) (again time.Duration, err error)
}

var _ follow.Controller = (*Controller)(nil)

// Name implements follow.Controller.
func (c *Controller) Name() string { return c.name }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name: c.name,
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.CertificateSigningRequests}, Keys: follow.Plain(onRequest)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

func onRequest(_, next client.Object) []follow.Key {
	if next == nil {
		return nil
	}
	return []follow.Key{follow.KeyOf(next)}
}

func (c *Controller) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	r, err := client.Get[*request](ctx, c.deps.Client, "", key.Name)
	if apierrors.IsNotFound(err) || err == nil && r.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	again, err := c.work(ctx, r)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return again, err
}

// find returns a condition of the request, or nil.
func find(r *request, t certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range r.Status.Conditions {
		if c := &r.Status.Conditions[i]; c.Type == t {
			return c
		}
	}
	return nil
}

// add appends a condition. It conflicts if the request was changed since it was read.
func (c *Controller) add(ctx context.Context, r *request, part string, t certificatesv1.RequestConditionType, reason,
	message string) error {
	now := metav1.NewTime(c.deps.Clock.Now())
	_, err := client.Update(ctx, c.deps.Client, r, part, func(cur *request) error {
		cur.UID, cur.ResourceVersion = r.UID, r.ResourceVersion
		cur.Status.Conditions = append(cur.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastUpdateTime: now})
		return nil
	})
	return err
}

// parse decodes the request's PEM block.
func parse(r *request) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
