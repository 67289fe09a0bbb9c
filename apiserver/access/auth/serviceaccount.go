package auth

import "strings"

const (
	serviceAccountPrefix = "system:serviceaccount:"
	serviceAccountGroups = "system:serviceaccounts"
)

// ServiceAccountName is what a service account's user is called.
func ServiceAccountName(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// ServiceAccountGroups are the groups of every service account in the namespace.
func ServiceAccountGroups(namespace string) []string {
	return []string{serviceAccountGroups, serviceAccountGroups + ":" + namespace}
}

// SplitServiceAccount says which service account a user is; false for none.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}
