package expressions

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// maxPatternSize is up to where PatternSize is meant: far more than any part of this program compiles.
const maxPatternSize = 1 << 20

// PatternSize is about how many instructions, of some 40 bytes, an expression is compiled to. A search takes at most as
// many steps for each byte of the text. Repetitions, which the compiler copies, are not made for it.
func PatternSize(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = max(1, len(re.Rune))
	case syntax.OpCharClass:
		n += len(re.Rune) / 10 // its ranges, of 4 bytes each
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

// Parsing is how long it takes to parse an expression beyond the usual, in instructions that could be compiled
// meanwhile. A class of Unicode has hundreds of ranges, and if case is ignored, each character of a range is looked at:
// 8 KB of such ranges take three seconds.
func Parsing(expression string) int {
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
