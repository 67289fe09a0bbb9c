// Package serviceaccounttoken adds tokens to Secrets of type kubernetes.io/service-account-token, deletes such Secrets
// when their ServiceAccount is deleted, and removes deleted Secrets from the lists of their accounts.
package serviceaccounttoken

import (
	"bytes"
	"context"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Name is upstream's name of the controller.
const Name = "serviceaccount-token-controller"

// life is the maximum validity of a token in seconds. The token becomes invalid with its Secret.
const life = 1 << 32

// Config of the controller.
type Config struct {
	CA []byte // PEM, for the Secrets' ca.crt
}

// Controller maintains the tokens.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller { return &Controller{deps: deps, cfg: cfg} }

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// account is the service account of a Secret.
type account struct {
	follow.Key
	secret string // empty: all Secrets of the account
}

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[account]{
		Name: Name,
		Sources: []follow.Source[account]{
			{Selector: client.Selector{Resource: client.Secrets, Fields: ofType()}, Keys: follow.Plain(ofSecret)},
			{Selector: client.Selector{Resource: client.ServiceAccounts}, Keys: follow.Plain(ofAccount)},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

func ofType() fields.Selector {
	return fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))
}

func ofSecret(old, next client.Object) []account {
	if next == nil {
		next = old
	}
	return []account{{secret: next.GetName(),
		Key: follow.Key{Namespace: next.GetNamespace(), Name: next.GetAnnotations()[corev1.ServiceAccountNameKey]}}}
}

// ofAccount wakes the Secrets of an account that was created or deleted.
func ofAccount(old, next client.Object) []account {
	switch {
	case old == nil:
		return []account{{Key: follow.KeyOf(next)}}
	case next == nil:
		return []account{{Key: follow.KeyOf(old)}}
	}
	return nil
}

func (c *Controller) reconcile(ctx context.Context, of account) (time.Duration, error) {
	secrets, err := client.List[*corev1.Secret](ctx, c.deps.Client,
		client.Selector{Namespace: of.Namespace, Fields: ofType()})
	if err != nil {
		return 0, err
	}
	found := false
	for _, s := range secrets {
		found = found || s.Name == of.secret
		if s.Annotations[corev1.ServiceAccountNameKey] != of.Name || of.secret != "" && s.Name != of.secret ||
			s.DeletionTimestamp != nil {
			continue
		}
		if err := c.settle(ctx, s, of.Key); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return 0, err
		}
	}
	if of.secret != "" && !found {
		return 0, c.unlist(ctx, of)
	}
	return 0, nil
}

// unlist removes a deleted Secret from the account's list.
func (c *Controller) unlist(ctx context.Context, of account) error {
	is := func(ref corev1.ObjectReference) bool { return ref.Name == of.secret }
	sa, err := client.Get[*corev1.ServiceAccount](ctx, c.deps.Client, of.Namespace, of.Name)
	if err == nil && slices.ContainsFunc(sa.Secrets, is) {
		_, err = client.Update(ctx, c.deps.Client, sa, "", func(sa *corev1.ServiceAccount) error {
			sa.Secrets = slices.DeleteFunc(sa.Secrets, is)
			return nil
		})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// settle adds the token to a Secret, or deletes the Secret if its account was replaced.
func (c *Controller) settle(ctx context.Context, s *corev1.Secret, of follow.Key) error {
	sa, err := client.Get[*corev1.ServiceAccount](ctx, c.deps.Client, of.Namespace, of.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	uid := types.UID(s.Annotations[corev1.ServiceAccountUIDKey])
	if err != nil || uid != "" && uid != sa.UID {
		_, err := c.deps.Client.Delete(ctx, client.RefOf(s),
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
		return err
	}
	if uid == sa.UID && c.filled(s) {
		return nil
	}
	token, err := client.RequestToken(ctx, c.deps.Client, sa.Namespace, sa.Name, authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(life)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: s.UID},
	})
	if err != nil {
		return err
	}
	_, err = client.Update(ctx, c.deps.Client, s, "", func(s *corev1.Secret) error {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[corev1.ServiceAccountTokenKey] = []byte(token.Status.Token)
		s.Data[corev1.ServiceAccountNamespaceKey] = []byte(sa.Namespace)
		if len(c.cfg.CA) > 0 {
			s.Data[corev1.ServiceAccountRootCAKey] = c.cfg.CA
		}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.ServiceAccountUIDKey, string(sa.UID))
		return nil
	})
	return err
}

// filled reports whether a Secret contains a token and the current CA.
func (c *Controller) filled(s *corev1.Secret) bool {
	return len(s.Data[corev1.ServiceAccountTokenKey]) > 0 && len(s.Data[corev1.ServiceAccountNamespaceKey]) > 0 &&
		(len(c.cfg.CA) == 0 || bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], c.cfg.CA))
}
