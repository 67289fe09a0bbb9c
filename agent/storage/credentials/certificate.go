// Package credentials keeps the service account tokens and the certificates that the volumes of a node's pods contain,
// and renews them before they expire. They are only in memory: after a restart of the agent all are requested again,
// and the mounted ones stay until then.
//
//   - token.go: tokens
//   - certificate.go: keys and their certificates, requested with PodCertificateRequests, which signers answer
//   - renewal.go: when each must be renewed
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
	// maxJitter is added at random to the time of a renewal, so that those of one start do not meet (upstream's).
	maxJitter = 5 * time.Minute
	// overdue is how long after the time of its renewal a certificate is reported (upstream's).
	overdue = 10 * time.Minute
	// recheck is the pause between looks at a request whose answer is awaited; its change is noticed at once.
	recheck = time.Minute
)

// Certificates keeps the certificates of a node's pods. It is safe for concurrent use; the calls for one pod are not
// concurrent.
type Certificates struct {
	client client.Client
	clock  clock.PassiveClock
	node   string
	warn   func(pod *corev1.Pod, reason, message string)
	table  Table[volume.Source, *record]
	shown  Table[volume.Source, shown]
}

// record is the state of one certificate.
type record struct {
	bundle             *volume.Bundle // in use; nil: none yet
	refreshAt, expires time.Time
	late, expired      bool // reported

	key     []byte // of the request
	request string // name of the request that waits for an answer; empty: none
	refused error  // the signer refuses permanently
	refusal string // how: denied or failed
}

// NewCertificates returns a Keeper for the pods of a node; warn writes an event about a pod.
func NewCertificates(c client.Client, clk clock.PassiveClock, node string,
	warn func(pod *corev1.Pod, reason, message string)) *Certificates {
	return &Certificates{client: c, clock: clk, node: node, warn: warn}
}

// Get returns the key and the certificate for a source of the pod. Without one it requests it and returns ErrPending
// until it is issued; while it is renewed it returns the former one.
func (k *Certificates) Get(ctx context.Context, pod *corev1.Pod, at volume.Source,
	p *corev1.PodCertificateProjection) (volume.Bundle, error) {
	r, _, ok := k.table.Get(pod.UID, at)
	if !ok {
		r = new(record)
	}
	err := k.advance(ctx, pod, r, p)
	k.report(pod, r)
	k.table.Put(pod.UID, at, r, k.next(r))
	k.shown.Put(pod.UID, at, shown{p.SignerName, r.refusal, r.bundle != nil, r.refreshAt, r.expires}, time.Time{})
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
	k.shown.Forget(pod)
}

// advance takes the answer to the request, and creates a request if one is needed. A request that was removed without
// an answer is replaced.
func (k *Certificates) advance(ctx context.Context, pod *corev1.Pod, r *record,
	p *corev1.PodCertificateProjection) error {
	if r.request != "" {
		if err := k.answer(ctx, pod, r); err != nil {
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

// answer reads the request and takes its outcome.
func (k *Certificates) answer(ctx context.Context, pod *corev1.Pod, r *record) error {
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
				bundle: &volume.Bundle{Key: r.key, Chain: cleaned(s.CertificateChain)}, expires: s.NotAfter.Time,
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

// refuse ends the requests of a certificate: as upstream, the signer's no is final for the pod.
func (k *Certificates) refuse(pod *corev1.Pod, r *record, how string, c *metav1.Condition) {
	r.refusal = how
	r.refused = fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", how, c.Reason, c.Message)
	k.warn(pod, c.Type,
		fmt.Sprintf("PodCertificateRequest %s/%s was %s, reason=%q, message=%q", pod.Namespace, r.request, how, c.Reason,
			c.Message))
	r.request, r.key = "", nil
}

// report writes one event about a certificate that is not renewed in time, and one when it expires.
func (k *Certificates) report(pod *corev1.Pod, r *record) {
	now := k.clock.Now()
	if r.bundle == nil {
		return
	}
	if !r.late && !now.Before(r.refreshAt.Add(overdue)) {
		r.late = true
		k.warn(pod, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if !r.expired && !now.Before(r.expires) {
		r.expired = true
		k.warn(pod, "CertificateExpired", "PodCertificate expired")
	}
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
