package admissionregistration

import (
	"fmt"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/registry/kind"
)

// Upstream's limits (pkg/apis/admissionregistration/validation).
const (
	maxAnnotations          = 20
	maxAnnotationExpression = 5 * 1024 // in bytes
)

// identifier matches a CEL identifier; reserved contains the reserved words.
var identifier = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

var reserved = map[string]bool{
	"true": true, "false": true, "null": true, "in": true, "as": true, "break": true, "const": true, "continue": true,
	"else": true, "for": true, "function": true, "if": true, "import": true, "let": true, "loop": true, "package": true,
	"namespace": true, "return": true, "var": true, "void": true, "while": true,
}

// checks collects the validation errors of one policy.
type checks struct {
	*compiler
	errs field.ErrorList
}

func (c *checks) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// policySpec contains the fields that the specs of both kinds of policies have.
type policySpec struct {
	failure    *admissionv1.FailurePolicyType
	params     *admissionv1.ParamKind
	match      *admissionv1.MatchResources
	conditions []admissionv1.MatchCondition
	variables  []admissionv1.Variable
}

// check checks the fields that the specs of both kinds have.
func (p *policySpec) check(at *field.Path) *checks {
	compiler, err := newCompiler(p.params, p.variables)
	if err != nil {
		return &checks{errs: field.ErrorList{field.InternalError(at, err)}}
	}
	c := &checks{compiler: compiler}
	c.add(OneOf(p.failure, at.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	c.add(paramKindErrors(p.params, at.Child("paramKind"))...)
	if p.match == nil {
		c.add(field.Required(at.Child("matchConstraints"), ""))
	} else {
		c.add(matchErrors(p.match, at.Child("matchConstraints"))...)
		if len(p.match.ResourceRules) == 0 {
			c.add(field.Required(at.Child("matchConstraints", "resourceRules"), ""))
		}
	}
	c.add(ValidateConditions(p.conditions, p.params != nil, at.Child("matchConditions"))...)
	for i := range p.variables {
		c.variable(&p.variables[i], at.Child("variables").Index(i))
	}
	return c
}

func policyValidate(next, cur kind.Object, subresource string) field.ErrorList {
	p := next.(*policy)
	if subresource != "" || cur != nil && equality.Semantic.DeepEqual(p.Spec, cur.(*policy).Spec) {
		return nil
	}
	at := field.NewPath("spec")
	spec := &policySpec{p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints, p.Spec.MatchConditions,
		p.Spec.Variables}
	c := spec.check(at)
	if c.compiler == nil {
		return c.errs
	}
	if len(p.Spec.Validations) == 0 && len(p.Spec.AuditAnnotations) == 0 {
		for _, name := range []string{"validations", "auditAnnotations"} {
			c.add(field.Required(at.Child(name), "validations or auditAnnotations must contain at least one item"))
		}
	}
	for i := range p.Spec.Validations {
		c.validation(&p.Spec.Validations[i], at.Child("validations").Index(i))
	}
	c.annotations(p.Name, p.Spec.AuditAnnotations, at.Child("auditAnnotations"))
	return c.errs
}

func paramKindErrors(k *admissionv1.ParamKind, at *field.Path) (errs field.ErrorList) {
	if k == nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(k.APIVersion)
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(at.Child("apiVersion"), ""))
	case err != nil:
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, err.Error()))
	case gv.Version == "":
		errs = append(errs, field.Invalid(at.Child("apiVersion"), k.APIVersion, "version must be specified"))
	default:
		if gv.Group != "" {
			errs = append(errs, check.Invalid(at.Child("apiVersion"), gv.Group, validation.IsDNS1123Subdomain(gv.Group))...)
		}
		errs = append(errs, check.Invalid(at.Child("apiVersion"), gv.Version, validation.IsDNS1035Label(gv.Version))...)
	}
	if k.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	if why := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(why) > 0 {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind,
			"may have mixed case, but should otherwise match: "+strings.Join(why, ",")))
	}
	return errs
}

