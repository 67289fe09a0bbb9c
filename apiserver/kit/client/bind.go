package client

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bind posts a Binding to the node to which change sets a pod's spec.nodeName.
func (c *Remote) bind(ctx context.Context, ref Ref, change Change) (Object, error) {
	plain := ref.Sub("")
	cur, err := c.Get(ctx, plain)
	if err != nil {
		return nil, err
	}
	next, err := change(cur)
	if err != nil || next == cur {
		return next, err
	}
	pod, ok := next.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("client: the subresource binding requires a Pod, got a %T", next)
	}
	answer, err := c.do(ctx, http.MethodPost, c.pathOf(ref), &corev1.Binding{
		TypeMeta:   metav1.TypeMeta{Kind: "Binding", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: cur.GetUID()},
		Target:     corev1.ObjectReference{Kind: "Node", Name: pod.Spec.NodeName},
	})
	if err != nil {
		return nil, err
	}
	answer.Close()
	return c.Get(ctx, plain)
}
