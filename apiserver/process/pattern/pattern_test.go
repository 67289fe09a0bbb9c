package pattern

import "testing"

func TestPatternsAreCompiledOnFirstUse(t *testing.T) {
	t.Parallel()
	digits := New(`\d+`)
	compiled := digits()
	if got := compiled.FindString("a 12 b"); got != "12" || digits() != compiled {
		t.Errorf("found %q, want 12; compiled once: %t", got, digits() == compiled)
	}
	invalid := New("(")
	defer func() {
		if recover() == nil {
			t.Error("an invalid pattern did not panic")
		}
	}()
	invalid()
}
