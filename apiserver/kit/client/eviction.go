package client

import (
	"context"
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evict evicts a pod. It returns TooManyRequests if its PodDisruptionBudget does not allow the eviction now. opts may
// be nil.
func Evict(ctx context.Context, c Client, namespace, pod string, opts *metav1.DeleteOptions) error {
	ref := Ref{Resource: Pods, Namespace: namespace, Name: pod, Subresource: "eviction"}
	_, err := c.Update(ctx, ref, func(empty Object) (Object, error) {
		eviction := empty.DeepCopyObject().(*policyv1.Eviction)
		eviction.DeleteOptions = opts
		return eviction, nil
	})
	return err
}

// eviction posts the Eviction to which change changes an empty one.
func (c *Remote) eviction(ctx context.Context, ref Ref, change Change) (Object, error) {
	eviction, err := change(&policyv1.Eviction{
		TypeMeta:   metav1.TypeMeta{Kind: "Eviction", APIVersion: policyv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name},
	})
	if err != nil {
		return nil, err
	}
	if _, ok := eviction.(*policyv1.Eviction); !ok {
		return nil, fmt.Errorf("client: the subresource eviction requires an Eviction, got a %T", eviction)
	}
	body, err := c.do(ctx, http.MethodPost, c.pathOf(ref), eviction)
	if err != nil {
		return nil, err
	}
	return eviction, body.Close()
}
