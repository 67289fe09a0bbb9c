// Package pattern contains regular expressions that cost nothing before they are used.
package pattern

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. The first call compiles it, and panics if it is invalid.
//
// Every command of the program, however short, would otherwise pay for the patterns of all others: some 60 µs each.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
