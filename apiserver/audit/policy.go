package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"monopod/apiserver/auth"
)

// Level is the level of detail of a record. Each level includes those before it.
type Level string

// The levels.
const (
	None            Level = "None"
	Metadata        Level = "Metadata"
	Request         Level = "Request"         // and the request body
	RequestResponse Level = "RequestResponse" // and the response body
)

// Stage is the stage of a request at which an event is written.
type Stage string

// The stages.
const (
	RequestReceived  Stage = "RequestReceived"
	ResponseStarted  Stage = "ResponseStarted" // only for watches and streams
	ResponseComplete Stage = "ResponseComplete"
	Panic            Stage = "Panic"
)

// Policy is upstream's Policy: the first rule that matches a request sets its level. A request that no rule matches is
// not recorded.
type Policy struct {
	APIVersion        string         `json:"apiVersion"`
	Kind              string         `json:"kind"`
	Metadata          map[string]any `json:"metadata,omitempty"`
	OmitStages        []Stage        `json:"omitStages,omitempty"`
	OmitManagedFields bool           `json:"omitManagedFields,omitempty"`
	Rules             []Rule         `json:"rules"`
}

// Rule matches a request that matches each of its lists. An empty list matches every request.
type Rule struct {
	Level             Level            `json:"level"`
	Users             []string         `json:"users,omitempty"`
	UserGroups        []string         `json:"userGroups,omitempty"`
	Verbs             []string         `json:"verbs,omitempty"`
	Resources         []GroupResources `json:"resources,omitempty"`
	Namespaces        []string         `json:"namespaces,omitempty"` // "" matches cluster-scoped objects
	NonResourceURLs   []string         `json:"nonResourceURLs,omitempty"`
	OmitStages        []Stage          `json:"omitStages,omitempty"`
	OmitManagedFields *bool            `json:"omitManagedFields,omitempty"`
}

// GroupResources selects resources of one group, or of all groups with "*": "pods", "pods/log", "pods/*" (which
// includes pods), "*/scale" or "*". An empty list selects the whole group.
type GroupResources struct {
	Group         string   `json:"group"`
	Resources     []string `json:"resources,omitempty"`
	ResourceNames []string `json:"resourceNames,omitempty"`
}

// LoadPolicy reads a policy file. Its error names every invalid field by its path.
func LoadPolicy(path string) (*Policy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := ParsePolicy(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy parses a policy in YAML or JSON.
func ParsePolicy(data []byte) (*Policy, error) {
	p := &Policy{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		return nil, err
	}
	return p, p.validate()
}

func (p *Policy) validate() error {
	var errs []error
	if p.APIVersion != apiVersion || p.Kind != "Policy" {
		errs = append(errs,
			fmt.Errorf("the file must contain a Policy of %s, got a %q of %q", apiVersion, p.Kind, p.APIVersion))
	}
	if len(p.Rules) == 0 {
		errs = append(errs, errors.New("rules: Required value: a policy without rules records nothing"))
	}
	errs = append(errs, validStages(p.OmitStages, "omitStages"))
	for i, r := range p.Rules {
		errs = append(errs, r.validate(fmt.Sprintf("rules[%d]", i)))
	}
	return errors.Join(errs...)
}

func (r Rule) validate(path string) error {
	var errs []error
	if levels := []Level{None, Metadata, Request, RequestResponse}; !slices.Contains(levels, r.Level) {
		errs = append(errs, fmt.Errorf("%s.level: Unsupported value: %q: supported values: %q", path, r.Level, levels))
	}
	if len(r.NonResourceURLs) > 0 && (len(r.Resources) > 0 || len(r.Namespaces) > 0) {
		errs = append(errs,
			fmt.Errorf("%s.nonResourceURLs: Invalid value: a rule can have resources or paths, not both", path))
	}
	for i, u := range r.NonResourceURLs {
		if u != "*" && (!strings.HasPrefix(u, "/") || strings.Contains(strings.TrimSuffix(u, "*"), "*")) {
			errs = append(errs,
				fmt.Errorf("%s.nonResourceURLs[%d]: Invalid value: %q: must begin with a slash, and may end in an asterisk", path,
					i, u))
		}
	}
	for i, g := range r.Resources {
		if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
			errs = append(errs,
				fmt.Errorf("%s.resources[%d].resourceNames: Invalid value: resourceNames require resources", path, i))
		}
	}
	return errors.Join(append(errs, validStages(r.OmitStages, path+".omitStages"))...)
}

func validStages(stages []Stage, path string) error {
	all := []Stage{RequestReceived, ResponseStarted, ResponseComplete, Panic}
	for i, s := range stages {
		if !slices.Contains(all, s) {
			return fmt.Errorf("%s[%d]: Unsupported value: %q: supported values: %q", path, i, s, all)
		}
	}
	return nil
}

// Decision is the result of a policy for one request.
type Decision struct {
	Level             Level
	OmitStages        []Stage
	OmitManagedFields bool
}

// Decide returns the decision for a request.
func (p *Policy) Decide(a auth.Attributes) Decision {
	for _, r := range p.Rules {
		if r.matches(a) {
			d := Decision{Level: r.Level, OmitStages: slices.Concat(p.OmitStages, r.OmitStages),
				OmitManagedFields: p.OmitManagedFields}
			if r.OmitManagedFields != nil {
				d.OmitManagedFields = *r.OmitManagedFields
			}
			return d
		}
	}
	return Decision{Level: None}
}

func (r Rule) matches(a auth.Attributes) bool {
	switch {
	case len(r.Users) > 0 && !slices.Contains(r.Users, a.User.Name):
		return false
	case len(r.UserGroups) > 0 &&
		!slices.ContainsFunc(r.UserGroups, func(g string) bool { return slices.Contains(a.User.Groups, g) }):
		return false
	case len(r.Verbs) > 0 && !slices.Contains(r.Verbs, a.Verb):
		return false
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		if a.Path != "" || (len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, a.Namespace)) {
			return false
		}
		return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(g GroupResources) bool { return g.has(a) })
	case len(r.NonResourceURLs) > 0:
		return a.Path != "" && slices.ContainsFunc(r.NonResourceURLs, func(u string) bool { return matchesPath(u, a.Path) })
	}
	return true
}

func (g GroupResources) has(a auth.Attributes) bool {
	if g.Group != a.Group && g.Group != "*" {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	named := len(g.ResourceNames) == 0 || slices.Contains(g.ResourceNames, a.Name)
	return named &&
		slices.ContainsFunc(g.Resources, func(spec string) bool { return matchesSpec(spec, a.Resource, a.Subresource) })
}

func matchesSpec(spec, resource, sub string) bool {
	if spec == "*" || (sub == "" && spec == resource) {
		return true
	}
	of, part, ok := strings.Cut(spec, "/")
	switch {
	case !ok:
		return false
	case part == "*":
		return of == resource
	}
	return sub != "" && part == sub && (of == "*" || of == resource)
}

func matchesPath(spec, path string) bool {
	if prefix, ok := strings.CutSuffix(spec, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return spec == path
}
