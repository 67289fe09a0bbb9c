package admissionregistration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	openapispec "k8s.io/kube-openapi/pkg/validation/spec"

	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/expressions"
	"monopod/apiserver/registry/kind"
)

const (
	maxKinds = 10 // kinds that a policy is checked against (upstream: the same)
	// maxChecks is the maximum number of checks for one policy: expressions times kinds. The rest is not checked.
	maxChecks = 1000
)

// Config contains the dependencies of the checks.
type Config struct {
	Served      func() []kind.Resource           // the served resources
	Definitions func() (*definitions.Set, error) // the schemas of built-in kinds
}

// Prepare extends the Prepare of policies: it also checks a new spec.
func Prepare(next func(obj, cur kind.Object, subresource string),
	cfg Config) func(obj, cur kind.Object, subresource string) {
	return func(obj, cur kind.Object, subresource string) {
		next(obj, cur, subresource)
		p := obj.(*admissionv1.ValidatingAdmissionPolicy)
		if subresource != "" || cur != nil && cur.GetGeneration() == p.Generation {
			return
		}
		p.Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: cfg.check(&p.Spec)}
	}
}

// check returns the warnings about the expressions that are evaluated for requests.
func (cfg *Config) check(spec *admissionv1.ValidatingAdmissionPolicySpec) []admissionv1.ExpressionWarning {
	served := cfg.Served()
	kinds := matched(spec.MatchConstraints, served)
	if len(kinds) == 0 {
		return nil
	}
	set, err := cfg.Definitions()
	if err != nil {
		return nil // skip the checks, as for kinds without a schema
	}
	known := &schemas{set: set, served: served, read: map[string]*openapispec.Schema{}}
	var params *apiservercel.DeclType
	if k := spec.ParamKind; k != nil {
		params = known.typeOf(schema.FromAPIVersionAndKind(k.APIVersion, k.Kind))
	}
	var checkers []*checker
	for _, gvk := range kinds {
		if object := known.typeOf(gvk); object != nil {
			checkers = append(checkers, newChecker(gvk, object, params, spec))
		}
	}
	var out []admissionv1.ExpressionWarning
	checks := 0
	warn := func(at *field.Path, expression string) {
		if checks += len(checkers); expression == "" || checks > maxChecks {
			return
		}
		var lines []string
		for _, c := range checkers {
			if line := c.check(expression); line != "" {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 {
			out = append(out, admissionv1.ExpressionWarning{FieldRef: at.String(), Warning: strings.Join(lines, "\n")})
		}
	}
	for i, v := range spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		warn(at.Child("expression"), v.Expression)
		warn(at.Child("messageExpression"), v.MessageExpression)
	}
	return out
}

// matched returns the kinds that the rules name without wildcards, sorted.
func matched(m *admissionv1.MatchResources, served []kind.Resource) (out []schema.GroupVersionKind) {
	if m == nil {
		return nil
	}
	for i := range m.ResourceRules {
		r := &m.ResourceRules[i].Rule
		if slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIVersions, "*") {
			continue
		}
		for j := range served {
			res := &served[j]
			if slices.Contains(r.APIGroups, res.GVR.Group) && slices.Contains(r.APIVersions, res.GVR.Version) &&
				slices.Contains(r.Resources, res.GVR.Resource) && !slices.Contains(out, res.GVK()) && len(out) < maxKinds {
				out = append(out, res.GVK())
			}
		}
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// checker checks expressions against the schema of one kind.
type checker struct {
	gvk schema.GroupVersionKind
	env *plugincel.CompositedCompiler
	err error
}

func newChecker(gvk schema.GroupVersionKind, object, params *apiservercel.DeclType,
	spec *admissionv1.ValidatingAdmissionPolicySpec) *checker {
	c := &checker{gvk: gvk}
	set, err := expressions.Base().Extend(variableTypes(object, params, spec.ParamKind != nil))
	if err == nil {
		c.env, err = plugincel.NewCompositedCompilerForTypeChecking(set)
	}
	if c.err = err; err != nil {
		return c
	}
	c.env.Compiler = c
	for i := range spec.Variables {
		c.env.CompileAndStoreVariable(variable(&spec.Variables[i]), plugincel.OptionalVariableDeclarations{},
			environment.StoredExpressions)
	}
	return c
}

// variableTypes declares the variables of expressions.
func variableTypes(object, params *apiservercel.DeclType, parameterized bool) environment.VersionedOptions {
	out := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	declare := func(of *apiservercel.DeclType, names ...string) {
		t := cel.DynType
		if of != nil {
			t = of.CelType()
			out.DeclTypes = append(out.DeclTypes, of)
		}
		for _, name := range names {
			out.EnvOptions = append(out.EnvOptions, cel.Variable(name, t))
		}
	}
	declare(plugincel.BuildNamespaceType(), plugincel.NamespaceVarName)
	declare(plugincel.BuildRequestType(), plugincel.RequestVarName)
	declare(object, plugincel.ObjectVarName, plugincel.OldObjectVarName)
	if parameterized {
		declare(params, plugincel.ParamsVarName)
	}
	out.EnvOptions = append(out.EnvOptions, cel.Variable("authorizer", library.AuthorizerType))
	return out
}

// check returns the error of an expression; empty: none.
func (c *checker) check(text string) string {
	if c.err != nil {
		return fmt.Sprintf("%v: type checking error: %v\n", c.gvk, c.err)
	}
	if result := c.CompileCELExpression(expression{text: text}, plugincel.OptionalVariableDeclarations{},
		environment.StoredExpressions); result.Error != nil {
		return fmt.Sprintf("%v: %s\n", c.gvk, result.Error)
	}
	return ""
}

// CompileCELExpression implements plugincel.Compiler. It checks the expression and returns no program.
func (c *checker) CompileCELExpression(e plugincel.ExpressionAccessor, _ plugincel.OptionalVariableDeclarations,
	mode environment.Type) plugincel.CompilationResult {
	env, err := c.env.Env(mode)
	if err != nil {
		return plugincel.CompilationResult{ExpressionAccessor: e,
			Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: fmt.Sprintf("fail to build env: %v", err)}}
	}
	ast, issues := env.Compile(e.GetExpression())
	if issues != nil {
		return plugincel.CompilationResult{ExpressionAccessor: e,
			Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: issues.String()}}
	}
	return plugincel.CompilationResult{OutputType: ast.OutputType()}
}
