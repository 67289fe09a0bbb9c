// Package bootstraptoken maintains bootstrap tokens: Secrets of the type bootstrap.kubernetes.io/token in
// kube-system, with which machines join the cluster.
//
//   - The cleaner deletes tokens when they expire.
//   - The signer signs the kubeconfig in the ConfigMap kube-public/cluster-info with each token, so that a machine
//     that knows a token can trust it.
package bootstraptoken

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// The controllers' names are upstream's.
const (
	Cleaner = "tokencleaner"
	Signer  = "bootstrapsigner"
)

// cleaner deletes expired tokens.
type cleaner struct{ deps follow.Deps }

// NewCleaner returns the controller that deletes expired tokens.
func NewCleaner(deps follow.Deps) follow.Controller { return &cleaner{deps} }

// Name implements follow.Controller.
func (c *cleaner) Name() string { return Cleaner }

// Run implements follow.Controller.
func (c *cleaner) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name: Cleaner,
		Sources: []follow.Source[follow.Key]{
			{Selector: tokens(), Keys: follow.Plain(onToken)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

func tokens() client.Selector {
	return client.Selector{Resource: client.Secrets, Namespace: metav1.NamespaceSystem,
		Fields: fields.OneTermEqualSelector("type", string(bootstrapapi.SecretTypeBootstrapToken))}
}

// onToken wakes tokens with an expiration.
func onToken(_, next client.Object) []follow.Key {
	if next == nil || len(next.(*corev1.Secret).Data["expiration"]) == 0 {
		return nil
	}
	return []follow.Key{follow.KeyOf(next)}
}

// reconcile deletes a token if it has expired; otherwise it returns the time until it does.
func (c *cleaner) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	s, err := client.Get[*corev1.Secret](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if s.Type != bootstrapapi.SecretTypeBootstrapToken || s.DeletionTimestamp != nil {
		return 0, nil
	}
	left, expired := secrets.GetExpiration(s, c.deps.Clock.Now())
	if !expired {
		return left, nil
	}
	// With the resourceVersion the deletion conflicts if the expiration was changed meanwhile.
	_, err = c.deps.Client.Delete(ctx, client.RefOf(s),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}

// token contains the parts of a bootstrap token.
type token struct{ id, secret string }

// signing returns the token and its remaining validity (0: unlimited). It returns false unless the token is valid for
// signing, and its name and content agree.
func signing(s *corev1.Secret, now time.Time) (t token, left time.Duration, ok bool) {
	left, expired := secrets.GetExpiration(s, now)
	t = token{id: string(s.Data["token-id"]), secret: string(s.Data["token-secret"])}
	id, named := strings.CutPrefix(s.Name, bootstrapapi.BootstrapTokenSecretPrefix)
	ok = named && id == t.id && t.id != "" && t.secret != "" && s.DeletionTimestamp == nil && !expired &&
		string(s.Data["usage-bootstrap-signing"]) == "true"
	return t, left, ok
}
