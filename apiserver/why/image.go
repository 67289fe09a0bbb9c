package why

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/spelling"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// noImage explains a container whose image is missing.
func (c container) noImage(reason, message string) *Answer {
	evidence := append([]string{words.Reason(reason, message)}, c.events()...)
	switch reason {
	case "InvalidImageName":
		return c.found("Correct the name: [REGISTRY/]NAME[:TAG], in lower case.", evidence,
			"does not start: %q is not a valid name of an image", c.spec.Image)
	case "ErrImageNeverPull":
		return c.found("Copy the image as a tar file to images/ in the data folder, or set imagePullPolicy: IfNotPresent."+
			c.similarImage(), evidence,
			"does not start: the image %q is not on the node, and imagePullPolicy is Never", c.spec.Image)
	}
	text := strings.ToLower(message)
	if !strings.Contains(message, ": ") { // only the back-off: the event has the cause
		if e := c.Last(c.pod, "Failed to pull image", "Failed"); e != nil {
			text = strings.ToLower(e.Message)
		}
	}
	if c.spec.ImagePullPolicy == corev1.PullAlways &&
		facts.HasImage(facts.Related[*corev1.Node](c.Facts, "", c.pod.Spec.NodeName), c.spec.Image) {
		because := words.Clip(message)
		if f := Pull(text); f.Sentence != "" {
			because = f.Sentence
		}
		return c.found(
			"Set imagePullPolicy: IfNotPresent, which uses the image of the node; Always is the default for the tag latest.",
			evidence,
			"does not start: its imagePullPolicy Always asks the registry although the node has the image %q, and %s",
			c.spec.Image, because)
	}
	if f := Pull(text); f.Sentence != "" {
		return c.found(f.Do+c.similarImage(), evidence, "does not start: the image %q cannot be pulled, because %s",
			c.spec.Image, f.Sentence)
	}
	return c.found("Read the message; kubectl delete pod tries again at once.", evidence,
		"does not start: the image %q cannot be pulled: %s", c.spec.Image, words.Clip(message))
}

// similarImage names an image of the node whose name differs from the container's only by a typo.
func (c container) similarImage() string {
	node := facts.Related[*corev1.Node](c.Facts, "", c.pod.Spec.NodeName)
	if node == nil {
		return ""
	}
	for _, image := range node.Status.Images {
		for _, name := range image.Names {
			if spelling.Similar(name, c.spec.Image) {
				return fmt.Sprintf(" The node has the image %q; did you mean that one?", name)
			}
		}
	}
	return ""
}
