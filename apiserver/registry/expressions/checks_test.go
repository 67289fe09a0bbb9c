package expressions

import (
	"math"
	"testing"
)

// TestSaturatedProduct checks that no product wraps around, also with 32 bits.
func TestSaturatedProduct(t *testing.T) {
	t.Parallel()
	for _, of := range [][3]int{
		{0, 5, 0}, {5, 0, 0}, {3, 7, 21}, {1 << 15, 1 << 14, 1 << 29}, {1 << 16, math.MaxInt >> 14, math.MaxInt / 2},
		{math.MaxInt, math.MaxInt, math.MaxInt / 2},
	} {
		if n := saturatedProduct(of[0], of[1]); n != of[2] {
			t.Errorf("%d * %d is %d, want %d", of[0], of[1], n, of[2])
		}
	}
	if n := saturatedProduct(math.MaxInt, 2); n+maxText < n || n <= max(maxText, maxComparisons, maxSteps) {
		t.Errorf("%d is not above all limits, or cannot be added to", n)
	}
}
