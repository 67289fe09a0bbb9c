package expressions

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// The time of a search is proportional to the size of the pattern and the length of the text. Upstream's costs limit
// neither: a pattern of 20 KB that repeats a{1000} 3,000 times takes an hour for a text of 1 MB.
const (
	// maxPattern is the maximum length of a pattern in bytes, maxInstructions the maximum size of the compiled pattern.
	maxPattern, maxInstructions = 64 << 10, 20_000
	// maxSteps is the maximum number of steps of one search. They take less than four seconds.
	maxSteps = 200_000_000
	// maxFinding is the time limit to find all matches of a pattern. The number of steps is not known in advance, because
	// each search may read the text to its end.
	maxFinding = 2 * time.Second
)

// regexFunctions are the functions with a regular expression, with their overloads.
var regexFunctions = map[string][]string{
	"matches": {"matches", "matches_string"},
	"find":    {"string_find_string"},
	"findAll": {"string_find_all_string", "string_find_all_string_int"},
}

// constantPatterns compiles constant patterns once. It replaces upstream's optimizations, which do not check the cost
// of a call.
func constantPatterns() (out []*interpreter.RegexOptimization) {
	for function, overloads := range regexFunctions {
		for _, overload := range overloads {
			out = append(out, &interpreter.RegexOptimization{Function: function, OverloadID: overload, RegexIndex: 1,
				Factory: func(call interpreter.InterpretableCall, text string) (interpreter.InterpretableCall, error) {
					p, err := compilePattern(text)
					if err != nil {
						return nil, err
					}
					return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(),
						func(args ...ref.Val) ref.Val {
							return p.call(call.Function(), args)
						}), nil
				}})
		}
	}
	return out
}

// guardSearches replaces functions whose pattern is known only at the call.
func guardSearches(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || regexFunctions[call.Function()] == nil {
		return i, nil
	}
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		if len(args) < 2 {
			return types.NoSuchOverloadErr()
		}
		text, ok := args[1].(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[1])
		}
		p, err := compilePattern(string(text))
		if err != nil {
			return types.WrapErr(err)
		}
		return p.call(call.Function(), args)
	}), nil
}

// compiled is a compiled pattern with the number of its instructions.
type compiled struct {
	*regexp.Regexp
	size int
}

func compilePattern(text string) (compiled, error) {
	if len(text) > maxPattern {
		return compiled{}, fmt.Errorf("a pattern of %d bytes exceeds the maximum of %d", len(text), maxPattern)
	}
	if parsing := ParseCost(text); parsing > maxInstructions {
		return compiled{}, fmt.Errorf("the pattern is too expensive to parse: its cost of %d instructions "+
			"exceeds the maximum of %d", parsing, maxInstructions)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return compiled{}, err
	}
	size := PatternSize(tree)
	if size > maxInstructions {
		return compiled{}, fmt.Errorf("a pattern of %d instructions exceeds the maximum of %d", size, maxInstructions)
	}
	re, err := regexp.Compile(text)
	return compiled{re, size}, err
}

// call applies the pattern as the function does.
func (p compiled) call(function string, args []ref.Val) ref.Val {
	value, ok := args[0].(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	text := string(value)
	if steps := saturatedProduct(len(text), p.size); steps > maxSteps {
		return types.NewErr("the search for a pattern of %d instructions in %d bytes would take more than %d steps",
			p.size, len(text), maxSteps)
	}
	switch function {
	case "matches":
		return types.Bool(p.MatchString(text))
	case "find":
		return types.String(p.FindString(text))
	}
	n := -1
	if len(args) > 2 {
		most, ok := args[2].(types.Int)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[2])
		}
		n = int(most)
	}
	all, err := p.findAll(text, n)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.NewStringList(types.DefaultTypeAdapter, all)
}

// stopReplace is the panic value that ends a replacement after the last requested match.
type stopReplace struct{}

// findAll returns at most n matches, or all if n is negative. Unlike FindAllString, it stops after maxFinding.
func (p compiled) findAll(text string, n int) (all []string, err error) {
	if n == 0 {
		return nil, nil
	}
	defer func() {
		if why := recover(); why != nil {
			if _, ok := why.(stopReplace); !ok {
				panic(why)
			}
		}
	}()
	began := time.Now()
	p.ReplaceAllStringFunc(text, func(match string) string {
		all = append(all, match)
		if len(all) == n {
			panic(stopReplace{})
		}
		if time.Since(began) > maxFinding {
			all, err = nil, fmt.Errorf("finding all matches of a pattern takes more than %v", maxFinding)
			panic(stopReplace{})
		}
		return ""
	})
	return all, err
}
