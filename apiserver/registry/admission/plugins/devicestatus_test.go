package plugins

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// granted is a list of permissions: "verb subresource namespace/name".
type granted string

func (g granted) Authorize(_ context.Context, a auth.Attributes) (bool, string, error) {
	return a.Resource == "resourceclaims" &&
		string(g) == fmt.Sprintf("%s %s %s/%s", a.Verb, a.Subresource, a.Namespace, a.Name), "", nil
}

func (granted) Rules(context.Context, auth.User, string) ([]rbacv1.PolicyRule, error) {
	return nil, nil
}

func TestWhoWritesTheStatusOfClaims(t *testing.T) {
	t.Parallel()
	allocated := func() *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{}
		c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n1"}}}}}}}
		return c
	}
	reported := func(drivers ...string) *resourcev1.ResourceClaim {
		c := allocated()
		for _, d := range drivers {
			c.Status.Devices = append(c.Status.Devices, resourcev1.AllocatedDeviceStatus{Driver: d})
		}
		return c
	}
	driver := func(node string) auth.User {
		return auth.User{Name: "system:serviceaccount:ns:driver",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
	}
	const binding, devices = "status.allocation: Forbidden", "status.devices: Forbidden"
	for name, c := range map[string]struct {
		user      auth.User
		may       granted
		old, next *resourcev1.ResourceClaim
		want      string
	}{
		"nothing": {user: auth.User{Name: "u"}, old: allocated(), next: allocated()},
		"allocates": {user: auth.User{Name: "u"}, old: &resourcev1.ResourceClaim{}, next: allocated(),
			want: binding},
		"allocates, may": {user: auth.User{Name: "u"}, may: "patch binding /",
			old: &resourcev1.ResourceClaim{}, next: allocated()},
		"allocates, may in a namespace": {user: auth.User{Name: "u"}, may: "update binding default/",
			old: &resourcev1.ResourceClaim{}, next: allocated(), want: binding},
		"administrator": {user: auth.User{Name: "u", Groups: []string{auth.Masters}},
			old: &resourcev1.ResourceClaim{}, next: allocated()},
		"deallocates, with its devices": {user: auth.User{Name: "u"}, may: "update binding /", old: reported("d"),
			next: &resourcev1.ResourceClaim{}},
		"reports": {user: driver("n1"), old: allocated(), next: reported("d"), want: devices},
		"reports on its node": {user: driver("n1"), may: "associated-node:update driver default/d",
			old: allocated(), next: reported("d")},
		"reports on another node": {user: driver("n2"), may: "associated-node:update driver default/d",
			old: allocated(), next: reported("d"), want: devices},
		"reports on any node": {user: driver("n2"), may: "arbitrary-node:patch driver default/d", old: allocated(),
			next: reported("d")},
		"reports for another": {user: driver("n1"), may: "associated-node:update driver default/d",
			old: reported("d"), next: reported("d", "e"), want: devices},
		"removes what another reports": {user: driver("n1"), may: "associated-node:update driver default/d",
			old: reported("d", "e"), next: reported("d"), want: devices},
		"no account": {user: auth.User{Name: "u", Extra: driver("n1").Extra},
			may: "associated-node:update driver default/d", old: allocated(), next: reported("d"), want: devices},
	} {
		request := &admission.Request{Operation: admission.Update, Subresource: "status", Namespace: "default", Old: c.old,
			Object:   c.next,
			Resource: &kind.Resource{GVR: client.ResourceClaims, Kind: "ResourceClaim"}}
		err := fmt.Sprint(deviceStatus(c.may).Validate(auth.WithUser(t.Context(), c.user), request))
		if (c.want == "") != (err == "<nil>") || !strings.Contains(err, c.want) {
			t.Errorf("%s: %s, want %q", name, err, c.want)
		}
	}
}
