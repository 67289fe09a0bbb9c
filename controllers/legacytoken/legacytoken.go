// Package legacytoken deletes unused service account tokens in generated Secrets.
//
// Only a Secret that its ServiceAccount lists counts as generated; other Secrets belong to users. If the token of a
// Secret was not used for the period, the controller adds a label that makes the token invalid. After another period it
// deletes the Secret. The API server records the last day on which a token was used in another label, and a ConfigMap
// contains the day on which this tracking began.
package legacytoken

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/owned"
)

// Name is upstream's name of the controller.
const Name = "legacy-serviceaccount-token-cleaner-controller"

// The labels and the ConfigMap are upstream's (pkg/serviceaccount, pkg/controlplane/controller/legacytokentracking).
const (
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
	trackingName = "kube-apiserver-legacy-service-account-token-tracking"
	trackingKey  = "since"
)

const (
	day  = 24 * time.Hour // between two checks of a Secret that a pod uses
	year = 365 * day
)

// Config of the controller.
type Config struct {
	// Period (--legacy-service-account-token-clean-up-period) is the time without use after which a token becomes invalid,
	// and after which the Secret of an invalid token is deleted; 0 means a year.
	Period time.Duration
}

// Controller deletes the Secrets.
type Controller struct {
	deps follow.Deps
	cfg  Config
}

var _ follow.Controller = (*Controller)(nil)

// New returns the controller.
func New(deps follow.Deps, cfg Config) *Controller {
	cfg.Period = cmp.Or(cfg.Period, year)
	return &Controller{deps: deps, cfg: cfg}
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return Name }

// tracking is the key of the ConfigMap. Secrets with its name have another namespace.
var tracking = follow.Key{Namespace: metav1.NamespaceSystem, Name: "configmap/" + trackingName}

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	return follow.New(c.deps, follow.Config[follow.Key]{
		Name:  Name,
		Start: []follow.Key{tracking},
		Sources: []follow.Source[follow.Key]{
			{Selector: client.Selector{Resource: client.Secrets, Fields: ofType()}, Keys: follow.Plain(onSecret)},
			{Selector: client.Selector{Resource: client.ServiceAccounts}, Keys: follow.Plain(onAccount)},
			{Selector: client.Selector{Resource: client.ConfigMaps, Namespace: tracking.Namespace,
				Fields: fields.OneTermEqualSelector("metadata.name", trackingName)}, Keys: c.onTracking},
		},
		Reconcile: c.reconcile,
	}).Run(ctx)
}

func ofType() fields.Selector {
	return fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))
}

func onSecret(_, next client.Object) []follow.Key {
	if next == nil {
		return nil
	}
	return []follow.Key{follow.KeyOf(next)}
}

// onAccount wakes the Secrets that an account lists.
func onAccount(old, next client.Object) (keys []follow.Key) {
	if next == nil {
		return nil
	}
	is := next.(*corev1.ServiceAccount)
	if was, ok := old.(*corev1.ServiceAccount); ok && slices.Equal(was.Secrets, is.Secrets) {
		return nil
	}
	for _, ref := range is.Secrets {
		keys = append(keys, follow.Key{Namespace: is.Namespace, Name: ref.Name})
	}
	return keys
}

// onTracking wakes the ConfigMap and all Secrets: the date in the ConfigMap may have changed.
func (c *Controller) onTracking(ctx context.Context, _, _ client.Object) ([]follow.Key, error) {
	secrets, err := client.List[*corev1.Secret](ctx, c.deps.Client, client.Selector{Fields: ofType()})
	keys := []follow.Key{tracking}
	for _, s := range secrets {
		keys = append(keys, follow.KeyOf(s))
	}
	return keys, err
}

// reconcile handles one Secret, or the ConfigMap.
func (c *Controller) reconcile(ctx context.Context, key follow.Key) (time.Duration, error) {
	if key == tracking {
		return 0, c.ensureTracking(ctx)
	}
	s, err := client.Get[*corev1.Secret](ctx, c.deps.Client, key.Namespace, key.Name)
	if apierrors.IsNotFound(err) || err == nil &&
		(s.Type != corev1.SecretTypeServiceAccountToken || s.DeletionTimestamp != nil) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	generated, err := c.generated(ctx, s)
	if err != nil || !generated {
		return 0, err
	}
	since, known, err := c.trackedSince(ctx)
	if err != nil || !known {
		return 0, err
	}
	left, knowable := c.untilUnused(s, since)
	if !knowable || left > 0 {
		return left, nil
	}
	pods, err := client.List[*corev1.Pod](ctx, c.deps.Client, client.Selector{Namespace: s.Namespace})
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return uses(p, s.Name) }) {
		return day, nil
	}
	return c.remove(ctx, s)
}

