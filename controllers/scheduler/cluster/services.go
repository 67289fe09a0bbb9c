package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SetService records a Service's selector; nil: it was deleted.
func (c *Cluster) SetService(was, is *corev1.Service) {
	if was != nil {
		delete(c.services[was.Namespace], was.Name)
		if len(c.services[was.Namespace]) == 0 {
			delete(c.services, was.Namespace)
		}
	}
	if is == nil || len(is.Spec.Selector) == 0 {
		return
	}
	if c.services[is.Namespace] == nil {
		c.services[is.Namespace] = map[string]labels.Set{}
	}
	c.services[is.Namespace][is.Name] = is.Spec.Selector
}

// Serving returns a selector of the pods that all Services of a pod select; nil if the pod has no Service.
func (c *Cluster) Serving(p *Pod) *Selector {
	var all labels.Set
	for _, s := range c.services[p.Namespace] {
		if s.AsSelectorPreValidated().Matches(labels.Set(p.Labels)) {
			if all == nil {
				all = labels.Set{}
			}
			maps.Copy(all, s)
		}
	}
	if all == nil {
		return nil
	}
	return InNamespace(p.Namespace, all.AsSelectorPreValidated())
}
