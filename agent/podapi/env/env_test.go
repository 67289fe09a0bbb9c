package env_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/podapi/env"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "E": ""}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(E)": "", "$(B)": "$(B)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$A": "$A", "$(A": "$(A", "$": "$", "a$": "a$", "$$": "$", "$()": "$()", "$(A)$$": "1$", "$($(A))": "$($(A))",
	} {
		if got, err := env.Expand(in, lookup); got != want || err != nil {
			t.Errorf("%q: %q, want %q, %v", in, got, want, err)
		}
	}
}

// Expansion fails before it creates strings that are too long for any program: from variables that each double the
// previous one, and from arguments with many long variables.
func TestExpansionIsBounded(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "V0", Value: "xxxxxxxxxx"}}}
	for i := range 60 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: fmt.Sprintf("$(V%d)$(V%[1]d)", i)})
	}
	if _, err := env.Make(c, env.Facts{}, source{}); !errors.Is(err, env.ErrConfig) ||
		!strings.Contains(err.Error(), "has more than 131072 bytes") {
		t.Error("variables that double: ", err)
	}
	long := env.Var{Name: "A", Value: strings.Repeat("x", 100_000)}
	c.Env = []corev1.EnvVar{{Name: "A", Value: long.Value}}
	for i := range 60 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("B%d", i), Value: "$(A)"})
	}
	if vars, err := env.Make(c, env.Facts{}, source{}); err != nil || len(vars) != 61 {
		t.Errorf("%d variables, want 61; error %v", len(vars), err)
	}
	c.Env = append(c.Env, c.Env[1:]...)
	if _, err := env.Make(c, env.Facts{}, source{}); !errors.Is(err, env.ErrConfig) ||
		!strings.Contains(err.Error(), "the expanded variables have more than 6291456 bytes") {
		t.Error("too many long variables: ", err)
	}
	for n, want := range map[int]string{60: "", 70: "the expanded arguments have more than 6291456 bytes",
		-1: "has more than 131072 bytes"} {
		args := slices.Repeat([]string{"$(A)"}, max(n, 0))
		if n < 0 {
			args = []string{strings.Repeat("$(A)", 250_000)}
		}
		if out, err := env.ExpandAll(args, []env.Var{long}); want == "" && (err != nil || len(out) != n) ||
			want != "" && (!errors.Is(err, env.ErrConfig) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d arguments: expanded to %d, error %v", n, len(out), err)
		}
	}
}

// source is a Source with the ConfigMaps and Secrets of a test.
type source struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

func (s source) ConfigMap(name string) (*corev1.ConfigMap, error) { return s.configMaps[name], nil }
func (s source) Secret(name string) (*corev1.Secret, error)       { return s.secrets[name], nil }

func TestMake(t *testing.T) {
	t.Parallel()
	src := source{
		configMaps: map[string]*corev1.ConfigMap{"cm": {Data: map[string]string{"B": "b", "A": "a", "not valid=": "x"}}},
		secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"P": []byte("pw")}}},
	}
	c := &corev1.Container{
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
			{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "gone"},
				Optional: new(true)}},
		},
		Env: []corev1.EnvVar{
			{Name: "A", Value: "over"},
			{Name: "C", Value: "$(A)-$(B)-$(LATER)"},
			{Name: "LATER", Value: "x"},
			{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "APP",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "CPU",
				ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "MEM",
				ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.memory",
					Divisor: resource.MustParse("1Mi")}}},
			{Name: "KEY",
				ValueFrom: &corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "P"},
				}},
			{Name: "NONE",
				ValueFrom: &corev1.EnvVarSource{
					SecretKeyRef: &corev1.SecretKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: "s"},
						Key:                  "Q",
						Optional:             new(true),
					},
				}},
		},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(
			"1500Ki")}},
	}
	facts := env.Facts{
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web"}}},
		PodIPs:      []string{"10.0.0.2"},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m")},
	}
	got, err := env.Make(c, facts, src)
	if err != nil {
		t.Fatal(err)
	}
	want := []env.Var{
		{"A", "over"}, {"B", "b"}, {"S_P", "pw"}, {"C", "over-b-$(LATER)"}, {"LATER", "x"}, {"NAME", "p"}, {"APP", "web"},
		{"IP", "10.0.0.2"},
		{"CPU", "4"}, {"MEM", "2"}, {"KEY", "pw"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestMakeMissing(t *testing.T) {
	t.Parallel()
	ref := corev1.LocalObjectReference{Name: "x"}
	for name, c := range map[string]corev1.Container{
		"configmap": {EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref}}}},
		"secret":    {EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}}}},
		"key": {Env: []corev1.EnvVar{{Name: "A",
			ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref,
				Key: "k"}}}}},
		"field": {Env: []corev1.EnvVar{{Name: "A",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nothing"}}}}},
	} {
		if _, err := env.Make(&c, env.Facts{Pod: &corev1.Pod{}}, source{}); !errors.Is(err, env.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
