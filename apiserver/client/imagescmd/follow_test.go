package imagescmd

import (
	"testing"

	"monopod/apiserver/client/images"
)

// A part that is not listed any more is complete, and one whose size is not known counts as much as has come.
func TestSum(t *testing.T) {
	t.Parallel()
	var s sum
	for i, step := range []struct {
		parts      []images.Download
		done, most int64
	}{
		{nil, 0, 0},
		{[]images.Download{{Ref: "a", Done: 10, Total: 100}, {Ref: "b", Done: 5}}, 15, 105},
		{[]images.Download{{Ref: "b", Done: 20, Total: 50}}, 120, 150},
		{[]images.Download{{Ref: "c", Total: 30}}, 150, 180},
		{nil, 180, 180},
	} {
		if done, most := s.add(step.parts); done != step.done || most != step.most {
			t.Errorf("step %d: %d of %d, want %d of %d", i, done, most, step.done, step.most)
		}
	}
}
