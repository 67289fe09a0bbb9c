package podstate

import resourcev1 "k8s.io/api/resource/v1"

// Taints reports whether a rule taints a device. Without a selector it taints none.
func Taints(rule *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	s := rule.Spec.DeviceSelector
	fits := func(want *string, is string) bool { return want == nil || *want == is }
	return s != nil && fits(s.Driver, driver) && fits(s.Pool, pool) && fits(s.Device, device)
}
