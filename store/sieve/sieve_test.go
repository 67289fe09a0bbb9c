package sieve_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store/sieve"
)

// An object with all of the wanted labels never lacks them, and most of the others do.
func TestLacks(t *testing.T) {
	t.Parallel()
	const n = 1000
	passed := 0
	for i := range n {
		own := map[string]string{"app": fmt.Sprint(i), "tier": "front", "": ""}
		obj := &metav1.ObjectMeta{Labels: own}
		var marks sieve.Marks
		var all sieve.Mask
		for key, value := range own {
			all |= sieve.Of(key, value)
			if marks.Lacks(sieve.Of(key, value), obj) {
				t.Errorf("%v lacks %s=%s", own, key, value)
			}
		}
		if marks.Lacks(all, obj) || marks.Lacks(0, obj) {
			t.Errorf("%v lacks its own labels", own)
		}
		if !marks.Lacks(sieve.Of("app", fmt.Sprint(i+n)), obj) {
			passed++
		}
		var none sieve.Marks
		if !none.Lacks(all, &metav1.ObjectMeta{}) {
			t.Error("an object without labels has some")
		}
	}
	if passed > n/10 {
		t.Errorf("%d of %d objects seem to have a label of another one", passed, n)
	}
}