// today returns the date in upstream's format.
func (c *Controller) today() string { return c.deps.Clock.Now().UTC().Format(time.DateOnly) }

// untilPeriodAfter returns the time until the period after a date has passed. It returns false if text is not a date.
func (c *Controller) untilPeriodAfter(date string) (time.Duration, bool) {
	at, err := time.Parse(time.DateOnly, date)
	return at.AddDate(0, 0, 1).Add(c.cfg.Period).Sub(c.deps.Clock.Now()), err == nil
}

// ensureTracking creates the ConfigMap, or replaces a date that cannot be parsed.
func (c *Controller) ensureTracking(ctx context.Context) error {
	cm, err := client.Get[*corev1.ConfigMap](ctx, c.deps.Client, tracking.Namespace, trackingName)
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.deps.Client.Create(ctx, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: tracking.Namespace, Name: trackingName},
			Data:       map[string]string{trackingKey: c.today()}})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
	case err == nil && !isDate(cm.Data[trackingKey]):
		_, err = client.Update(ctx, c.deps.Client, cm, "", func(cm *corev1.ConfigMap) error {
			if !isDate(cm.Data[trackingKey]) {
				cm.Data = map[string]string{trackingKey: c.today()}
			}
			return nil
		})
	}
	return err
}

func isDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// trackedSince returns the date in the ConfigMap. It returns false if there is none; the ConfigMap wakes the Secrets
// when it is created.
func (c *Controller) trackedSince(ctx context.Context) (string, bool, error) {
	cm, err := client.Get[*corev1.ConfigMap](ctx, c.deps.Client, tracking.Namespace, trackingName)
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return cm.Data[trackingKey], isDate(cm.Data[trackingKey]), nil
}

// generated reports whether the Secret's account lists it.
func (c *Controller) generated(ctx context.Context, s *corev1.Secret) (bool, error) {
	name := s.Annotations[corev1.ServiceAccountNameKey]
	sa, err := client.Get[*corev1.ServiceAccount](ctx, c.deps.Client, s.Namespace, name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	uid := s.Annotations[corev1.ServiceAccountUIDKey]
	return (uid == "" || uid == string(sa.UID)) &&
		slices.ContainsFunc(sa.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == s.Name }), nil
}

// untilUnused returns the time until the token counts as unused, 0 or less if it does. It returns false if the date of
// the last use is invalid.
func (c *Controller) untilUnused(s *corev1.Secret, since string) (time.Duration, bool) {
	left, _ := c.untilPeriodAfter(since)
	left = max(left, s.CreationTimestamp.Add(c.cfg.Period).Sub(c.deps.Clock.Now()))
	if date, ok := s.Labels[lastUsed]; ok {
		more, ok := c.untilPeriodAfter(date)
		return max(left, more), ok
	}
	return left, true
}

// uses reports whether a pod refers to a Secret.
func uses(p *corev1.Pod, secret string) bool {
	for _, v := range p.Spec.Volumes {
		if v.Secret != nil && v.Secret.SecretName == secret {
			return true
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.Secret != nil && s.Secret.Name == secret
		}) {
			return true
		}
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			if slices.ContainsFunc(containers[i].EnvFrom, func(e corev1.EnvFromSource) bool {
				return e.SecretRef != nil && e.SecretRef.Name == secret
			}) ||
				slices.ContainsFunc(containers[i].Env, func(e corev1.EnvVar) bool {
					return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == secret
				}) {
				return true
			}
		}
	}
	return false
}

// errUsed stops an update of a Secret whose token was used meanwhile.
var errUsed = errors.New("the token was used")

// remove makes the token of an unused Secret invalid, or deletes the Secret if the token has been invalid for the
// period.
func (c *Controller) remove(ctx context.Context, s *corev1.Secret) (time.Duration, error) {
	if left, ok := c.untilPeriodAfter(s.Labels[invalidSince]); ok {
		if left > 0 {
			return left, nil
		}
		// With the resourceVersion the deletion conflicts if a label was changed meanwhile.
		_, err := c.deps.Client.Delete(ctx, client.RefOf(s), metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}})
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, err
	}
	_, err := client.Update(ctx, c.deps.Client, s, "", func(cur *corev1.Secret) error {
		if cur.Labels[lastUsed] != s.Labels[lastUsed] {
			return errUsed
		}
		metav1.SetMetaDataLabel(&cur.ObjectMeta, invalidSince, c.today())
		return nil
	})
	if owned.Gone(err) || errors.Is(err, errUsed) {
		return 0, nil // the use of the token wakes the Secret
	}
	return 0, err
}
