package admission_test

import (
	"testing"

	"monopod/apiserver/registry/admission"
)

func TestWithout(t *testing.T) {
	t.Parallel()
	left := admission.Chain{{Name: "A"}, {Name: "B"}, {Name: "C"}}.Without([]string{"B", "Unknown"})
	if len(left) != 2 || left[0].Name != "A" || left[1].Name != "C" {
		t.Errorf("left: %v", left)
	}
}
