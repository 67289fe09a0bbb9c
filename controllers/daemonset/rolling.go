package daemonset

import corev1 "k8s.io/api/core/v1"

// pair contains the pods of a node that are not terminating. ok is false if several have the same template: manage
// deletes the surplus.
type pair struct {
	node    string
	is, was *corev1.Pod // with the current template, and with another one
	ok      bool
}

// pairs returns the pair of each selected node, by name.
func (st *syncState) pairs() []pair {
	var out []pair
	for _, node := range st.nodes {
		if _, stay := fits(st.ds, node); !stay {
			continue
		}
		run, _ := fits(st.ds, node)
		if on := st.pods[node.Name]; run || len(on) > 0 {
			out = append(out, st.pair(node.Name, on))
		}
	}
	return out
}

func (st *syncState) pair(node string, on []*corev1.Pod) pair {
	p := pair{node: node, ok: true}
	for _, pod := range on {
		if pod.DeletionTimestamp != nil {
			continue
		}
		kind := &p.was
		if st.updated(pod) {
			kind = &p.is
		}
		if *kind != nil {
			return pair{node: node}
		}
		*kind = pod
	}
	return p
}

// rollInPlace deletes old pods: all unavailable ones, and as many available ones as maxUnavailable allows.
func (st *syncState) rollInPlace(limit int) plan {
	var p plan
	var candidates []*corev1.Pod
	missing := 0
	for _, on := range st.pairs() {
		switch {
		case !on.ok || (on.is == nil) == (on.was == nil):
			missing++ // manage creates or deletes a pod
		case on.is != nil:
			if !st.available(on.is) {
				missing++
			}
		case !st.available(on.was):
			p.delete = append(p.delete, on.was)
			missing++
		default:
			candidates = append(candidates, on.was)
		}
	}
	p.delete = append(p.delete, candidates[:max(0, min(limit-missing, len(candidates)))]...)
	return p
}

// rollAhead creates new pods on nodes with old ones: on every node whose old pod is unavailable, and on as many others
// as maxSurge allows. It deletes an old pod when the new one is available.
func (st *syncState) rollAhead(limit int) plan {
	var p plan
	var candidates []string
	surging := 0
	for _, on := range st.pairs() {
		switch {
		case !on.ok:
			surging++
		case on.was == nil: // up to date, or manage creates it
		case on.is == nil && !st.available(on.was):
			p.create = append(p.create, on.node)
		case on.is == nil:
			candidates = append(candidates, on.node)
		case st.available(on.was) && !st.available(on.is):
			surging++
		default:
			p.delete = append(p.delete, on.was)
		}
	}
	p.create = append(p.create, candidates[:max(0, min(limit-surging, len(candidates)))]...)
	return p
}
