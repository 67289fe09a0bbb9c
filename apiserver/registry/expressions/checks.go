package expressions

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"

	"monopod/apiserver/kit/bounded"
)

const (
	// maxText is the maximum length of a string that one call returns. It is larger than an object.
	maxText = 4 << 20
	// maxPrecision is the maximum number of decimal places in a formatted string.
	maxPrecision = 100
	// maxComparisons is the maximum number of comparisons in one call. They take less than a second.
	maxComparisons = 10_000_000
	// maxRange is the maximum length of a list of numbers.
	maxRange = 100_000
	// costOfByte is upstream's cost to read or write a byte of a string.
	costOfByte = 0.2
)

// checks are the checks that run before each call of a function. The declarations of the function guarantee the types
// of the arguments.
var checks = map[string]func(args []ref.Val) error{
	"quantity": checkQuantity, "isQuantity": checkQuantity,
	"replace": checkReplace, "join": checkJoin, "format": checkFormat,
	"lists.range":   checkRange,
	"distinct":      func(args []ref.Val) error { return checkComparisons(args[0], args[0]) },
	"sets.contains": checkSets, "sets.equivalent": checkSets, "sets.intersects": checkSets,
}

// checkQuantity rejects a quantity with so many digits that a comparison takes minutes.
func checkQuantity(args []ref.Val) error {
	if text, ok := args[0].(types.String); ok && bounded.SuspiciousQuantity([]byte(text)) {
		return fmt.Errorf("the quantity is out of range")
	}
	return nil
}

func checkReplace(args []ref.Val) error {
	text, old, with := string(args[0].(types.String)), string(args[1].(types.String)), string(args[2].(types.String))
	if len(with) <= len(old) {
		return nil
	}
	times := strings.Count(text, old)
	if len(args) > 3 {
		if n := int64(args[3].(types.Int)); n >= 0 {
			times = int(min(int64(times), n))
		}
	}
	return checkLength(len(text) + saturatedProduct(times, len(with)-len(old)))
}

func checkJoin(args []ref.Val) error {
	n := 0
	if len(args) > 1 {
		n = saturatedProduct(length(args[0]), len(args[1].(types.String)))
	}
	return checkLength(n + size(args[0], maxText+1))
}

// precisions matches the precisions in a format string.
var precisions = regexp.MustCompile(`\.([0-9]+)`)

func checkFormat(args []ref.Val) error {
	text := string(args[0].(types.String))
	for _, p := range precisions.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.Atoi(p[1]); err != nil || n > maxPrecision {
			return fmt.Errorf("precision %.20s exceeds the maximum of %d", p[1], maxPrecision)
		}
	}
	return checkLength(len(text) + size(args[1], maxText+1))
}

func checkRange(args []ref.Val) error {
	if n := args[0].(types.Int); n > maxRange {
		return fmt.Errorf("a list of %d numbers exceeds the maximum of %d", n, maxRange)
	}
	return nil
}

func checkSets(args []ref.Val) error { return checkComparisons(args[0], args[1]) }

func checkComparisons(a, b ref.Val) error {
	if n := saturatedProduct(length(a), length(b)); n > maxComparisons {
		return fmt.Errorf("%d comparisons exceed the maximum of %d", n, maxComparisons)
	}
	return nil
}

func checkLength(n int) error {
	if n > maxText {
		return fmt.Errorf("a text of %d bytes exceeds the maximum of %d", n, maxText)
	}
	return nil
}

func length(v ref.Val) int {
	if s, ok := v.(traits.Sizer); ok {
		if n, ok := s.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// saturatedProduct returns a*b, or half of the largest int if that is less: a sum with a length does not overflow.
func saturatedProduct(a, b int) int {
	const most = math.MaxInt / 2
	if a != 0 && b > most/a {
		return most
	}
	return a * b
}

// scalar is the size of a value that is neither a string nor a list nor a map: a number with all its binary digits.
const scalar = 64

// size returns the total length of all strings in a value. It stops at most.
func size(v ref.Val, most int) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return 2 * len(v) // hexadecimal
	case traits.Mapper:
		n := 0
		for it := v.Iterator(); it.HasNext() == types.True && n < most; {
			key := it.Next()
			n += size(key, most-n) + size(v.Get(key), most-n)
		}
		return n
	case traits.Lister:
		n := 0
		for it := v.Iterator(); it.HasNext() == types.True && n < most; {
			n += size(it.Next(), most-n)
		}
		return n
	}
	return scalar
}

// resultCosts charges upstream's cost plus the size of the result, so that the budget limits the memory of an
// expression.
type resultCosts struct{ library.CostEstimator }

// CallCost implements interpreter.ActualCostEstimator.
func (c *resultCosts) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	theirs := c.CostEstimator.CallCost(function, overload, args, result)
	if types.IsError(result) {
		return theirs // checks rejected the call
	}
	var ours uint64
	switch function {
	case "replace", "format":
		if text, ok := result.(types.String); ok {
			ours = uint64(math.Ceil(float64(len(text)) * costOfByte))
		}
	case "lists.range":
		ours = uint64(length(result))
	}
	if ours == 0 || theirs != nil && *theirs >= ours {
		return theirs
	}
	return &ours
}
