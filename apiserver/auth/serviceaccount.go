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

// ServiceAccountGroups returns the groups of all service accounts in the namespace.
func ServiceAccountGroups(namespace string) []string {
	return []string{serviceAccountGroups, serviceAccountGroups + ":" + namespace}
}

// SplitServiceAccount returns the service account of a user. It returns false for other users.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}
