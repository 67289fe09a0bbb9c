package core

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func secretResource() kind.Resource {
	return kind.Resource{
		GVR:        client.Secrets,
		Kind:       "Secret",
		Namespaced: true,
		New:        func() kind.Object { return new(corev1.Secret) },
		Default:    secretDefault,
		Validate:   secretValidate,
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"type": string(obj.(*corev1.Secret).Type)}
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("Type", "The type of the data.", func(s *corev1.Secret) string { return string(s.Type) }),
			table.Count("Data", "Number of keys.", func(s *corev1.Secret) int { return len(s.Data) }),
			table.Age(),
		},
	}
}

// secretDefault sets the type and merges the write-only stringData into data.
func secretDefault(obj kind.Object) {
	secret := obj.(*corev1.Secret)
	kind.SetIfZero(&secret.Type, corev1.SecretTypeOpaque)
	if len(secret.StringData) > 0 && secret.Data == nil {
		secret.Data = make(map[string][]byte, len(secret.StringData))
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
}

func secretValidate(next, cur kind.Object, _ string) field.ErrorList {
	secret := next.(*corev1.Secret)
	var errs field.ErrorList
	path, size := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		errs = append(errs, configKey(path, key)...)
		size += len(secret.Data[key])
	}
	if size > corev1.MaxSecretSize { // the total size of the values, 1 MiB
		errs = append(errs, field.TooLong(path, "", corev1.MaxSecretSize))
	}
	errs = append(errs, secretTypeKeys(secret)...)
	if cur == nil {
		return errs
	}
	old := cur.(*corev1.Secret)
	errs = append(errs, check.Immutable(field.NewPath("type"), secret.Type, old.Type)...)
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	errs = append(errs, immutableFieldErrors("immutable", secret.Immutable != nil && *secret.Immutable)...)
	return append(errs, immutableFieldErrors("data", maps.EqualFunc(secret.Data, old.Data, bytes.Equal))...)
}

// secretTypeKeys checks the data and annotations that the secret's type requires.
func secretTypeKeys(secret *corev1.Secret) field.ErrorList {
	switch secret.Type {
	case corev1.SecretTypeServiceAccountToken:
		path := field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey)
		return check.Required(path, secret.Annotations[corev1.ServiceAccountNameKey])
	case corev1.SecretTypeDockercfg:
		return secretJSON(secret, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return secretJSON(secret, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		user, password := secretHasKey(secret, corev1.BasicAuthUsernameKey), secretHasKey(secret, corev1.BasicAuthPasswordKey)
		if len(user) > 0 && len(password) > 0 { // one of both is enough
			return append(user, password...)
		}
	case corev1.SecretTypeSSHAuth:
		return secretKeyIf(len(secret.Data[corev1.SSHAuthPrivateKey]) > 0, corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		return append(secretHasKey(secret, corev1.TLSCertKey), secretHasKey(secret, corev1.TLSPrivateKeyKey)...)
	}
	return nil
}

func secretHasKey(secret *corev1.Secret, key string) field.ErrorList {
	_, ok := secret.Data[key]
	return secretKeyIf(ok, key)
}

func secretKeyIf(ok bool, key string) field.ErrorList {
	if ok {
		return nil
	}
	return field.ErrorList{field.Required(field.NewPath("data").Key(key), "")}
}

func secretJSON(secret *corev1.Secret, key string) field.ErrorList {
	if missing := secretHasKey(secret, key); len(missing) > 0 {
		return missing
	}
	var content any
	if err := json.Unmarshal(secret.Data[key], &content); err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("data").Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}