func matchErrors(m *admissionv1.MatchResources, at *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	errs = append(errs, OneOf(m.MatchPolicy, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	strict := metav1validation.LabelSelectorValidationOptions{}
	errs = append(errs,
		metav1validation.ValidateLabelSelector(m.NamespaceSelector, strict, at.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(m.ObjectSelector, strict, at.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, ruleErrors(&m.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, ruleErrors(&m.ExcludeResourceRules[i], at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func ruleErrors(r *admissionv1.NamedRuleWithOperations, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, name := range r.ResourceNames {
		errs = append(errs, check.Invalid(at.Child("resourceNames").Index(i), name, content.IsPathSegmentName(name))...)
		errs = append(errs, check.Unique(at.Child("resourceNames").Index(i), name, seen)...)
	}
	return append(errs, ValidateRule(&r.RuleWithOperations, at)...)
}

// compiles checks that an expression compiles.
func (c *checks) compiles(e plugincel.ExpressionAccessor, may plugincel.OptionalVariableDeclarations, at *field.Path) {
	c.add(Errors(c.CompileCELExpression(e, may, environment.NewExpressions), at)...)
}

func (c *checks) variable(v *admissionv1.Variable, at *field.Path) {
	switch {
	case strings.TrimSpace(v.Name) == "":
		c.add(field.Required(at.Child("name"), "name is not specified"))
	case !identifier.MatchString(v.Name) || reserved[v.Name]:
		c.add(field.Invalid(at.Child("name"), v.Name, "name is not a valid CEL identifier"))
	}
	if strings.TrimSpace(v.Expression) == "" {
		c.add(field.Required(at.Child("expression"), "expression is not specified"))
		return
	}
	result := c.composed.CompileAndStoreVariable(variable(v), c.may, environment.NewExpressions)
	c.add(Errors(result, at.Child("expression"))...)
}

func (c *checks) validation(v *admissionv1.Validation, at *field.Path) {
	if strings.TrimSpace(v.Expression) == "" {
		c.add(field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		c.compiles(boolean(v.Expression), c.may, at.Child("expression"))
	}
	if strings.TrimSpace(v.MessageExpression) != "" {
		c.compiles(text(v.MessageExpression), c.messages(), at.Child("messageExpression"))
	} else if v.MessageExpression != "" {
		c.add(field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		c.add(field.Invalid(at.Child("message"), v.Message, "message must be non-empty if specified"))
	case strings.ContainsAny(message, "\n\r"):
		c.add(field.Invalid(at.Child("message"), v.Message, "message must not contain line breaks"))
	}
	c.add(OneOf(v.Reason, at.Child("reason"),
		metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized)...)
}

func (c *checks) annotations(policy string, all []admissionv1.AuditAnnotation, at *field.Path) {
	if len(all) > maxAnnotations {
		c.add(field.Invalid(at, len(all), fmt.Sprintf("must not have more than %d auditAnnotations", maxAnnotations)))
		return // compile none
	}
	seen := map[string]bool{}
	for i, a := range all {
		at := at.Index(i)
		name := policy + "/" + a.Key
		c.add(check.Invalid(at.Child("key"), name, validation.IsQualifiedName(name))...)
		if seen[a.Key] {
			c.add(field.Duplicate(at.Child("key"), a.Key))
		}
		seen[a.Key] = true
		switch value := strings.TrimSpace(a.ValueExpression); {
		case value == "":
			c.add(field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		case len(value) > maxAnnotationExpression:
			c.add(field.Required(at.Child("valueExpression"),
				fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpression)))
		default:
			c.compiles(textOrNull(value), c.may, at.Child("valueExpression"))
		}
	}
}

func bindingValidate(next, _ kind.Object, _ string) (errs field.ErrorList) {
	spec, at := &next.(*binding).Spec, field.NewPath("spec")
	errs = bindingErrors(spec.PolicyName, spec.ParamRef, spec.MatchResources, at)
	actions, at := spec.ValidationActions, at.Child("validationActions")
	seen := map[admissionv1.ValidationAction]bool{}
	for i, a := range actions {
		errs = append(errs, OneOf(&a, at.Index(i), admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		errs = append(errs, check.Unique(at.Index(i), a, seen)...)
	}
	if seen[admissionv1.Deny] && seen[admissionv1.Warn] {
		errs = append(errs, field.Invalid(at, actions,
			"must not contain both Deny and Warn (repeating the same validation failure information "+
				"in the API response and headers serves no purpose)"))
	}
	if len(actions) == 0 {
		errs = append(errs, field.Required(at, "at least one validation action is required"))
	}
	return errs
}

// bindingErrors checks the fields that the specs of both kinds of bindings have.
func bindingErrors(policy string, params *admissionv1.ParamRef, match *admissionv1.MatchResources,
	at *field.Path) (errs field.ErrorList) {
	if policy == "" {
		errs = append(errs, field.Required(at.Child("policyName"), ""))
	} else {
		errs = append(errs, check.Invalid(at.Child("policyName"), policy, apivalidation.NameIsDNSSubdomain(policy, false))...)
	}
	errs = append(errs, paramRefErrors(params, at.Child("paramRef"))...)
	return append(errs, matchErrors(match, at.Child("matchResources"))...)
}

func paramRefErrors(r *admissionv1.ParamRef, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	if r.Name != "" {
		errs = append(errs, check.Invalid(at.Child("name"), r.Name, content.IsPathSegmentName(r.Name))...)
	}
	errs = append(errs, check.LabelSelector(at.Child("selector"), r.Selector)...)
	switch {
	case r.Name != "" && r.Selector != nil:
		for _, name := range []string{"name", "selector"} {
			errs = append(errs, field.Forbidden(at.Child(name), "name and selector are mutually exclusive"))
		}
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, OneOf(r.ParameterNotFoundAction, at.Child("parameterNotFoundAction"),
		admissionv1.AllowAction, admissionv1.DenyAction)...)
}
