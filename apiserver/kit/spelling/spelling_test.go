package spelling_test

import (
	"testing"

	"monopod/apiserver/kit/spelling"
)

func TestNear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"web-front", "web-frotn", true},
		{"web-front", "web-fron", true},
		{"web-front", "wab-frond", true},
		{"web-front", "wab-frind", false},
		{"web-front", "web-front", false}, // the same name is not a mistake
		{"web-front", "web-front-2", true},
		{"web-front", "front", false},
		{"web", "wed", false}, // too short to tell
		{"größe", "grösse", true},
		{"", "", false},
	} {
		if got := spelling.Similar(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: got %v", c.a, c.b, got)
		}
		if got := spelling.Similar(c.b, c.a); got != c.want {
			t.Errorf("%q and %q: got %v", c.b, c.a, got)
		}
	}
}
