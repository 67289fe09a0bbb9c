package expressions

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// maxPatternSize is the upper limit of PatternSize, far above all limits that use it.
const maxPatternSize = 1 << 20

// PatternSize returns the approximate number of instructions of a compiled expression, of about 40 bytes each. A search
// takes at most as many steps for each byte of the text. PatternSize does not expand repetitions, which the compiler
// copies.
func PatternSize(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = max(1, len(re.Rune))
	case syntax.OpCharClass:
		n += len(re.Rune) / 10 // ranges of 4 bytes each
	case syntax.OpConcat, syntax.OpRepeat:
		n = 0
	}
	for _, sub := range re.Sub {
		n = min(n+PatternSize(sub), maxPatternSize)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1) // at most 1,000
	}
	return n
}

var foldsCase = regexp.MustCompile(`\(\?[msU]*i`)

// ParseCost returns the extra cost to parse an expression, in instructions that could be compiled in the same time. A
// Unicode class has hundreds of ranges, and if case is ignored, the parser visits each character of a range: 8 KB of
// such ranges take three seconds.
func ParseCost(expression string) int {
	n := 130 * (strings.Count(expression, `\p`) + strings.Count(expression, `\P`))
	if !foldsCase.MatchString(expression) {
		return n
	}
	n += len(expression)
	for i := range len(expression) - 1 {
		// ranges of ASCII are short
		if next := expression[i+1]; expression[i] == '-' && (next >= utf8.RuneSelf || next == '\\') {
			n += 1000
		}
	}
	return n
}
