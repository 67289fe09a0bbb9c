package managed

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/registry/kind"
)

// scaleHandler converts managedFields between an object and its Scale, which contains only the number of replicas.
func scaleHandler(res *kind.Resource, obj kind.Object) *managedfields.ScaleHandler {
	gv := res.GVR.GroupVersion()
	return managedfields.NewScaleHandler(obj.GetManagedFields(), gv, managedfields.ResourcePathMappings{
		gv.String(): fieldpath.MakePathOrDie("spec", "replicas")})
}

// ScaleOf returns the object's Scale with the managedFields of the replicas.
func ScaleOf(res *kind.Resource, as *kind.Scale, obj kind.Object) (*autoscalingv1.Scale, error) {
	scale := as.Of(obj)
	if len(obj.GetManagedFields()) == 0 {
		return scale, nil
	}
	entries, err := scaleHandler(res, obj).ToSubresource()
	scale.ManagedFields = entries
	return scale, err
}

// FromScale returns the object's managedFields after a write to its Scale.
func FromScale(res *kind.Resource, obj kind.Object, scale *autoscalingv1.Scale) ([]metav1.ManagedFieldsEntry, error) {
	if len(obj.GetManagedFields()) == 0 && len(scale.ManagedFields) == 0 {
		return nil, nil
	}
	return scaleHandler(res, obj).ToParent(scale.ManagedFields)
}
