package admissionpolicy

import (
	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"monopod/apiserver/registry/webhook"
)

// expression is an expression of a policy.
type expression struct {
	text, name string // name is that of a variable
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

// Expressions are the expressions of a policy, compiled. Messages has as many as Validations.
type Expressions struct {
	Conditions, Validations, Messages, Annotations plugincel.ConditionEvaluator
}

// compiler compiles the expressions of one policy.
type compiler struct {
	plugincel.Compiler
	composed *plugincel.CompositedCompiler // of a policy with variables
	may      plugincel.OptionalVariableDeclarations
}

// newCompiler returns the compiler of a policy's expressions. That of a policy without variables is shared.
func newCompiler(spec *admissionv1.ValidatingAdmissionPolicySpec) (*compiler, error) {
	c := &compiler{Compiler: webhook.Compiler(), may: plugincel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}}
	if len(spec.Variables) == 0 {
		return c, nil
	}
	composed, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	c.Compiler, c.composed = composed, composed
	return c, nil
}

// messages returns what the expressions of messages may use: not the authorizer.
func (c *compiler) messages() plugincel.OptionalVariableDeclarations {
	return plugincel.OptionalVariableDeclarations{HasParams: c.may.HasParams}
}

// all returns the evaluator of stored expressions; one that does not compile fails when it is evaluated.
func (c *compiler) all(expressions []plugincel.ExpressionAccessor, may plugincel.OptionalVariableDeclarations) plugincel.ConditionEvaluator {
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

// Compile returns the expressions of a stored policy.
func Compile(spec *admissionv1.ValidatingAdmissionPolicySpec) (*Expressions, error) {
	c, err := newCompiler(spec)
	if err != nil {
		return nil, err
	}
	for i := range spec.Variables {
		c.composed.CompileAndStoreVariable(variable(&spec.Variables[i]), c.may, environment.StoredExpressions)
	}
	conditions := make([]plugincel.ExpressionAccessor, len(spec.MatchConditions))
	for i, m := range spec.MatchConditions {
		conditions[i] = boolean(m.Expression)
	}
	validations, messages := make([]plugincel.ExpressionAccessor, len(spec.Validations)), make([]plugincel.ExpressionAccessor, len(spec.Validations))
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
		Conditions: c.all(conditions, c.may), Validations: c.all(validations, c.may),
		Messages: c.all(messages, c.messages()), Annotations: c.all(annotations, c.may),
	}, nil
}
