package route

import (
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

func setBool(to *bool, text string) string {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return "true or false"
	}
	*to = v
	return ""
}

// maxWait is the maximum for Options.Wait.
const maxWait = 24 * time.Hour

// seconds parses a positive number of seconds.
func seconds(text string) (time.Duration, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "s"), 10, 32)
	return min(time.Duration(n)*time.Second, maxWait), err == nil && n > 0
}

// size parses a number of bytes, as nginx writes them (8m, 1g: powers of 1024), or as a quantity.
func size(text string) (int64, bool) {
	digits := strings.TrimRight(text, "kKmMgG")
	shift := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}
	if by, ok := shift[strings.ToLower(text[len(digits):])]; ok {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err == nil {
			return n << by, n >= 0 && n <= math.MaxInt64>>by
		}
	}
	q, err := resource.ParseQuantity(text)
	return q.Value(), err == nil && q.Sign() >= 0
}
