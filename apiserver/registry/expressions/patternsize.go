package expressions

import "regexp/syntax"

// maxPatternSize is up to where PatternSize is meant: far more than any part of this program compiles.
const maxPatternSize = 1 << 20

// PatternSize is about how many instructions, of some 40 bytes, an expression is compiled to. A search takes at most as many steps for each byte
// of the text. Repetitions, which the compiler copies, are not made for it.
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
