package rules

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/controllers/scheduler/cluster"
)

// fits returns every resource that is insufficient on the node.
func fits(c *Cycle, n *cluster.Node) Refusal {
	var r Refusal
	if int64(len(n.Pods))+1 > n.MaxPods {
		r.Reasons = append(r.Reasons, "Too many pods")
	}
	check := func(name corev1.ResourceName, want, has, taken int64) {
		if want > 0 && want > has-taken {
			r.Reasons = append(r.Reasons, "Insufficient "+string(name))
			r.Final = r.Final || want > has
		}
	}
	want := &c.Pod.Requests
	check(corev1.ResourceCPU, want.CPU, n.Allocatable.CPU, n.Requested.CPU)
	check(corev1.ResourceMemory, want.Memory, n.Allocatable.Memory, n.Requested.Memory)
	check(corev1.ResourceEphemeralStorage, want.Ephemeral, n.Allocatable.Ephemeral, n.Requested.Ephemeral)
	for name, v := range want.More {
		if provided(c, n, name) {
			continue
		}
		check(name, v, n.Allocatable.More[name], n.Requested.More[name])
	}
	if len(r.Reasons) > 1 {
		slices.Sort(r.Reasons)
	}
	return r
}

// fitsNow is a Hint: the pod now fits on the changed node, or a DeviceClass now provides a resource that no node has.
func fitsNow(all *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	return ch.ChangeKind&cluster.DevicesOffered != 0 && NewCycle(all, p).extended() || onNode(fits)(all, p, ch)
}

// leastAllocated returns the mean of the free shares of CPU and memory with the pod on the node.
func leastAllocated(c *Cycle, n *cluster.Node) int64 {
	var sum, resources int64
	free := func(has, taken, want int64) {
		if has == 0 {
			return
		}
		resources++
		if taken += want; taken <= has {
			sum += (has - taken) * best / has
		}
	}
	free(n.Allocatable.CPU, n.NonZeroRequested.CPU, c.Pod.NonZeroRequests.CPU)
	free(n.Allocatable.Memory, n.NonZeroRequested.Memory, c.Pod.NonZeroRequests.Memory)
	if resources == 0 {
		return 0
	}
	return sum / resources
}

// anyRequest reports whether the pod requests CPU or memory. For pods that request neither, the score would prefer the
// same node each time.
func anyRequest(c *Cycle, _ []*cluster.Node) bool {
	return c.Pod.Requests.CPU > 0 || c.Pod.Requests.Memory > 0
}

// balanced is higher the closer the requested shares of CPU and memory are to each other. The standard deviation of two
// shares is half of their difference.
func balanced(c *Cycle, n *cluster.Node) int64 {
	share := func(has, taken, want int64) float64 { return min(1, float64(taken+want)/float64(has)) }
	if n.Allocatable.CPU == 0 || n.Allocatable.Memory == 0 {
		return best // a single share has no deviation
	}
	cpu := share(n.Allocatable.CPU, n.Requested.CPU, c.Pod.Requests.CPU)
	memory := share(n.Allocatable.Memory, n.Requested.Memory, c.Pod.Requests.Memory)
	return int64((1 - math.Abs(cpu-memory)/2) * best)
}

// The thresholds are upstream's: image sizes below the first and above the second one do not change the score.
const (
	smallImages   = 23 << 20
	largePerImage = 1000 << 20
	defaultTag    = ":latest"
)

// anyImage reports whether a node has an image of the pod.
func anyImage(c *Cycle, _ []*cluster.Node) bool {
	c.scores.images = c.scores.images[:0]
	add := func(containers []corev1.Container) {
		for i := range containers {
			c.scores.images = append(c.scores.images, fullName(containers[i].Image))
		}
	}
	add(c.Pod.Spec.InitContainers)
	add(c.Pod.Spec.Containers)
	return slices.ContainsFunc(c.scores.images, func(name string) bool { return c.NodesWithImage(name) > 0 })
}

// fullName adds the default tag, as in a node's status.
func fullName(image string) string {
	if strings.LastIndex(image, ":") <= strings.LastIndex(image, "/") {
		return image + defaultTag
	}
	return image
}

// imageLocality returns the size of the pod's images on the node. It weighs each image by the share of nodes that have
// it, so that not all pods are placed on the only node with the image.
func imageLocality(c *Cycle, n *cluster.Node) int64 {
	var sum int64
	for _, name := range c.scores.images {
		if size, ok := n.Images[name]; ok {
			sum += int64(float64(size) * float64(c.NodesWithImage(name)) / float64(len(c.Nodes())))
		}
	}
	large := int64(largePerImage) * int64(len(c.scores.images))
	return best * (min(max(sum, smallImages), large) - smallImages) / (large - smallImages)
}
