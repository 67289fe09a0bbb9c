package cmd

import (
	"testing"

	"monopod/apiserver/kit/images"
)

func TestPullTitle(t *testing.T) {
	t.Parallel()
	for want, pulls := range map[string][]string{
		"pulling a:1": {"a:1"},
		"pulling a:1, together with 2 other images,": {"a:1", "b:1", "c:1"},
	} {
		if got := pullTitle("a:1", pulls); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := pullTitle("a:1", nil); got != "pulling a:1" { // the pull waits for a slot
		t.Errorf("the title of a pull that waits is %q", got)
	}
}

// A download that is no longer listed is complete. A download of unknown size counts with its received bytes.
func TestDownloadSum(t *testing.T) {
	t.Parallel()
	var s downloadSum
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
