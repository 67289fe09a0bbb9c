package cmd

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/local"
)

// owner is a kind whose pods a selector finds.
type owner struct {
	names       []string // as users write them; the first is the resource
	path        string   // of the group and version
	mapSelector bool     // the selector is a map of labels
}

var owners = []owner{
	{[]string{"deployments", "deployment", "deploy"}, "/apis/apps/v1", false},
	{[]string{"replicasets", "replicaset", "rs"}, "/apis/apps/v1", false},
	{[]string{"statefulsets", "statefulset", "sts"}, "/apis/apps/v1", false},
	{[]string{"daemonsets", "daemonset", "ds"}, "/apis/apps/v1", false},
	{[]string{"jobs", "job"}, "/apis/batch/v1", false},
	{[]string{"replicationcontrollers", "replicationcontroller", "rc"}, "/api/v1", true},
	{[]string{"services", "service", "svc"}, "/api/v1", true},
}

// findPods returns the pods of an object that is given as POD or KIND/NAME.
func findPods(ctx context.Context, server *local.Server, namespace, object string) ([]corev1.Pod, error) {
	kind, name, ok := strings.Cut(object, "/")
	if !ok {
		kind, name = "pod", object
	}
	kind = strings.ToLower(kind)
	if name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("the object must be given as POD or KIND/NAME, for example web-0 or deploy/web, got %q",
			object)
	}
	if slices.Contains([]string{"pods", "pod", "po"}, kind) {
		var pod corev1.Pod
		if err := server.JSON(ctx, path("/api/v1", namespace, "pods", name), &pod); err != nil {
			return nil, err
		}
		return []corev1.Pod{pod}, nil
	}
	if slices.Contains([]string{"cronjobs", "cronjob", "cj"}, kind) {
		last, err := lastJob(ctx, server, namespace, name)
		if err != nil {
			return nil, err
		}
		kind, name = "job", last
	}
	for _, o := range owners {
		if slices.Contains(o.names, kind) {
			return o.pods(ctx, server, namespace, name)
		}
	}
	return nil, fmt.Errorf("%s has no logs: name a pod, a deployment, replicaset, statefulset, daemonset, job, cronjob, "+
		"replicationcontroller or service", kind)
}

// path returns the path of an object, or of a list without a name.
func path(at, namespace, resource, name string) string {
	p := at + "/namespaces/" + url.PathEscape(namespace) + "/" + resource
	if name != "" {
		p += "/" + url.PathEscape(name)
	}
	return p
}

// pods returns the pods that an object selects, by name.
func (o owner) pods(ctx context.Context, server *local.Server, namespace, name string) ([]corev1.Pod, error) {
	selector, err := o.selector(ctx, server, path(o.path, namespace, o.names[0], name))
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if selector != "" { // an empty selector selects no pods
		if err := server.JSON(ctx, path("/api/v1", namespace, "pods", "")+"?"+
			url.Values{"labelSelector": {selector}}.Encode(), &list); err != nil {
			return nil, err
		}
	}
	if len(list.Items) == 0 {
		kind := o.names[1]
		return nil, fmt.Errorf("%s/%s has no pods in namespace %s; ask: monopod why %[1]s/%[2]s -n %[3]s", kind, name,
			namespace)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

func (o owner) selector(ctx context.Context, server *local.Server, at string) (string, error) {
	if o.mapSelector {
		var obj struct {
			Spec struct {
				Selector map[string]string `json:"selector"`
			} `json:"spec"`
		}
		err := server.JSON(ctx, at, &obj)
		return labels.Set(obj.Spec.Selector).String(), err
	}
	var obj struct {
		Spec struct {
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"spec"`
	}
	if err := server.JSON(ctx, at, &obj); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(obj.Spec.Selector)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

// lastJob returns the name of the newest Job of a CronJob.
func lastJob(ctx context.Context, server *local.Server, namespace, name string) (string, error) {
	var cron batchv1.CronJob
	if err := server.JSON(ctx, path("/apis/batch/v1", namespace, "cronjobs", name), &cron); err != nil {
		return "", err
	}
	var jobs batchv1.JobList
	if err := server.JSON(ctx, path("/apis/batch/v1", namespace, "jobs", ""), &jobs); err != nil {
		return "", err
	}
	controlled := slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return !metav1.IsControlledBy(&j, &cron) })
	if len(controlled) == 0 {
		return "", fmt.Errorf("cronjob/%s in namespace %s has no jobs yet; ask: monopod why cronjob/%[1]s -n %[2]s", name,
			namespace)
	}
	return slices.MaxFunc(controlled, func(a, b batchv1.Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name, nil
}
