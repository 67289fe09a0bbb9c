package token

import (
	"context"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// Upstream's values: an hour by default, at least ten minutes, at most 2^32 s.
const (
	defaultSeconds = 60 * 60
	minSeconds     = 10 * 60
	maxSeconds     = 1 << 32
)

// Issue sets the defaults and the status of req, a request for a token of account. It reads from c the object that the
// token is bound to.
func (i *Issuer) Issue(ctx context.Context, c client.Client, account *corev1.ServiceAccount,
	req *authenticationv1.TokenRequest) error {
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = []string{auth.Audience}
	}
	if req.Spec.ExpirationSeconds == nil {
		req.Spec.ExpirationSeconds = new(int64(defaultSeconds))
	}
	req.Status = authenticationv1.TokenRequestStatus{}
	if errs := validate(req); len(errs) > 0 {
		return apierrors.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), req.Name, errs)
	}
	now := i.now()
	until := now.Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)
	claims := &claims{
		Claims: jwt.Claims{
			Issuer: issuer, Subject: auth.ServiceAccountName(account.Namespace, account.Name), Audience: req.Spec.Audiences,
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(until),
			ID: uuid.NewString(),
		},
		Kubernetes: kubernetes{Namespace: account.Namespace, ServiceAccount: ref{account.Name, string(account.UID)}},
	}
	if err := bind(ctx, c, account, req.Spec.BoundObjectRef, &claims.Kubernetes); err != nil {
		return err
	}
	s, err := i.signer()
	if err != nil {
		return fmt.Errorf("open the key of service account tokens: %w", err)
	}
	req.Status.Token, err = s.token(claims)
	req.Status.ExpirationTimestamp = metav1.NewTime(until)
	return err
}

func validate(req *authenticationv1.TokenRequest) (errs field.ErrorList) {
	at, seconds := field.NewPath("spec", "expirationSeconds"), *req.Spec.ExpirationSeconds
	if seconds < minSeconds {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration less than 10 minutes"))
	}
	if seconds > maxSeconds {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// bind records in k the object that the token is bound to.
func bind(ctx context.Context, c client.Client, account *corev1.ServiceAccount,
	to *authenticationv1.BoundObjectReference, k *kubernetes) error {
	if to == nil {
		return nil
	}
	var uid types.UID
	var err error
	switch gvk := schema.FromAPIVersionAndKind(to.APIVersion, to.Kind); gvk {
	case corev1.SchemeGroupVersion.WithKind("Pod"):
		uid, err = bindPod(ctx, c, account, to.Name, k)
	case corev1.SchemeGroupVersion.WithKind("Secret"):
		uid, err = uidOf[*corev1.Secret](ctx, c, account.Namespace, to.Name)
		k.Secret = &ref{to.Name, string(uid)}
	case corev1.SchemeGroupVersion.WithKind("Node"):
		uid, err = uidOf[*corev1.Node](ctx, c, "", to.Name)
		k.Node = &ref{to.Name, string(uid)}
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk))
	}
	if err == nil && to.UID != "" && to.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Resource: to.Kind}, to.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. "+
				"The object might have been deleted and then recreated", to.UID))
	}
	return err
}

// bindPod records the pod and its node in k.
func bindPod(ctx context.Context, c client.Client, account *corev1.ServiceAccount, name string,
	k *kubernetes) (types.UID, error) {
	pod, err := client.Get[*corev1.Pod](ctx, c, account.Namespace, name)
	if err != nil {
		return "", err
	}
	if pod.Spec.ServiceAccountName != account.Name {
		return "", apierrors.NewBadRequest(fmt.Sprintf(
			"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
	}
	k.Pod = &ref{pod.Name, string(pod.UID)}
	if node := pod.Spec.NodeName; node != "" {
		uid, err := uidOf[*corev1.Node](ctx, c, "", node)
		if err != nil && !apierrors.IsNotFound(err) {
			return "", err
		}
		k.Node = &ref{node, string(uid)}
	}
	return pod.UID, nil
}

func uidOf[T client.Object](ctx context.Context, c client.Client, namespace, name string) (types.UID, error) {
	obj, err := client.Get[T](ctx, c, namespace, name)
	if err != nil {
		return "", err
	}
	return obj.GetUID(), nil
}
