package request

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/auth"
)

// Impersonated returns the user in the impersonation headers. It returns false without such headers.
func Impersonated(h http.Header) (as auth.User, ok bool, err error) {
	as = auth.User{
		Name: h.Get(authenticationv1.ImpersonateUserHeader), UID: h.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: slices.Clone(h[authenticationv1.ImpersonateGroupHeader]), Extra: impersonatedExtra(h),
	}
	if as.Name == "" && (as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0) {
		return as, false, apierrors.NewBadRequest("the request impersonates a group, uid or extra field without a user: " +
			"header " + authenticationv1.ImpersonateUserHeader + " is missing")
	}
	return as, as.Name != "", nil
}

// impersonatedExtra parses Impersonate-Extra-KEY headers, whose keys may be percent-encoded.
func impersonatedExtra(h http.Header) map[string][]string {
	var extra map[string][]string
	for name, values := range h {
		key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = append(extra[key], values...)
	}
	return extra
}
