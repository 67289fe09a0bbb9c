package volume

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// unsupported words why a volume cannot be had, with the words that users of
// kubelet look for.
func unsupported(v *corev1.VolumeSource) error {
	value := reflect.ValueOf(*v)
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			return fmt.Errorf("no volume plugin matched: volumes of type %s are not supported by this node", nameOf(value.Type().Field(i)))
		}
	}
	return fmt.Errorf("no volume plugin matched: the volume has no type")
}

// nameOf is a field's name in the API.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
