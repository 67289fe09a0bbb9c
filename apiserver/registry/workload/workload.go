// Package workload contains the kinds that keep a number of pods running, such as Deployment and StatefulSet, and
// ControllerRevision.
package workload

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		replicationControllerResource(),
		controllerRevisionResource(),
		daemonSetResource(),
		deploymentResource(),
		replicaSetResource(),
		statefulSetResource(),
	}
}

// withSelector returns the Validate of a kind whose selector is immutable.
func withSelector[S, T any](halves func(kind.Object) (*S, *T), spec func(*S, *field.Path) field.ErrorList,
	status func(next, cur *T, path *field.Path) field.ErrorList, selector func(*S) *metav1.LabelSelector,
) func(next, cur kind.Object, subresource string) field.ErrorList {
	return func(next, cur kind.Object, subresource string) field.ErrorList {
		nextSpec, nextStatus := halves(next)
		path := field.NewPath("spec")
		if cur == nil {
			return spec(nextSpec, path)
		}
		curSpec, curStatus := halves(cur)
		if subresource == "status" {
			return status(nextStatus, curStatus, field.NewPath("status"))
		}
		return append(spec(nextSpec, path), check.Immutable(path.Child("selector"), selector(nextSpec), selector(curSpec))...)
	}
}
