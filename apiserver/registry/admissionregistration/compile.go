package admissionregistration

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/cel/environment"

	"monopod/apiserver/registry/expressions"
)

// expression is a CEL expression of a policy.
type expression struct {
	text, name string // name is empty except for variables
	returns    []*cel.Type
}

// GetExpression implements plugincel.ExpressionAccessor.
func (e expression) GetExpression() string { return e.text }

// ReturnTypes implements plugincel.ExpressionAccessor.
func (e expression) ReturnTypes() []*cel.Type { return e.returns }

// GetName implements plugincel.NamedExpressionAccessor.
func (e expression) GetName() string { return e.name }

func boolean(text string) expression {
	return expression{text: text, returns: []*cel.Type{cel.BoolType}}
}
func text(text string) expression {
	return expression{text: text, returns: []*cel.Type{cel.StringType}}
}

func textOrNull(text string) expression {
	return expression{text: text, returns: []*cel.Type{cel.StringType, cel.NullType}}
}

func variable(v *admissionv1.Variable) expression {
	return expression{text: v.Expression, name: v.Name, returns: []*cel.Type{cel.AnyType, cel.DynType}}
}

// Expressions are the compiled expressions of a validating policy. Messages has the length of Validations.
type Expressions struct {
	Spec *admissionv1.ValidatingAdmissionPolicySpec

	Conditions, Validations, Messages, Annotations plugincel.ConditionEvaluator
}

// compiler compiles the expressions of one policy.
type compiler struct {
	plugincel.Compiler
	composed *plugincel.CompositedCompiler // nil: the policy has no variables
	may      plugincel.OptionalVariableDeclarations
}

// newCompiler returns the compiler of a policy's expressions. All policies without variables share one.
func newCompiler(params *admissionv1.ParamKind, variables []admissionv1.Variable) (*compiler, error) {
	c := &compiler{Compiler: Compiler(),
		may: plugincel.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true}}
	if len(variables) == 0 {
		return c, nil
	}
	composed, err := plugincel.NewCompositedCompiler(expressions.Base())
	if err != nil {
		return nil, err
	}
	c.Compiler, c.composed = composed, composed
	return c, nil
}

// messages returns the declarations for message expressions, which cannot use the authorizer.
func (c *compiler) messages() plugincel.OptionalVariableDeclarations {
	return plugincel.OptionalVariableDeclarations{HasParams: c.may.HasParams}
}

// all returns the evaluator of stored expressions. An expression that does not compile fails at evaluation.
func (c *compiler) all(expressions []plugincel.ExpressionAccessor,
	may plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
	if c.composed != nil {
		return c.composed.CompileCondition(expressions, may, environment.StoredExpressions)
	}
	results := make([]plugincel.CompilationResult, len(expressions))
	for i, e := range expressions {
		if e != nil {
			results[i] = c.CompileCELExpression(e, may, environment.StoredExpressions)
		}
	}
	return plugincel.NewCondition(results)
}

// stored returns the compiler of a stored policy with its variables, and the policy's match conditions.
func stored(params *admissionv1.ParamKind, variables []admissionv1.Variable,
	match []admissionv1.MatchCondition) (*compiler, plugincel.ConditionEvaluator, error) {
	c, err := newCompiler(params, variables)
	if err != nil {
		return nil, nil, err
	}
	for i := range variables {
		c.composed.CompileAndStoreVariable(variable(&variables[i]), c.may, environment.StoredExpressions)
	}
	conditions := make([]plugincel.ExpressionAccessor, len(match))
	for i, m := range match {
		conditions[i] = boolean(m.Expression)
	}
	return c, c.all(conditions, c.may), nil
}

// Compile compiles the expressions of a stored policy.
func Compile(spec *admissionv1.ValidatingAdmissionPolicySpec) (*Expressions, error) {
	c, conditions, err := stored(spec.ParamKind, spec.Variables, spec.MatchConditions)
	if err != nil {
		return nil, err
	}
	validations, messages := make([]plugincel.ExpressionAccessor, len(spec.Validations)),
		make([]plugincel.ExpressionAccessor, len(spec.Validations))
	for i, v := range spec.Validations {
		validations[i] = boolean(v.Expression)
		if v.MessageExpression != "" {
			messages[i] = text(v.MessageExpression)
		}
	}
	annotations := make([]plugincel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i, a := range spec.AuditAnnotations {
		annotations[i] = textOrNull(a.ValueExpression)
	}
	return &Expressions{
		Spec: spec, Conditions: conditions, Validations: c.all(validations, c.may),
		Messages: c.all(messages, c.messages()), Annotations: c.all(annotations, c.may),
	}, nil
}

// Mutations are the compiled match conditions and mutations of a policy.
type Mutations struct {
	Spec       *admissionv1.MutatingAdmissionPolicySpec
	Conditions plugincel.ConditionEvaluator
	Patchers   []patch.Patcher // one for each of Spec.Mutations
	composed   *plugincel.CompositedCompiler
}

// Context returns the context in which Patchers evaluate the policy's variables.
func (m *Mutations) Context(ctx context.Context) context.Context {
	if m.composed == nil {
		return ctx
	}
	return m.composed.CreateContext(ctx)
}

// CompileMutations compiles the expressions of a stored policy.
func CompileMutations(spec *admissionv1.MutatingAdmissionPolicySpec) (*Mutations, error) {
	c, conditions, err := stored(spec.ParamKind, spec.Variables, spec.MatchConditions)
	if err != nil {
		return nil, err
	}
	out := &Mutations{Spec: spec, Conditions: conditions, Patchers: make([]patch.Patcher, len(spec.Mutations)),
		composed: c.composed}
	for i := range spec.Mutations {
		switch m := &spec.Mutations[i]; {
		case m.PatchType == admissionv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			out.Patchers[i] = patch.NewJSONPatcher(c.mutation(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}))
		case m.PatchType == admissionv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			out.Patchers[i] = patch.NewApplyConfigurationPatcher(
				c.mutation(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}))
		default:
			return nil, fmt.Errorf("mutation %d has no expression of type %q", i, m.PatchType)
		}
	}
	return out, nil
}

// patches returns the declarations for mutations, which include the types of patches.
func (c *compiler) patches() plugincel.OptionalVariableDeclarations {
	may := c.may
	may.HasPatchTypes = true
	return may
}

// mutation returns the evaluator of a stored mutation.
func (c *compiler) mutation(e plugincel.ExpressionAccessor) plugincel.MutatingEvaluator {
	if c.composed != nil {
		return c.composed.CompileMutatingEvaluator(e, c.patches(), environment.StoredExpressions)
	}
	return plugincel.NewMutatingEvaluator(c.CompileCELExpression(e, c.patches(), environment.StoredExpressions))
}
