// Package expressions limits the cost of single calls in CEL expressions. Upstream charges the cost of a function after
// the call, and for some functions a cost that does not depend on the result. One call can therefore take more memory
// than the machine has, or minutes without an interruption. This package rejects expensive calls before they begin, and
// charges results by their size.
package expressions

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Base returns the environment of all expressions. Upstream's packages for custom resources share it through package
// environment, so that the limits apply there, too; users of these packages must call Base first.
func Base() *environment.EnvSet {
	replaceFunctions()
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// replaceFunctions replaces upstream's functions and costs. It panics if upstream's functions differ from those that
// checks covers.
var replaceFunctions = sync.OnceFunc(func() {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0),
		ProgramOptions: []cel.ProgramOption{
			cel.CostTracking(&resultCosts{}), cel.CustomDecorator(guardSearches), cel.OptimizeRegex(constantPatterns()...)}}
	all := base.StoredExpressionsEnv().Functions()
	for name, check := range checks {
		option, err := guardFunction(all[name], check)
		if err != nil {
			panic(fmt.Sprintf("function %s of CEL: %v", name, err))
		}
		options.EnvOptions = append(options.EnvOptions, option)
	}
	next, err := base.Extend(options)
	if err != nil {
		panic(fmt.Sprintf("environment of CEL: %v", err))
	}
	*base = *next
})

// guardFunction returns a function that checks its arguments before each call.
func guardFunction(f *decls.FunctionDecl, check func(args []ref.Val) error) (cel.EnvOption, error) {
	if f == nil {
		return nil, fmt.Errorf("unknown")
	}
	all, err := f.Bindings()
	if err != nil {
		return nil, err
	}
	bindings := map[string]functions.FunctionOp{}
	for _, b := range all {
		bindings[b.Operator] = call(b)
	}
	var overloads []cel.FunctionOpt
	for _, o := range f.OverloadDecls() {
		op := bindings[o.ID()]
		if op == nil {
			return nil, fmt.Errorf("overload %s has no binding", o.ID())
		}
		declare := cel.Overload
		if o.IsMemberFunction() {
			declare = cel.MemberOverload
		}
		overloads = append(overloads,
			declare(o.ID(), o.ArgTypes(), o.ResultType(), bind(len(o.ArgTypes()), func(args ...ref.Val) ref.Val {
				if err := check(args); err != nil {
					return types.WrapErr(err)
				}
				return op(args...)
			})))
	}
	return cel.Function(f.Name(), overloads...), nil
}

// call returns the implementation of an overload for any number of arguments.
func call(o *functions.Overload) functions.FunctionOp {
	switch {
	case o.Unary != nil:
		return func(args ...ref.Val) ref.Val { return o.Unary(args[0]) }
	case o.Binary != nil:
		return func(args ...ref.Val) ref.Val { return o.Binary(args[0], args[1]) }
	}
	return o.Function
}

// bind returns an overload implementation for n arguments.
func bind(n int, op functions.FunctionOp) cel.OverloadOpt {
	switch n {
	case 1:
		return cel.UnaryBinding(func(a ref.Val) ref.Val { return op(a) })
	case 2:
		return cel.BinaryBinding(func(a, b ref.Val) ref.Val { return op(a, b) })
	}
	return cel.FunctionBinding(op)
}
