// Package certificates approves, signs and removes CertificateSigningRequests.
//
//   - approve: requests of nodes for their own client certificates.
//   - sign: approved requests for the signers kubernetes.io/*.
//   - clean: requests that are no longer needed, also PodCertificateRequests.
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

// Names of the controllers, upstream's.
const (
	Approving = "csrapproving"
	Signing   = "csrsigning"
	Cleaning  = "csrcleaner"

	PodCleaning = "podcertificaterequest-cleaner-controller"
)

// request is the short name of the kind's type.
type request = certificatesv1.CertificateSigningRequest

// Controller does one of the three tasks for every request.
type Controller struct {
	deps follow.Deps
	name string
	// work does the task for one request, and returns when it has to be checked again; 0: when it changes.
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

// add writes a condition, and with it what change says, unless the request was decided meanwhile.
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

// parse returns the request's content.
func parse(r *request) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
