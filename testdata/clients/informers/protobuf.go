package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// asProtobuf returns a copy of cfg that prefers protobuf, as Kubernetes' components do.
func asProtobuf(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return cfg
}

// speakProtobuf sends objects and options in protobuf and checks the results.
func speakProtobuf(ctx context.Context, cfg *rest.Config) error {
	c, err := kubernetes.NewForConfig(asProtobuf(cfg))
	if err != nil {
		return err
	}
	pods := c.CoreV1().Pods("default")
	pod, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "binary", Labels: map[string]string{"in": "protobuf"}},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{"no": "node"},
			Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Spec.Containers[0].Image = "j"
	pod.ResourceVersion = "" // the scheduler may have changed the pod
	if _, err := pods.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "in=protobuf"})
	if err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].Spec.Containers[0].Image != "j" {
		return fmt.Errorf("the server lists %v, want one pod with the image j", list.Items)
	}
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}
