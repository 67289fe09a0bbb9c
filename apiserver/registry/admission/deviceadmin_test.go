package admission_test

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"monopod/apiserver/kit/client"
)

// Admin access to devices needs the label of the namespace.
func TestDeviceAdminAccess(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	const devices = `devices: {requests: [{name: a, exactly: {deviceClassName: c}}, {name: b, ` +
		`exactly: {deviceClassName: c, adminAccess: true}}]}`
	claim := func() *resourcev1.ResourceClaim {
		return object(t, new(resourcev1.ResourceClaim), `{metadata: {name: c}, spec: {`+devices+`}}`)
	}
	template := func() *resourcev1.ResourceClaimTemplate {
		return object(t, new(resourcev1.ResourceClaimTemplate), `{metadata: {name: c}, spec: {spec: {`+devices+`}}}`)
	}
	const why = "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the " +
		"`resource.kubernetes.io/admin-access: true` label on the containing namespace"
	_, err := r.Create(t.Context(), claim())
	wantRefusal(t, err, http.StatusUnprocessableEntity, `ResourceClaim.resource.k8s.io "c" is invalid: `+why)
	_, err = r.Create(t.Context(), template())
	wantRefusal(t, err, http.StatusUnprocessableEntity, `ResourceClaimTemplate.resource.k8s.io "c" is invalid: `+why)

	ns := &corev1.Namespace{}
	ns.Name = claim().Namespace
	if _, err := client.Update(t.Context(), r, ns, "", func(ns *corev1.Namespace) error {
		ns.Labels[resourcev1.DRAAdminNamespaceLabelKey] = "true"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, r, template())
	mustCreate(t, r, claim())
}
