// Package credentials caches the service account tokens and the certificates in the volumes of a node's pods, and
// renews them before they expire. The cache is in memory: after a restart, the agent requests all again, and the
// mounted ones stay valid until then.
//
//   - token.go: service account tokens
//   - certificate.go: keys and certificates, requested with PodCertificateRequests from signers
//   - renewal.go: the times of renewals
package credentials

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/client"
)

// ErrPending is the error for a certificate that no signer has issued yet.
var ErrPending = errors.New("credential bundle is not issued yet")

const (
	// maxJitter is the maximum random delay of a renewal, which spreads the renewals after a start (upstream's).
	maxJitter = 5 * time.Minute
	// overdue is the time after which a late renewal is reported (upstream's).
	overdue = 10 * time.Minute
	// recheck is the interval of checks of a pending request, whose changes also wake the pod at once.
	recheck = time.Minute
)

// Certificates caches the certificates of a node's pods. It is safe for concurrent use; the calls for one pod are not
// concurrent.
type Certificates struct {
	client client.Client
	clock  clock.PassiveClock
	node   string
	warn   func(pod *corev1.Pod, reason, message string)
	table  Table[volume.Source, *record]
	states Table[volume.Source, metricState]
}

// record is the state of one certificate.
type record struct {
	bundle                        *volume.Bundle // in use; nil: none yet
	refreshAt, expires            time.Time
	lateReported, expiredReported bool

	key     []byte // of the request
	request string // name of the pending request; empty: none
	refused error  // the signer has refused permanently; nil: it has not
	refusal string // denied or failed
}

// NewCertificates returns an empty cache for the pods of a node; warn writes an Event about a pod.
func NewCertificates(c client.Client, clk clock.PassiveClock, node string,
	warn func(pod *corev1.Pod, reason, message string)) *Certificates {
	return &Certificates{client: c, clock: clk, node: node, warn: warn}
}

// Get returns the key and the certificate for a source of the pod. The first call requests the certificate; until it is
// issued, Get returns ErrPending. During a renewal, Get returns the previous certificate.
func (k *Certificates) Get(ctx context.Context, pod *corev1.Pod, at volume.Source,
	p *corev1.PodCertificateProjection) (volume.Bundle, error) {
	r, _, ok := k.table.Get(pod.UID, at)
	if !ok {
		r = new(record)
	}
	err := k.advance(ctx, pod, r, p)
	if r.bundle != nil { // one Event if the certificate is not renewed in time, and one when it expires
		now := k.clock.Now()
		if !r.lateReported && !now.Before(r.refreshAt.Add(overdue)) {
			r.lateReported = true
			k.warn(pod, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
		}
		if !r.expiredReported && !now.Before(r.expires) {
			r.expiredReported = true
			k.warn(pod, "CertificateExpired", "PodCertificate expired")
		}
	}
	k.table.Put(pod.UID, at, r, k.next(r))
	k.states.Put(pod.UID, at,
		metricState{p.SignerName, r.refusal, r.bundle != nil, r.refreshAt, r.expires}, time.Time{})
	switch {
	case r.refused != nil:
		return volume.Bundle{}, r.refused
	case r.bundle != nil:
		return *r.bundle, nil
	case err != nil:
		return volume.Bundle{}, err
	}
	return volume.Bundle{}, ErrPending
}

// Due reports whether a certificate of the pod needs another Get.
func (k *Certificates) Due(pod types.UID) bool { return k.table.Due(pod, k.clock.Now()) }

// Forget drops the certificates of a removed pod.
func (k *Certificates) Forget(pod types.UID) {
	k.table.Forget(pod)
	k.states.Forget(pod)
}

// advance reads the result of the pending request, and creates a request if one is needed. It replaces a request that
// was deleted without a result.
func (k *Certificates) advance(ctx context.Context, pod *corev1.Pod, r *record,
	p *corev1.PodCertificateProjection) error {
	if r.request != "" {
		if err := k.readResult(ctx, pod, r); err != nil {
			return err
		}
	}
	if r.request != "" || r.refused != nil || r.bundle != nil && k.clock.Now().Before(r.refreshAt) {
		return nil
	}
	key, request, err := k.create(ctx, pod, p)
	if err != nil {
		return fmt.Errorf("request certificate: %w", err)
	}
	r.key, r.request = key, request.Name
	return nil
}

// readResult stores the result of the pending request, if there is one.
func (k *Certificates) readResult(ctx context.Context, pod *corev1.Pod, r *record) error {
	request, err := client.Get[*certificatesv1.PodCertificateRequest](ctx, k.client, pod.Namespace, r.request)
	if apierrors.IsNotFound(err) {
		r.request, r.key = "", nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read PodCertificateRequest %q: %w", r.request, err)
	}
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			s := &request.Status
			if s.BeginRefreshAt == nil || s.NotAfter == nil {
				return fmt.Errorf("PodCertificateRequest %q is issued without times", r.request)
			}
			*r = record{
				bundle: &volume.Bundle{Key: r.key, Chain: onlyBlocks(s.CertificateChain)}, expires: s.NotAfter.Time,
				refreshAt: s.BeginRefreshAt.Add(min(rand.N(maxJitter), s.NotAfter.Sub(s.BeginRefreshAt.Time)/2)),
			}
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			k.refuse(pod, r, denied, &c)
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			k.refuse(pod, r, failed, &c)
		}
	}
	return nil
}

// refuse ends the requests for a certificate: as upstream, a refusal is final for the pod.
func (k *Certificates) refuse(pod *corev1.Pod, r *record, how string, c *metav1.Condition) {
	r.refusal = how
	r.refused = fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", how, c.Reason, c.Message)
	k.warn(pod, c.Type, fmt.Sprintf("PodCertificateRequest %s/%s was %s, reason=%q, message=%q",
		pod.Namespace, r.request, how, c.Reason, c.Message))
	r.request, r.key = "", nil
}

// next returns when the certificate has to be checked again.
func (k *Certificates) next(r *record) time.Time {
	switch now := k.clock.Now(); {
	case r.refused != nil:
		return now.Add(100 * 365 * 24 * time.Hour)
	case r.bundle != nil && now.Before(r.refreshAt):
		return r.refreshAt
	default:
		return now.Add(recheck)
	}
}
