package auth

import "strings"

const (
	serviceAccountPrefix = "system:serviceaccount:"
	serviceAccountGroups = "system:serviceaccounts"
)

// ServiceAccountName returns the user name of a service account.
func ServiceAccountName(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// ServiceAccountGroups are the groups of every service account in the namespace.
func ServiceAccountGroups(namespace string) []string {
	return []string{serviceAccountGroups, serviceAccountGroups + ":" + namespace}
}

// SplitServiceAccount returns the service account of a user; false if the user is none.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}
