package expressions

import (
	"regexp/syntax"
	"strings"
	"testing"
)

// The estimate is between half and three times the compiled size.
func TestPatternSize(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"", "a", "abc", "(a)", "(?i)abc", "a*b+c?", "a{300}", "(a?){1000}", "(ab|c){10,20}", "a{5,}", "x|y|zz",
		`^\d+(\.\d+){0,3}$`, `\pL+`, "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
		"(a{10}){10}", strings.Repeat("(.*a|b.*)", 50), "((((a))))",
	} {
		tree, err := syntax.Parse(expression, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		size := PatternSize(tree)
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		// Compiled programs begin with a fail instruction and end with a match instruction.
		if made := len(program.Inst) - 2; size > max(3*made, 150) || 2*size < made {
			t.Errorf("%.40q: estimated %d instructions, compiled %d", expression, size, made)
		}
	}
	huge, err := syntax.Parse("("+strings.Repeat("x", 1<<21)+"){2}", syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	if size := PatternSize(huge); size < maxPatternSize {
		t.Errorf("%d for more instructions than are counted, want at least %d", size, maxPatternSize)
	}
}
