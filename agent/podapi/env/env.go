// Package env computes the environment of a container.
package env

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ErrConfig means that a container refers to a missing ConfigMap, Secret or key, or that its variables are too long.
// The container waits with CreateContainerConfigError.
var ErrConfig = errors.New("container config")

// Source reads the objects that variables refer to. It returns nil for an object that does not exist.
type Source interface {
	ConfigMap(name string) (*corev1.ConfigMap, error)
	Secret(name string) (*corev1.Secret, error)
}

// Var is one variable.
type Var struct{ Name, Value string }

// Make computes the variables of one container in order: envFrom, then env, then those of Services that are not defined
// yet. In env, $(NAME) refers to an earlier variable or to one of Services. A later definition replaces an earlier one.
func Make(c *corev1.Container, facts Facts, src Source) ([]Var, error) {
	vars := &vars{index: map[string]int{}, services: map[string]string{}}
	for _, v := range facts.Services {
		vars.services[v.Name] = v.Value
	}
	for i := range c.EnvFrom {
		if err := vars.addFrom(&c.EnvFrom[i], src); err != nil {
			return nil, err
		}
	}
	for i := range c.Env {
		if err := vars.add(&c.Env[i], c, facts, src); err != nil {
			return nil, err
		}
	}
	for _, v := range facts.Services {
		if _, defined := vars.index[v.Name]; !defined {
			vars.put(v.Name, v.Value)
		}
	}
	return vars.list, nil
}

type vars struct {
	list     []Var
	size     int // total length of the expanded values, in bytes
	index    map[string]int
	services map[string]string
}

func (s *vars) put(name, value string) {
	if i, ok := s.index[name]; ok {
		s.list[i].Value = value
		return
	}
	s.index[name] = len(s.list)
	s.list = append(s.list, Var{name, value})
}

func (s *vars) lookup(name string) (string, bool) {
	if i, ok := s.index[name]; ok {
		return s.list[i].Value, true
	}
	value, ok := s.services[name]
	return value, ok
}

// addFrom adds all keys of a ConfigMap or Secret. Like upstream, it skips keys that are not valid variable names.
func (s *vars) addFrom(ref *corev1.EnvFromSource, src Source) error {
	values := map[string]string{}
	if from := ref.ConfigMapRef; from != nil {
		cm, err := src.ConfigMap(from.Name)
		if err != nil {
			return err
		}
		if cm == nil {
			return missing(from.Optional, "configmap %q not found", from.Name)
		}
		values = cm.Data
	} else if from := ref.SecretRef; from != nil {
		secret, err := src.Secret(from.Name)
		if err != nil {
			return err
		}
		if secret == nil {
			return missing(from.Optional, "secret %q not found", from.Name)
		}
		for k, v := range secret.Data {
			values[k] = string(v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := ref.Prefix + key
		if len(validation.IsRelaxedEnvVarName(name)) == 0 {
			s.put(name, values[key])
		}
	}
	return nil
}

func missing(optional *bool, format string, args ...any) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
}

func (s *vars) add(v *corev1.EnvVar, c *corev1.Container, facts Facts, src Source) error {
	if v.ValueFrom == nil {
		value, err := Expand(v.Value, s.lookup)
		if s.size += len(value); err == nil && s.size > maxTotal {
			err = fmt.Errorf("%w: the expanded variables have more than %d bytes", ErrConfig, maxTotal)
		}
		if err == nil {
			s.put(v.Name, value)
		}
		return err
	}
	value, ok, err := valueFrom(v.ValueFrom, c, facts, src)
	if err == nil && ok {
		s.put(v.Name, value)
	}
	return err
}

// valueFrom returns false for an optional key that does not exist.
func valueFrom(from *corev1.EnvVarSource, c *corev1.Container, facts Facts, src Source) (string, bool, error) {
	switch {
	case from.FieldRef != nil:
		value, err := Field(from.FieldRef.FieldPath, facts)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := Resource(from.ResourceFieldRef, c, facts)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		return configMapKey(from.ConfigMapKeyRef, src)
	case from.SecretKeyRef != nil:
		return secretKey(from.SecretKeyRef, src)
	case from.FileKeyRef != nil:
		return fileKey(from.FileKeyRef, facts)
	}
	return "", false, fmt.Errorf("%w: unsupported source of a variable", ErrConfig)
}

func configMapKey(ref *corev1.ConfigMapKeySelector, src Source) (string, bool, error) {
	cm, err := src.ConfigMap(ref.Name)
	if err != nil {
		return "", false, err
	}
	if cm == nil {
		return "", false, missing(ref.Optional, "configmap %q not found", ref.Name)
	}
	if value, ok := cm.Data[ref.Key]; ok {
		return value, true, nil
	}
	if value, ok := cm.BinaryData[ref.Key]; ok {
		return string(value), true, nil
	}
	return "", false, missing(ref.Optional, "couldn't find key %s in ConfigMap %s/%s", ref.Key, cm.Namespace, ref.Name)
}

func secretKey(ref *corev1.SecretKeySelector, src Source) (string, bool, error) {
	secret, err := src.Secret(ref.Name)
	if err != nil {
		return "", false, err
	}
	if secret == nil {
		return "", false, missing(ref.Optional, "secret %q not found", ref.Name)
	}
	if value, ok := secret.Data[ref.Key]; ok {
		return string(value), true, nil
	}
	return "", false, missing(ref.Optional, "couldn't find key %s in Secret %s/%s", ref.Key, secret.Namespace, ref.Name)
}
