package custom

import (
	"errors"
	"fmt"
	"maps"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/registry/webhook"
)

// responseObjects returns the objects of a response, or an error in upstream's words if the response is invalid.
func responseObjects(review, answer *apiextensionsv1.ConversionReview) ([]runtime.RawExtension, error) {
	r := answer.Response
	strict := review.APIVersion == apiextensionsv1.SchemeGroupVersion.String() // v1beta1 does not require these fields
	switch is, want := answer.GroupVersionKind(), review.GroupVersionKind(); {
	case strict && is != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, webhook.Truncate(is.String()))
	case r == nil:
		return nil, errors.New("no response provided")
	case strict && r.UID != review.Request.UID:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", review.Request.UID, webhook.Truncate(string(r.UID)))
	case r.Result.Status == metav1.StatusSuccess:
		return r.ConvertedObjects, nil
	case r.Result.Message != "":
		return nil, errors.New(webhook.Truncate(r.Result.Message))
	}
	return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", webhook.Truncate(r.Result.Status))
}

// accept returns the object that a webhook converted from in, or an error if the response is another object. It takes
// only labels and annotations of the metadata from the response.
func (v *Version) accept(in *Object, answer *runtime.RawExtension) (*Object, error) {
	if err := bounded.Check(answer.Raw); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(answer.Raw); err != nil {
		return nil, errors.New(webhook.Truncate(err.Error()))
	}
	switch gv := u.GroupVersionKind().GroupVersion(); {
	case u.IsList():
		return nil, errors.New("it is a list")
	case gv.String() != v.apiVersion:
		return nil, fmt.Errorf("invalid groupVersion (expected %v, received %v)", v.apiVersion,
			webhook.Truncate(gv.String()))
	case u.GetKind() != in.Kind:
		return nil, fmt.Errorf("invalid kind (expected %v, received %v)", in.Kind, webhook.Truncate(u.GetKind()))
	}
	for _, f := range []struct{ name, is, was string }{
		{"name", u.GetName(), in.Name}, {"namespace", u.GetNamespace(), in.Namespace},
		{"UID", string(u.GetUID()), string(in.UID)},
	} {
		if f.is != f.was {
			return nil, fmt.Errorf("must have the same %s: %v != %v", f.name, f.was, webhook.Truncate(f.is))
		}
	}
	meta, err := mergedMetadata(in, u)
	if err != nil {
		return nil, err
	}
	c, err := v.compiled()
	if err != nil {
		return nil, err
	}
	delete(u.Object, "metadata")
	if _, _, err := c.prune(u.Object); err != nil {
		return nil, err
	}
	out := &Object{TypeMeta: metav1.TypeMeta{Kind: in.Kind, APIVersion: v.apiVersion}, ObjectMeta: *meta, version: v}
	err = out.set(u.Object)
	out.content, out.valid = nil, in.valid
	return out, err
}

// mergedMetadata returns the metadata of in with the labels and annotations of u.
func mergedMetadata(in *Object, u *unstructured.Unstructured) (*metav1.ObjectMeta, error) {
	found, ok := u.Object["metadata"]
	if !ok {
		return nil, errors.New("missing metadata in converted object")
	}
	is, ok := found.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata of type %T in converted object", found)
	}
	meta := in.ObjectMeta.DeepCopy()
	var err error
	if meta.Labels, err = stringMap(is, "labels"); err == nil && !maps.Equal(meta.Labels, in.Labels) {
		err = metav1validation.ValidateLabels(meta.Labels, field.NewPath("metadata", "labels")).ToAggregate()
	}
	if err != nil {
		return nil, err
	}
	meta.Annotations, err = stringMap(is, "annotations")
	if err == nil && !maps.Equal(meta.Annotations, in.Annotations) {
		err = apivalidation.ValidateAnnotations(meta.Annotations, field.NewPath("metadata", "annotation")).ToAggregate()
	}
	return meta, err
}

// stringMap returns a map of strings in the metadata of a converted object; nil: there is none.
func stringMap(meta map[string]any, name string) (map[string]string, error) {
	found := meta[name]
	if found == nil {
		return nil, nil
	}
	all, ok := found.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, found)
	}
	out := make(map[string]string, len(all))
	for key, value := range all {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object",
				name, webhook.Truncate(key), value)
		}
		out[key] = text
	}
	return out, nil
}
